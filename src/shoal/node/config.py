"""The configuration of an instance: what can be set, where from, and what is wrong with it.

Here: Config, the table of its options, the order of the sources (`-c key=value`, then flags, environment,
YAML file, default), and Running, what a started instance says about itself.
Not here: the flags of the command line (cli/run.py), settings that SQL changes (catalog/settings.py).

Invariant: whoever holds a Config holds values that were checked. An option exists only if it does something;
one that is planned is refused and named as such.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Final

import yaml

from shoal.errors import InvalidConfiguration

ENVIRONMENT_PREFIX: Final = "SHOAL_"
CONFIG_FILE_VARIABLE: Final = "SHOAL_CONFIG_FILE"

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
    instance_name: str
    replicaset: str
    tier: str
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
_SIZE: Final = re.compile(r"(\d+)\s*([KMGT]?)(I?B)?", re.IGNORECASE)
_TRUE: Final = frozenset(("true", "on", "yes", "1"))
_FALSE: Final = frozenset(("false", "off", "no", "0"))


def _directory(value: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("the path of a directory")
    return Path(value).expanduser().absolute()


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("a name of at most 63 letters, digits, _ and -, that starts with a letter or _")
    return value


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


def _advertised(value: object) -> Address | None:
    if value is None or value == "":
        return None
    address = parse_address(value)
    if address.port == 0 or address.host in ("0.0.0.0", "::"):
        raise ValueError("HOST:PORT that others can connect to (no port 0, not 0.0.0.0 or [::])")
    return address


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
        key="instance_name",
        default="default_1_1",
        parse=_name,
        help="The instance's name; fixed by the first start.",
    ),
    Option(
        key="replicaset",
        default="default_1",
        parse=_name,
        help="The name of the instance's replicaset; fixed by the first start.",
    ),
    Option(
        key="tier",
        default="default",
        parse=_name,
        help="The tier that the instance belongs to; fixed by the first start.",
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
        help="Where other instances will connect; recorded in _pico_peer_address.",
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
)

_SECRET: Final = "admin_password"

_BY_KEY: Final[Mapping[str, Option]] = {option.key: option for option in OPTIONS}

# Known, and refused until they do something. An empty value asks for nothing, so it is fine.
NOT_YET: Final[Mapping[str, str]] = {
    "peer": "an instance can't join others yet: a cluster has one instance",
    "failure_domain": "failure domains need several instances, and a cluster has one",
    "init_replication_factor": "replication needs several instances, and a cluster has one",
    "tls_cert": "TLS is not built yet",
    "tls_key": "TLS is not built yet",
    "tls_ca": "TLS is not built yet",
    "audit": "the audit log is not built yet",
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
    config = Config(**values)  # type: ignore[arg-type]  # each parser returns its field's type: a test checks it
    _check_socket_path(config)
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
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8-sig"))
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


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for variable, value in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CONFIG_FILE_VARIABLE:
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


assert tuple(_BY_KEY) == tuple(f.name for f in fields(Config)), "an option for each field, in their order"
