"""The configuration: which source wins, and what is said about a wrong value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal.errors import InvalidConfiguration
from shoal.node.config import OPTIONS, Address, Config, default_yaml, load, option


def refused(**sources: object) -> str:
    with pytest.raises(InvalidConfiguration) as error:
        load(**sources)  # type: ignore[arg-type]
    return error.value.message


def test_defaults() -> None:
    config = load()
    assert config.pg_listen == Address("127.0.0.1", 4327)
    assert config.instance_dir == Path("shoal-data").absolute()
    assert config.wal_mode == "fsync"
    assert config.trust is False
    assert config.cache_bytes == 64 << 20
    assert config.admin_socket(4327) == config.instance_dir / ".s.PGSQL.4327"


def test_default_yaml_loads_back_to_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text(default_yaml())
    assert load(file=file) == load()
    for opt in OPTIONS:
        assert f"\n{opt.key}: " in file.read_text()


def test_each_source_covers_the_weaker_ones(tmp_path: Path) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text("tier: from_file\n")
    sources: dict[str, object] = {}
    for name, source, expected in (
        ("file", file, "from_file"),
        ("environment", {"SHOAL_TIER": "from_environment"}, "from_environment"),
        ("flags", {"tier": "from_flag", "replicaset": None}, "from_flag"),
        ("assignments", ["tier=from_c"], "from_c"),
    ):
        sources[name] = source
        assert load(**sources).tier == expected  # type: ignore[arg-type]
    assert load(assignments=["tier=first", "tier=second"]).tier == "second"


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text("log_level: debug\n")
    assert load(environment={"SHOAL_CONFIG_FILE": str(file)}).log_level == "debug"


def test_values_in_all_their_forms(tmp_path: Path) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text(
        "\ufefftrust: on\nreader_threads: 7\ncache_bytes: 1048576\npg_listen: '[::1]:5000'\nadmin_password: '007'\n"
    )
    config = load(file=file)
    assert (config.trust, config.reader_threads, config.cache_bytes) == (True, 7, 1 << 20)
    assert str(config.pg_listen) == "[::1]:5000"
    assert config.admin_password == "007"
    assert "007" not in repr(config)
    config = load(assignments=["cache-bytes=2 MiB", "trust=no", "pg_advertise="])
    assert (config.trust, config.cache_bytes, config.pg_advertise) == (False, 2 << 20, None)


@pytest.mark.parametrize("size", ["64M", "64MB", "64MiB", "64mib", "65536K", str(64 << 20)])
def test_sizes(size: str) -> None:
    assert load(assignments=[f"cache_bytes={size}"]) == load()


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("wal_mode=sometimes", "-c wal_mode: wal_mode is 'sometimes', but must be fsync or write"),
        ("log_level=loud", "log_level is 'loud', but must be debug, info, warning or error"),
        ("trust=maybe", "trust is 'maybe', but must be true or false"),
        ("reader_threads=0", "reader_threads is '0', but must be a whole number from 1 to 256"),
        ("reader_threads=1.5", "a whole number"),
        ("reader_threads=٣", "a whole number"),
        ("cache_bytes=1KiB", "a size from 1048576 to"),
        ("cache_bytes=64 parsecs", "a size from"),
        ("cache_bytes=-1", "a size from"),
        ("pg_listen=4327", "pg_listen is '4327', but must be HOST:PORT"),
        ("pg_listen=:4327", "HOST:PORT"),
        ("pg_listen=::1:4327", "HOST:PORT"),
        ("pg_listen=localhost:65536", "HOST:PORT"),
        ("pg_listen=localhost:0x10", "HOST:PORT"),
        ("pg_advertise=0.0.0.0:4327", "that others can connect to"),
        ("pg_advertise=db.example:0", "that others can connect to"),
        ("cluster_name=", "a name of at most 63"),
        ("cluster_name=a b", "a name of at most 63"),
        ("instance_dir=", "the path of a directory"),
        ("wal_mod=fsync", "-c wal_mod: unknown option wal_mod, did you mean wal_mode?"),
        ("zzz=1", "unknown option zzz (`shoal config default` lists them)"),
        ("wal_mode", "-c wal_mode: expected key=value"),
        ("peer=127.0.0.1:3301", "-c peer: peer can't be set: an instance can't join others yet"),
        ("tls_cert=server.crt", "TLS is not built yet"),
        ("audit=file.log", "the audit log is not built yet"),
        ("failure_domain=dc=1", "a cluster has one"),
    ],
)
def test_a_wrong_value_says_its_source_and_what_is_expected(assignment: str, said: str) -> None:
    assert said in refused(assignments=[assignment])


def test_other_sources_are_named_too(tmp_path: Path) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text("# a comment\ntier: 5\ncluster_nam: x\npeer: [a]\ntier: t\n")
    said = refused(
        file=file, flags={"wal_mode": "x"}, environment={"SHOAL_TRUST": "x", "SHOAL_TURST": "on", "PATH": "x"}
    )
    assert said.splitlines() == [
        f"{file}:5: tier is given twice",
        f"{file}:2: tier is 5, but must be a name of at most 63 letters, digits, _ and -, "
        "that starts with a letter or _",
        f"{file}:3: unknown option cluster_nam, did you mean cluster_name?",
        f"{file}:4: peer can't be set: an instance can't join others yet: a cluster has one instance",
        "SHOAL_TRUST: trust is 'x', but must be true or false",
        "SHOAL_TURST: unknown option turst, did you mean trust?",
        "--wal-mode: wal_mode is 'x', but must be fsync or write",
    ]


def test_a_secret_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text("admin_password: 12345678\n")
    assert "12345678" not in refused(file=file)
    assert "must be a text" in refused(file=file)


@pytest.mark.parametrize(
    "text", ["- a\n- b\n", "just a text\n", "tier: [\n", "tier: \x00\n", "tier: !!python/name:os x\n"]
)
def test_files_that_are_no_configuration(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text(text)
    assert str(file) in refused(file=file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refused(file=tmp_path / "absent.yaml")
    (tmp_path / "latin1.yaml").write_bytes(b"tier: \xff\n")
    assert "not a text in UTF-8" in refused(file=tmp_path / "latin1.yaml")
    (tmp_path / "empty.yaml").touch()
    assert load(file=tmp_path / "empty.yaml") == load()


def test_empty_values_of_what_is_not_built_ask_for_nothing(tmp_path: Path) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text("peer: []\nfailure_domain: {}\ntls_cert:\n")
    assert load(file=file) == load()


def test_variables_that_kubernetes_sets_are_left_alone() -> None:
    assert (
        load(environment={"SHOAL_SERVICE_HOST": "10.0.0.1", "SHOAL_PORT_4327_TCP": "tcp://10.0.0.1:4327"})
        == load()
    )


def test_a_directory_too_long_for_the_admin_socket() -> None:
    longest = "/" + "d" * (107 - len("//.s.PGSQL.4327"))
    assert len(str(load(assignments=[f"instance_dir={longest}"]).admin_socket(4327))) == 107
    said = refused(assignments=[f"instance_dir={longest}x"])
    assert "path of 108 bytes" in said
    assert "at most 107" in said
    # Bytes, not characters; and port 0 may become one of five digits.
    assert "at most 107" in refused(assignments=["instance_dir=/" + "ж" * 50])
    assert "path of 108 bytes" in refused(assignments=[f"instance_dir={longest}", "pg_listen=127.0.0.1:0"])


def test_every_field_has_an_option_of_its_type() -> None:
    config = load()
    changed = {
        "instance_dir": "/elsewhere", "trust": "true", "admin_password": "secret", "max_connections": "5",
        "wal_mode": "write", "reader_threads": "3", "cache_bytes": "1MiB", "log_level": "error",
    }  # fmt: skip
    for opt in OPTIONS:
        value = changed.get(
            opt.key, "10.0.0.1:99" if opt.default is None or ":" in str(opt.default) else "other"
        )
        again = load(environment={opt.variable: value})
        assert getattr(again, opt.key) != getattr(config, opt.key)
        assert replace(config, **{opt.key: getattr(again, opt.key)}) == again
        annotation = Config.__annotations__[opt.key]
        assert type(getattr(again, opt.key)).__name__.removeprefix("Posix") in annotation
    assert option("wal_mode").flag == "--wal-mode"


def test_every_option_does_something() -> None:
    sources = Path(load.__code__.co_filename).parents[1]
    text = "".join(
        path.read_text(encoding="utf-8") for path in sources.rglob("*.py") if path.name != "config.py"
    )
    for opt in OPTIONS:
        assert f"config.{opt.key}" in text, opt.key


def test_a_secret_is_no_process_argument() -> None:
    said = refused(assignments=["admin_password=hunter2"])
    assert "SHOAL_ADMIN_PASSWORD" in said
    assert "hunter2" not in said
    assert load(environment={"SHOAL_ADMIN_PASSWORD": "hunter2"}).admin_password == "hunter2"
