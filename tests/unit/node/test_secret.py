"""The cluster's secret in its file."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from shoal.errors import InvalidConfiguration
from shoal.node.secret import cluster_secret, make_cluster_secret


def written(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_it_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "cluster.secret"
    before = os.umask(0)
    try:
        secret = make_cluster_secret(path)
    finally:
        os.umask(before)
    assert len(secret) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert make_cluster_secret(path) == cluster_secret(path) == secret
    assert make_cluster_secret(tmp_path / "another") != secret
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["another", "cluster.secret"]


def test_of_many_that_make_it_at_once_all_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "cluster.secret"
    start = threading.Barrier(8)
    got: list[bytes] = []

    def make() -> None:
        start.wait()
        got.append(make_cluster_secret(path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8 and len(set(got)) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_white_space_around_it_is_none_of_it(tmp_path: Path) -> None:
    path = written(tmp_path / "s", b" 0123456789abcdef\r\n\n", 0o400)
    assert cluster_secret(path) == b"0123456789abcdef"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666, 0o601, 0o610, 0o620])
def test_nobody_else_may_touch_it(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "s", b"keep-this-to-yourself", mode)
    for read in (cluster_secret, make_cluster_secret):
        with pytest.raises(
            InvalidConfiguration, match=f"by others than its owner .mode {mode:04o}"
        ) as refused:
            read(path)
        assert refused.value.hint == f"chmod 600 {path}"
        assert "yourself" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"fifteen-bytes-x", b"short" + b" " * 100, b"x" * 5000])
def test_what_is_no_secret(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path / "s", content)
    with pytest.raises(InvalidConfiguration, match="holds fewer than 16 bytes|is longer than 4096 bytes"):
        make_cluster_secret(path)
    assert path.read_bytes() == content


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot be read: No such file"):
        cluster_secret(tmp_path / "nothing")
    with pytest.raises(InvalidConfiguration, match="is no file"):
        cluster_secret(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InvalidConfiguration, match="is no file"):
        cluster_secret(tmp_path / "pipe")
    with pytest.raises(InvalidConfiguration, match="cannot be written: No such file"):
        make_cluster_secret(tmp_path / "nowhere" / "s")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    with pytest.raises(InvalidConfiguration):
        make_cluster_secret(tmp_path / "dangling")
