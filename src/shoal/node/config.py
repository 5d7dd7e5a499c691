"""The configuration of an instance: what can be set, where from, and what is wrong with it.

Here: Config, the table of its options, the order of the sources (`-c key=value`, then flags, environment,
YAML file, default), and Running, what a started instance says about itself.
Not here: the flags of the command line (cli/run.py), settings that SQL changes (catalog/settings.py).

Invariant: whoever holds a Config holds values that were checked. An option exists only if it does something;
one that is planned is refused and named as such.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Final

import yaml

from shoal.catalog.schema import DEFAULT_BUCKET_COUNT, Tier, TierName
from shoal.errors import InvalidConfiguration
from shoal.node.crash_points import CRASH_POINTS_VARIABLE

ENVIRONMENT_PREFIX: Final = "SHOAL_"
CONFIG_FILE_VARIABLE: Final = "SHOAL_CONFIG_FILE"
SECRET_FILE: Final = "cluster.secret"

REPLICATION_FACTOR_MAX: Final = 31
BUCKET_COUNT_MAX: Final = 1 << 20

# sockaddr_un holds 108 bytes and libpq wants a terminating zero.
SOCKET_PATH_BYTES_MAX: Final = 107


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where something listens, or where others find it."""

    host: str
    port: int  # 0: the system chooses

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All that an instance is told when it starts."""

    instance_dir: Path  # absolute
    cluster_name: str
    peer: tuple[
        Address, ...
    ]  # where others of the cluster may be found, ourselves included; () is a cluster of one
    secret_file: Path  # absolute
    instance_name: str | None  # None: the cluster chooses
    replicaset: str | None
    tier: str
    tiers: tuple[Tier, ...] | None  # those of a new cluster, the first is its default; None: not said
    init_replication_factor: int
    failure_domain: dict[str, str]  # in upper case
    pg_listen: Address
    rpc_listen: Address
    http_listen: Address
    pg_advertise: Address | None  # None: where it listens
    rpc_advertise: Address | None
    http_advertise: Address | None
    trust: bool
    admin_password: str | None = field(repr=False)
    max_connections: int
    wal_mode: str  # "fsync" | "write"
    reader_threads: int
    cache_bytes: int
    log_level: str  # "debug" | "info" | "warning" | "error"
    audit: str | None  # "stdout" or the absolute path of a file; None: no audit log
    raft_tick_ms: int
    raft_heartbeat_ticks: int
    raft_election_ticks: int  # always > raft_heartbeat_ticks
    join_timeout: float  # seconds, as all that follow
    boot_timeout: float
    timing_scale: float  # multiplies every time that the instances of a cluster give each other
    config_file: Path | None = field(default=None, compare=False)  # absolute; where some of this was found

    @property
    def founding_tiers(self) -> tuple[Tier, ...]:
        """The tiers of a cluster that begins with this instance."""
        if self.tiers is not None:
            return self.tiers
        return (Tier(TierName(self.tier), replication_factor=self.init_replication_factor),)

    def admin_socket(self, pg_port: int) -> Path:
        """Where libpq looks for it: `psql -h INSTANCE_DIR -p PG_PORT -U admin`."""
        return self.instance_dir / f".s.PGSQL.{pg_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An instance that accepts queries, as `shoal run --json` prints it."""

    name: str
    uuid: str
    pid: int
    pg: str  # "host:port", the port that was really taken
    rpc: str
    http: str
    tier: str
    replicaset: str

    def as_json(self) -> dict[str, str | int]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One thing that can be set."""

    key: str
    default: object  # as it stands in a YAML file
    parse: Callable[[object], object]  # raises ValueError saying what is expected
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.key.upper()


# What a source said: (its name as the user would find it, the key, the value as found there).
Setting = tuple[str, str, object]


# --- values --------------------------------------------------------------------------------------

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_DOMAIN_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_SIZE: Final = re.compile(r"(\d+)\s*([KMGT]?)(I?B)?", re.IGNORECASE)
_TRUE: Final = frozenset(("true", "on", "yes", "1"))
_FALSE: Final = frozenset(("false", "off", "no", "0"))


def _directory(value: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("the path of a directory")
    return Path(value).expanduser().absolute()


def _file(value: object) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("the path of a file")
    return Path(value).expanduser().absolute()


def _audit(value: object) -> str | None:
    if value in ("stdout", "-"):
        return "stdout"
    path = _file(value)
    return None if path is None else str(path)


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("a name of at most 63 letters, digits, _ and -, that starts with a letter or _")
    return value


def _chosen_name(value: object) -> str | None:
    return None if value is None or value == "" else _name(value)


def parse_address(value: object) -> Address:
    """HOST:PORT, with an IPv6 host in brackets."""
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    # A port such as 0x10 or ٣ is digits to int() or isdigit(), and a mistake all the same.
    well_formed = bool(colon and host) and (bracketed or ":" not in host)
    if not well_formed or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError("HOST:PORT, such as 127.0.0.1:4327 or [::1]:4327, port 0 to 65535")
    return Address(host, int(port))


def reachable_address(value: object) -> Address:
    """An address to connect to, not one to listen on."""
    address = parse_address(value)
    if address.port == 0 or address.host in ("0.0.0.0", "::"):
        raise ValueError("HOST:PORT that others can connect to (no port 0, not 0.0.0.0 or [::])")
    return address


def _advertised(value: object) -> Address | None:
    return None if value is None or value == "" else reachable_address(value)


def _peers(value: object) -> tuple[Address, ...]:
    """A list, whose members may again be several with commas between them: so --peer and SHOAL_PEER are alike."""
    listed = value if isinstance(value, list) else [] if value is None else [value]
    texts: list[object] = []
    for item in listed:
        texts += item.split(",") if isinstance(item, str) else [item]
    try:
        found = [
            reachable_address(text.strip() if isinstance(text, str) else text) for text in texts if text != ""
        ]
    except ValueError as expected:
        raise ValueError(f"a list of HOST:PORT, in one text with commas; each must be {expected}") from None
    return tuple(dict.fromkeys(found))


def _domain(value: object) -> dict[str, str]:
    """KEY=VALUE,… or a map. Upper and lower case are one, so that DC=a and dc=A are not two places."""
    expected = ValueError(
        "KEY=VALUE, several with commas, or a map; each of letters, digits and _ . - (at most 63)"
    )
    pairs: list[tuple[object, object]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif value is not None:
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, str):
                raise expected
            for text in filter(None, part.split(",")):
                key, _, place = text.partition("=")
                pairs.append((key.strip(), place.strip()))
    domain: dict[str, str] = {}
    for pair_said in pairs:
        words: list[str] = []
        for word in pair_said:
            # A number in a YAML file, `rack: 7`, can only be meant as this text. What `on` means would be a guess.
            said = str(word) if isinstance(word, int) and not isinstance(word, bool) else word
            if not isinstance(said, str) or not _DOMAIN_WORD.fullmatch(said):
                raise expected
            words.append(said.upper())
        name, place = words
        if name in domain:
            raise ValueError(f"a map that says {name} only once")
        domain[name] = place
    return domain


_TIER_KEYS: Final = ("replication_factor", "can_vote", "bucket_count")


def _tiers(value: object) -> tuple[Tier, ...] | None:
    """A map of names to maps, or its JSON text.

    A replication factor that isn't said is 0 here: load() puts init_replication_factor in its place.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value, object_pairs_hook=_no_key_twice)
        except ValueError as error:
            raise ValueError(f"a map, here as JSON: {error}") from None
    if not isinstance(value, dict) or not value:
        raise ValueError(
            'a map of at least one tier, such as {"default": {"replication_factor": 2}}; '
            f"a tier may say {', '.join(_TIER_KEYS)}"
        )
    tiers: list[Tier] = []
    for name, said in value.items():
        try:
            tiers.append(_tier(_name(name), {} if said is None else said, is_default=not tiers))
        except ValueError as expected:
            raise ValueError(f"a map of tiers; {name!r}: {expected}") from None
    if not any(tier.can_vote for tier in tiers):
        raise ValueError("a map of tiers of which at least one can vote")
    if not tiers[0].bucket_count:
        raise ValueError("a map of tiers of which the first, the default one, has buckets")
    return tuple(tiers)


