"""The configuration: which source wins, and what is said about a wrong value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal.catalog.schema import Tier, TierName
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
        ("tls_cert=server.crt", "-c tls_cert: tls_cert can't be set: TLS is not built yet"),
        ("peer=localhost", "peer is 'localhost', but must be a list of HOST:PORT"),
        ("peer=10.0.0.1:3301,0.0.0.0:3301", "that others can connect to"),
        ("peer=10.0.0.1:0", "that others can connect to"),
        ("failure_domain=dc", "failure_domain is 'dc', but must be KEY=VALUE"),
        ("failure_domain=dc=", "KEY=VALUE"),
        ("failure_domain=dc=a b", "KEY=VALUE"),
        ("failure_domain=dc=1,DC=2", "a map that says DC only once"),
        ("init_replication_factor=0", "a whole number from 1 to 31"),
        ("tiers={", "a map, here as JSON: "),
        ("tiers=[]", "a map of at least one tier"),
        ("tiers={}", "a map of at least one tier"),
        ('tiers={"a b": {}}', "a map of tiers; 'a b': a name of at most 63"),
        (
            'tiers={"default": 3}',
            "'default': must be a map that may say replication_factor, can_vote, bucket_count",
        ),
        ('tiers={"default": {"buckets": 3}}', "there is no buckets, only replication_factor, can_vote"),
        (
            'tiers={"default": {"replication_factor": 32}}',
            "replication_factor must be a whole number from 1 to 31",
        ),
        ('tiers={"default": {"bucket_count": -1}}', "bucket_count must be a whole number from 0"),
        ('tiers={"default": {"can_vote": 1}}', "can_vote must be true or false"),
        ('tiers={"default": {"can_vote": false}}', "of which at least one can vote"),
        ('tiers={"default": {"bucket_count": 0}}', "the default one, has buckets"),
        ('tiers={"default": {}, "default": {}}', "default is said twice"),
        ('tiers={"storage": {}, "votes": {}}', "tier default must be one of tiers: storage, votes"),
        ("raft_tick_ms=9", "a whole number from 10 to 10000"),
        ("raft_election_ticks=3", "raft_election_ticks is 3, but must be more than raft_heartbeat_ticks, 3"),
        ("timing_scale=0", "a number from 0.1 to 1000"),
        ("timing_scale=nan", "a number from"),
        ("timing_scale=1e1", "a number from"),
        ("join_timeout=soon", "a number of seconds from 0.1 to 86400"),
        ("boot_timeout=0", "a number of seconds from 1 to 604800"),
    ],
)
def test_a_wrong_value_says_its_source_and_what_is_expected(assignment: str, said: str) -> None:
    assert said in refused(assignments=[assignment])


def test_other_sources_are_named_too(tmp_path: Path) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text("# a comment\ntier: 5\ncluster_nam: x\npeer: [a]\ntls_ca: x\ntier: t\n")
    said = refused(
        file=file, flags={"wal_mode": "x"}, environment={"SHOAL_TRUST": "x", "SHOAL_TURST": "on", "PATH": "x"}
    )
    assert said.splitlines() == [
        f"{file}:6: tier is given twice",
        f"{file}:2: tier is 5, but must be a name of at most 63 letters, digits, _ and -, "
        "that starts with a letter or _",
        f"{file}:3: unknown option cluster_nam, did you mean cluster_name?",
        f"{file}:4: peer is ['a'], but must be a list of HOST:PORT, in one text with commas; each must be HOST:PORT, "
        "such as 127.0.0.1:4327 or [::1]:4327, port 0 to 65535",
        f"{file}:5: tls_ca can't be set: TLS is not built yet",
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


def test_empty_values_ask_for_nothing(tmp_path: Path) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text(
        "peer: []\nfailure_domain: {}\ntiers:\nsecret_file:\ninstance_name:\ntls_cert:\naudit: ''\n"
    )
    assert load(file=file) == load()
    names = ("PEER", "FAILURE_DOMAIN", "TIERS", "SECRET_FILE", "INSTANCE_NAME", "REPLICASET", "TLS_CERT")
    assert load(environment={f"SHOAL_{name}": "" for name in names}) == load()


def test_peers(tmp_path: Path) -> None:
    a, b = Address("10.0.0.1", 3301), Address("::1", 3302)
    file = tmp_path / "shoal.yaml"
    file.write_text("peer:\n- 10.0.0.1:3301\n- '[::1]:3302'\n")
    assert load(file=file).peer == (a, b)
    file.write_text("peer: 10.0.0.1:3301\n")
    assert load(file=file).peer == (a,)
    assert load(environment={"SHOAL_PEER": "10.0.0.1:3301, [::1]:3302"}).peer == (a, b)
    # A stronger source covers a weaker one whole; whoever is said twice is one.
    flags = {"peer": ["[::1]:3302", "10.0.0.1:3301,[::1]:3302"]}
    assert load(flags=flags, environment={"SHOAL_PEER": "10.9.9.9:1"}).peer == (b, a)
    assert "--peer: peer is ['x']" in refused(flags={"peer": ["x"]})


def test_failure_domains(tmp_path: Path) -> None:
    file = tmp_path / "shoal.yaml"
    file.write_text("failure_domain: {dc: msk-1, Rack: 7}\n")
    domain = {"DC": "MSK-1", "RACK": "7"}
    assert load(file=file).failure_domain == domain
    assert load(environment={"SHOAL_FAILURE_DOMAIN": "dc=msk-1, rack=7"}).failure_domain == domain
    file.write_text("failure_domain: [dc=msk-1, rack=7]\n")
    assert load(file=file).failure_domain == domain
    file.write_text("failure_domain: {dc: on}\n")
    assert "must be KEY=VALUE" in refused(file=file)


def test_tiers(tmp_path: Path) -> None:
    assert load().tiers is None
    assert load().founding_tiers == (Tier(TierName("default")),)
    config = load(assignments=["tier=hot", "init_replication_factor=3"])
    assert config.founding_tiers == (Tier(TierName("hot"), replication_factor=3),)
    expected = (
        Tier(TierName("storage"), 100, replication_factor=2, is_default=True),
        Tier(TierName("votes"), 0, replication_factor=1, can_vote=True, is_default=False),
        Tier(TierName("cold"), 3000, replication_factor=3, can_vote=False, is_default=False),
    )
    file = tmp_path / "shoal.yaml"
    file.write_text(
        "tier: votes\ninit_replication_factor: 3\ntiers:\n  storage: {replication_factor: 2, bucket_count: 100}\n"
        "  votes: {bucket_count: 0, replication_factor: 1}\n  cold: {can_vote: off}\n"
    )
    config = load(file=file)
    assert config.tiers == config.founding_tiers == expected
    text = (
        '{"storage": {"replication_factor": 2, "bucket_count": 100}, "votes": {"bucket_count": 0, '
        '"replication_factor": 1}, "cold": {"can_vote": false}}'
    )
    again = load(
        flags={"tiers": text}, environment={"SHOAL_TIER": "votes", "SHOAL_INIT_REPLICATION_FACTOR": "3"}
    )
    assert again == config
    file.write_text("tiers:\n  default: {}\n  default: {}\n")
    assert "a key is given twice in one map" in refused(file=file)
    file.write_text("tiers:\n  default:\n")
    assert load(file=file).tiers == load().founding_tiers


def test_the_secret_lies_with_the_instance_unless_said_otherwise(tmp_path: Path) -> None:
    assert load().secret_file == Path("shoal-data/cluster.secret").absolute()
    assert load(assignments=["instance_dir=/i"]).secret_file == Path("/i/cluster.secret")
    assert load(assignments=["instance_dir=/i", "secret_file=/run/s"]).secret_file == Path("/run/s")


def test_times() -> None:
    config = load()
    assert (config.raft_tick_ms, config.raft_heartbeat_ticks, config.raft_election_ticks) == (100, 3, 10)
    config = load(
        assignments=["timing-scale=2.5", "join_timeout=30"], environment={"SHOAL_BOOT_TIMEOUT": "60.5"}
    )
    assert (config.timing_scale, config.join_timeout, config.boot_timeout) == (2.5, 30.0, 60.5)


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
        "instance_name": "other", "replicaset": "other", "secret_file": "/elsewhere", "failure_domain": "dc=1",
        "tiers": '{"default": {"replication_factor": 2}}', "init_replication_factor": "2", "raft_tick_ms": "50",
        "raft_heartbeat_ticks": "2", "raft_election_ticks": "20", "join_timeout": "5", "boot_timeout": "5",
        "timing_scale": "5",
    }  # fmt: skip
    for opt in OPTIONS:
        value = changed.get(
            opt.key, "10.0.0.1:99" if opt.default in (None, []) or ":" in str(opt.default) else "other"
        )
        again = load(environment={opt.variable: value})
        assert getattr(again, opt.key) != getattr(config, opt.key)
        follows = {"secret_file": again.secret_file} if opt.key == "instance_dir" else {}
        assert replace(config, **{opt.key: getattr(again, opt.key), **follows}) == again
        annotation = Config.__annotations__[opt.key]
        assert type(getattr(again, opt.key)).__name__.removeprefix("Posix") in annotation
    assert option("wal_mode").flag == "--wal-mode"


# What only the meeting of several instances needs.
FOR_MEMBERSHIP = frozenset(
    ("peer", "secret_file", "join_timeout", "boot_timeout", "timing_scale")
    + ("raft_tick_ms", "raft_heartbeat_ticks", "raft_election_ticks")
)


def test_every_option_does_something() -> None:
    sources = Path(load.__code__.co_filename).parents[1]
    text = "".join(
        path.read_text(encoding="utf-8") for path in sources.rglob("*.py") if path.name != "config.py"
    )
    uses = {
        "tiers": "founding_tiers",
        "init_replication_factor": "founding_tiers",  # config.py puts it into the tiers
    }
    for opt in OPTIONS:
        if opt.key in FOR_MEMBERSHIP:
            continue
        assert f"config.{uses.get(opt.key, opt.key)}" in text, opt.key


def test_a_secret_is_no_process_argument() -> None:
    said = refused(assignments=["admin_password=hunter2"])
    assert "SHOAL_ADMIN_PASSWORD" in said
    assert "hunter2" not in said
    assert load(environment={"SHOAL_ADMIN_PASSWORD": "hunter2"}).admin_password == "hunter2"


def test_where_the_audit_log_goes() -> None:
    assert load().audit is None
    for word in ("stdout", "-"):
        assert load(assignments=[f"audit={word}"]).audit == "stdout"
    assert load(assignments=["audit=logs/audit.log"]).audit == str(Path("logs/audit.log").absolute())
    assert load(environment={"SHOAL_AUDIT": "/var/log/audit"}).audit == "/var/log/audit"
