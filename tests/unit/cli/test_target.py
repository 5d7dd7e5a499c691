"""Which instance the user means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.cli.target import NotRunning, connect, find_urls


def test_urls_are_taken_as_they_are() -> None:
    assert find_urls("postgresql://admin@h:1/shoal") == ["postgresql://admin@h:1/shoal"]


def test_the_socket_in_a_directory(tmp_path: Path) -> None:
    directory = tmp_path / "an instance"
    directory.mkdir()
    with pytest.raises(NotRunning, match="no instance runs on"):
        find_urls(str(directory))
    socket = directory / ".s.PGSQL.4327"
    socket.touch()
    (url,) = find_urls(str(directory))
    assert url.startswith("postgresql://admin@/shoal?host=%2F")
    assert url.endswith("an%20instance&port=4327")
    assert find_urls(str(socket)) == [url]
    with pytest.raises(NotRunning):  # it isn't the demo's directory
        find_urls(str(tmp_path))
    (tmp_path / "cluster.json").touch()
    assert find_urls(str(tmp_path)) == [url]
    newer = tmp_path / "another" / ".s.PGSQL.4328"
    newer.parent.mkdir()
    newer.touch()
    os.utime(newer, ns=(0, socket.stat().st_mtime_ns + 1))
    first, second = find_urls(str(tmp_path))
    assert first.endswith("another&port=4328")
    assert second == url


def test_no_directory_and_no_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHOAL_INSTANCE_DIR", raising=False)
    with pytest.raises(NotRunning, match="which instance"):
        find_urls(None)
    with pytest.raises(NotRunning, match="is no directory"):
        find_urls(str(tmp_path / "absent"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".s.PGSQL.1").touch()
    monkeypatch.setenv("SHOAL_INSTANCE_DIR", "data")
    assert find_urls(None)[0].endswith("&port=1")


def test_passwords_are_not_repeated() -> None:
    with pytest.raises(NotRunning) as error:
        connect("postgresql://someone:secret@127.0.0.1:1/x")
    assert "someone@127.0.0.1:1" in str(error.value)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)