def _tier(name: str, said: object, *, is_default: bool) -> Tier:
    if not isinstance(said, dict):
        raise ValueError(f"must be a map that may say {', '.join(_TIER_KEYS)}")
    for key in said:
        if key not in _TIER_KEYS:
            raise ValueError(f"there is no {key}, only {', '.join(_TIER_KEYS)}")
    checked: dict[str, int] = {}
    for key, parse, default in (
        ("replication_factor", _integer(1, REPLICATION_FACTOR_MAX), 0),
        ("can_vote", _boolean, True),
        ("bucket_count", _integer(0, BUCKET_COUNT_MAX), DEFAULT_BUCKET_COUNT),
    ):
        try:
            checked[key] = parse(said[key]) if key in said else default
        except ValueError as expected:
            raise ValueError(f"{key} must be {expected}") from None
    return Tier(
        TierName(name),
        bucket_count=checked["bucket_count"],
        replication_factor=checked["replication_factor"],
        can_vote=bool(checked["can_vote"]),
        is_default=is_default,
    )


def _no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} is said twice")
        found[key] = value
    return found


def _secret(value: object) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):  # a YAML number would lose leading zeros
        raise ValueError("a text (quote it)")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise ValueError("true or false")


def _integer(least: int, most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return value

    return parse


def _decimal(least: float, most: float, of: str = "number") -> Callable[[object], float]:
    def parse(value: object) -> float:
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = float(value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not least <= value <= most:  # type: ignore[arg-type,operator]
            raise ValueError(f"a {of} from {least:g} to {most:g}")
        return float(value)  # type: ignore[arg-type]

    return parse


def _bytes(least: int, most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        size: int | None = None
        if isinstance(value, int) and not isinstance(value, bool):
            size = value
        elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
            # Memory is counted in powers of two, whatever is written: 64M, 64MB and 64MiB are one size.
            size = int(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ")
        if size is None or not least <= size <= most:
            raise ValueError(f"a size from {least} to {most} bytes, such as 65536, 64KiB or 64MiB")
        return size

    return parse


def _choice(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(" or ".join((", ".join(choices[:-1]), choices[-1])))
        return value

    return parse


# --- the options ---------------------------------------------------------------------------------

OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        key="instance_dir",
        default="shoal-data",
        parse=_directory,
        help="Everything that the instance owns lies in this directory.",
    ),
    Option(
        key="cluster_name",
        default="shoal",
        parse=_name,
        help="The cluster's name; fixed by the first start.",
    ),
    Option(
        key="peer",
        default=[],
        parse=_peers,
        help="Where instances of the cluster are found: their rpc_advertise or rpc_listen. Its own may be among them.",
    ),
    Option(
        key="secret_file",
        default=None,
        parse=_file,
        help=(
            f"The secret that instances of one cluster share. [default: {SECRET_FILE} in instance_dir] "
            "The first instance makes it."
        ),
    ),
    Option(
        key="instance_name",
        default=None,
        parse=_chosen_name,
        help="The instance's name, else the cluster chooses TIER_N_M; fixed by the first start.",
    ),
    Option(
        key="replicaset",
        default=None,
        parse=_chosen_name,
        help="The name of its replicaset, else the cluster chooses TIER_N; fixed by the first start.",
    ),
    Option(
        key="tier",
        default="default",
        parse=_name,
        help="The tier that the instance belongs to; fixed by the first start.",
    ),
    Option(
        key="tiers",
        default=None,
        parse=_tiers,
        help=(
            "The tiers of a new cluster, NAME: {replication_factor, can_vote, bucket_count}, as JSON in a flag; "
            "the first is the default one. Who joins takes the cluster's. Not said: only the instance's own."
        ),
    ),
    Option(
        key="init_replication_factor",
        default=1,
        parse=_integer(1, REPLICATION_FACTOR_MAX),
        help="How many instances hold each row, in tiers of a new cluster that don't say.",
    ),
    Option(
        key="failure_domain",
        default={},
        parse=_domain,
        help="What may fail together, such as DC=1,RACK=7: replicas are kept apart in every key.",
    ),
    Option(
        key="pg_listen",
        default="127.0.0.1:4327",
        parse=parse_address,
        help="Where PostgreSQL clients connect. Port 0: the system chooses.",
    ),
    Option(
        key="rpc_listen",
        default="127.0.0.1:3301",
        parse=parse_address,
        help="Where other instances connect.",
    ),
    Option(
        key="http_listen",
        default="127.0.0.1:5327",
        parse=parse_address,
        help="Where /health and /metrics are served.",
    ),
    Option(
        key="pg_advertise",
        default=None,
        parse=_advertised,
        help="Where clients find pg_listen from outside, if elsewhere.",
    ),
    Option(
        key="rpc_advertise",
        default=None,
        parse=_advertised,
        help="Where other instances find rpc_listen, if elsewhere.",
    ),
    Option(
        key="http_advertise",
        default=None,
        parse=_advertised,
        help="Where http_listen is found from outside, if elsewhere.",
    ),
    Option(
        key="trust",
        default=False,
        parse=_boolean,
        help="Let PostgreSQL clients in without a password. For trying things out only.",
    ),
    Option(
        key="admin_password",
        default=None,
        parse=_secret,
        help="The password of admin, set by the first start. Has no flag: arguments are seen by all.",
    ),
    Option(
        key="max_connections",
        default=1000,
        parse=_integer(1, 100_000),
        help="How many PostgreSQL clients may be connected at a time; the admin socket is not counted.",
    ),
    Option(
        key="wal_mode",
        default="fsync",
        parse=_choice("fsync", "write"),
        help="fsync: what is acknowledged survives a power cut. write: only a crash of the process.",
    ),
    Option(
        key="reader_threads",
        default=2,
        parse=_integer(1, 256),
        help="Threads for reads that are more than a lookup by key.",
    ),
    Option(
        key="cache_bytes",
        default="64MiB",
        parse=_bytes(1 << 20, 1 << 40),
        help="The page cache of the writer, and of reads by key; other reads have an eighth of it each.",
    ),
    Option(
        key="log_level",
        default="info",
        parse=_choice("debug", "info", "warning", "error"),
        help="What goes to the log (stderr).",
    ),
    Option(
        key="audit",
        default=None,
        parse=_audit,
        help="The file of the audit log, one line of JSON for each event, or stdout. [default: no audit log]",
    ),
    Option(
        key="raft_tick_ms",
        default=100,
        parse=_integer(10, 10_000),
        help="The beat of Raft's clock, in milliseconds; the same on every instance, as the next two are.",
    ),
    Option(
        key="raft_heartbeat_ticks",
        default=3,
        parse=_integer(1, 100),
        help="A leader is heard at least once in so many ticks.",
    ),
    Option(
        key="raft_election_ticks",
        default=10,
        parse=_integer(2, 1000),
        help="A leader not heard for so many ticks, or up to twice as many, is replaced.",
    ),
    Option(
        key="join_timeout",
        default=10,
        parse=_decimal(0.1, 86_400, "number of seconds"),
        help="How long one request to join the cluster may take, in seconds.",
    ),
    Option(
        key="boot_timeout",
        default=7200,
        parse=_decimal(1, 604_800, "number of seconds"),
        help="How long a starting instance looks for the others and waits to be Online, in seconds.",
    ),
    Option(
        key="timing_scale",
        default=1,
        parse=_decimal(0.1, 1000),
        help="Stretches every timeout between instances: 3 for machines that are three times as slow.",
    ),
)

_SECRET: Final = "admin_password"

_BY_KEY: Final[Mapping[str, Option]] = {option.key: option for option in OPTIONS}

# Known, and refused until they do something. An empty value asks for nothing, so it is fine.
NOT_YET: Final[Mapping[str, str]] = {
    "tls_cert": "TLS is not built yet",
    "tls_key": "TLS is not built yet",
    "tls_ca": "TLS is not built yet",
}


def option(key: str) -> Option:
    return _BY_KEY[key]


# --- from the sources to a Config ----------------------------------------------------------------


def load(
    *,
    assignments: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Config:
    """The configuration from all sources; InvalidConfiguration names everything that is wrong at once.

    `assignments` are the `key=value` of `-c`; `flags` has None for what wasn't given.
    """
    problems: list[str] = []
    chosen: dict[str, tuple[str, object]] = {}
    # From the weakest to the strongest, each covers the one before. All are checked: a mistake that another
    # source happens to cover today is still a mistake.
    environment = environment or {}
    if file is None and environment.get(CONFIG_FILE_VARIABLE):
        file = Path(environment[CONFIG_FILE_VARIABLE])
    for source, key, value in (
        *_from_file(file, problems),
        *_from_environment(environment),
        *_from_flags(flags or {}),
        *_from_assignments(assignments, problems),
    ):
        if key == _SECRET and source.startswith("-"):
            problems.append(
                f"{source}: process arguments are seen by all: use {_BY_KEY[key].variable} or a file"
            )
        elif key in _BY_KEY:
            try:
                chosen[key] = (source, _BY_KEY[key].parse(value))
            except ValueError as expected:
                shown = "" if key == _SECRET else f" is {value!r}, but"
                problems.append(f"{source}: {key}{shown} must be {expected}")
        elif key in NOT_YET:
            if value not in (None, "", [], {}):
                problems.append(f"{source}: {key} can't be set: {NOT_YET[key]}")
        else:
            problems.append(f"{source}: unknown option {key}{_suggestion(key)}")
    if problems:
        raise InvalidConfiguration("\n".join(problems))
    values = {opt.key: opt.parse(opt.default) for opt in OPTIONS}
    values.update((key, value) for key, (_, value) in chosen.items())
    config = _completed(values)
    if file is not None:
        config = replace(config, config_file=file.absolute())
    _check_together(config)
    _check_socket_path(config)
    return config


def _completed(values: dict[str, object]) -> Config:
    """With what follows from other options where nothing was said."""
    if values["secret_file"] is None:
        directory = values["instance_dir"]
        assert isinstance(directory, Path)
        values["secret_file"] = directory / SECRET_FILE
    config = Config(**values)  # type: ignore[arg-type]  # each parser returns its field's type: a test checks it
    if config.tiers is not None:
        usual = config.init_replication_factor
        tiers = (replace(tier, replication_factor=tier.replication_factor or usual) for tier in config.tiers)
        config = replace(config, tiers=tuple(tiers))
    return config


def default_yaml() -> str:
    """A commented file that loads to the defaults."""
    parts = ["# The configuration of an instance of Shoal: shoal run --config FILE\n"]
    for opt in OPTIONS:
        line = yaml.safe_dump({opt.key: opt.default}, default_flow_style=False)
        also = opt.variable if opt.key == _SECRET else f"{opt.flag}, {opt.variable}"
        parts.append(f"# {opt.help}\n# Also: {also}\n{line}")
    return "\n".join(parts)


def _from_file(path: Path | None, problems: list[str]) -> Iterator[Setting]:
    if path is None:
        return
    try:
        # utf-8-sig: editors on Windows begin a file with a byte order mark.
        loader = _Loader(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
        return
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        problems.append(f"{path}: not a text in UTF-8: {error}")
        return
    try:
        root = loader.get_single_node()
        if root is None:
            return
        if not isinstance(root, yaml.MappingNode):
            problems.append(f"{path}: expected lines of `key: value`")
            return
        seen: set[str] = set()
        for key_node, value_node in root.value:
            source = f"{path}:{key_node.start_mark.line + 1}"
            key = str(loader.construct_object(key_node, deep=True))
            if key in seen:  # YAML's own rule, the last one wins, hides a mistake
                problems.append(f"{source}: {key} is given twice")
            seen.add(key)
            yield source, key, loader.construct_object(value_node, deep=True)
    except yaml.YAMLError as error:
        problems.append(f"{path}: not valid YAML: {error}")
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Maps in maps, too, say each key once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        found: dict[Hashable, object] = super().construct_mapping(node, deep)
        if len(found) != len(node.value):
            raise yaml.constructor.ConstructorError(
                None, None, "a key is given twice in one map", node.start_mark
            )
        return found


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for variable, value in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable in (CONFIG_FILE_VARIABLE, CRASH_POINTS_VARIABLE):
            continue
        # Kubernetes sets these in every pod, once a service is called "shoal".
        if re.match(r"SHOAL_(SERVICE_|PORT$|PORT_)", variable):
            continue
        yield variable, variable.removeprefix(ENVIRONMENT_PREFIX).lower(), value


def _from_flags(flags: Mapping[str, object]) -> Iterator[Setting]:
    for key, value in flags.items():
        if value is not None:
            yield option(key).flag, key, value


def _from_assignments(assignments: Sequence[str], problems: list[str]) -> Iterator[Setting]:
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            problems.append(f"-c {assignment}: expected key=value")
        else:
            yield f"-c {key}", key.strip().replace("-", "_"), value


def _suggestion(key: str) -> str:
    near = difflib.get_close_matches(key, [*_BY_KEY, *NOT_YET], n=1)
    return f", did you mean {near[0]}?" if near else " (`shoal config default` lists them)"


def _check_together(config: Config) -> None:
    """What each option by itself can't show."""
    problems: list[str] = []
    if config.tiers is not None and config.tier not in {tier.name for tier in config.tiers}:
        names = ", ".join(tier.name for tier in config.tiers)
        problems.append(f"tier {config.tier} must be one of tiers: {names}")
    if config.raft_election_ticks <= config.raft_heartbeat_ticks:
        problems.append(
            f"raft_election_ticks is {config.raft_election_ticks}, but must be more than raft_heartbeat_ticks, "
            f"{config.raft_heartbeat_ticks}: a leader must be heard before it is replaced"
        )
    if problems:
        raise InvalidConfiguration("\n".join(problems))


def _check_socket_path(config: Config) -> None:
    # Port 0 will become at most five digits.
    path = config.admin_socket(config.pg_listen.port or 65535)
    length = len(str(path).encode())
    if length > SOCKET_PATH_BYTES_MAX:
        raise InvalidConfiguration(
            f"instance_dir {config.instance_dir} is too long: the admin socket in it would be a path of {length} "
            f"bytes, and a Unix socket's has at most {SOCKET_PATH_BYTES_MAX}. Choose a shorter directory, or a "
            "symbolic link to it."
        )


assert (*_BY_KEY, "config_file") == tuple(f.name for f in fields(Config)), (
    "an option for each, in their order"
)
