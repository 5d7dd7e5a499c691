"""`shoal demo`, `run`, `admin` and `status` as processes, the way users meet them."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

SOURCES = Path(__file__).parents[2] / "src"
SHOAL = [sys.executable, "-P", "-m", "shoal"]
START_SECONDS = 60.0
STOP_SECONDS = 30.0


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path: the admin socket in it has little room."""
    path = Path(tempfile.mkdtemp(prefix="shoal-test-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    return {**inherited, "PYTHONPATH": str(SOURCES), **more}


def shoal(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command that ends by itself."""
    return subprocess.run(
        [*SHOAL, *arguments], input=stdin, capture_output=True, text=True, env=environment(**more), timeout=60
    )


class Demo:
    """A running `shoal demo --json`."""

    def __init__(self, *arguments: str, **more: str) -> None:
        self.process = subprocess.Popen(
            [*SHOAL, "demo", "--json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(**more),
        )
        self.rest = b""

    def ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if readable else b""
        assert line.endswith(b"\n"), self.end(signal.SIGKILL)
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        """(exit code, the rest of stdout, stderr) after a signal."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=STOP_SECONDS)
        return self.process.returncode, out.decode(), err.decode()


@contextmanager
def demo(*arguments: str, **more: str) -> Iterator[tuple[Demo, dict[str, Any]]]:
    running = Demo(*arguments, **more)
    try:
        yield running, running.ready()
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGTERM)


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


# --- demo ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_demo_from_start_to_stop(number: signal.Signals) -> None:
    with demo("--base-port", "0", "--trust") as (process, ready):
        assert list(ready) == ["cluster_name", "dir", "admin_url", "instances"]
        (instance,) = ready["instances"]
        assert list(instance) == ["name", "uuid", "pid", "pg", "rpc", "http", "tier", "replicaset"]
        assert ready["admin_url"] == f"postgresql://admin@{instance['pg']}/shoal"
        with psycopg.connect(ready["admin_url"], autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id INT PRIMARY KEY)")
            connection.execute("INSERT INTO t VALUES (1), (2)")
            assert connection.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{instance['http']}/health", timeout=10) as response:
            assert json.loads(response.read())["state"] == "running"
        code, rest, said = process.end(number)
        assert (code, rest, said) == (0, "", "")
        assert is_gone(instance["pid"])
        assert not Path(ready["dir"]).exists()  # it was a temporary one


def test_without_trust_the_admin_socket_is_the_way_in(place: Path) -> None:
    with demo("--base-port", "0", "--dir", str(place)) as (_, ready):
        assert ready["dir"] == str(place)
        assert ready["admin_url"].startswith("postgresql://admin@/shoal?host=%2Ftmp%2F")
        with psycopg.connect(ready["admin_url"]) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        (instance,) = ready["instances"]
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(f"postgresql://admin@{instance['pg']}/shoal", connect_timeout=10)


def test_a_directory_is_resumed_with_its_ports_and_uuids(place: Path) -> None:
    with demo("--base-port", "0", "--dir", str(place)) as (process, first):
        with psycopg.connect(first["admin_url"], autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (id INT PRIMARY KEY, t TEXT)")
            connection.execute("INSERT INTO kept VALUES (1, 'still here')")
        assert process.end(signal.SIGTERM)[0] == 0
    with demo("--dir", str(place)) as (process, second):
        assert second["admin_url"] == first["admin_url"]
        for key in ("name", "uuid", "pg", "rpc", "http", "tier", "replicaset"):
            assert second["instances"][0][key] == first["instances"][0][key]
        with psycopg.connect(second["admin_url"], autocommit=True) as connection:
            assert connection.execute("SELECT t FROM kept").fetchall() == [("still here",)]
        process.end(signal.SIGKILL)  # and the instance with it
        assert is_gone(second["instances"][0]["pid"])
    with demo("--dir", str(place), "--base-port", "0") as (_, third):
        assert third["admin_url"] == first["admin_url"]  # its ports are free, so it keeps them
        refused = shoal("demo", "--dir", str(place), "--base-port", "0")
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr
        assert str(place / "i1") in refused.stderr  # somebody else has it


def test_what_a_cluster_was_made_with_stays(place: Path) -> None:
    with demo("--base-port", "0", "--dir", str(place)) as (process, _):
        assert (place / "cluster.secret").stat().st_mode & 0o777 == 0o600
        process.end(signal.SIGTERM)
    for arguments, said in (
        (("--instances", "3"), "has 1 instance: --instances 3 can't change that"),
        (("--replication-factor", "2"), "has 1 as its replication factor: --replication-factor 2 can't"),
    ):
        refused = shoal("demo", "--dir", str(place), *arguments)
        assert refused.returncode == 1
        assert said in refused.stderr
    assert shoal("demo", "--instances", "8").returncode == 2


def test_ports_follow_from_the_base() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        base = min(probe.getsockname()[1], 60000)
    with demo("--base-port", str(base)) as (_, ready):
        (instance,) = ready["instances"]
        assert [instance[key] for key in ("pg", "rpc", "http")] == [
            f"127.0.0.1:{base + i}" for i in (0, 100, 200)
        ]
        refused = shoal("demo", "--base-port", str(base))
        assert refused.returncode == 1
        assert f"port {base}" in refused.stderr
        assert "is in use" in refused.stderr
        assert "--base-port" in refused.stderr


def test_a_demo_whose_instance_dies_says_so(place: Path) -> None:
    with demo("--base-port", "0", "--dir", str(place)) as (process, ready):
        os.kill(ready["instances"][0]["pid"], signal.SIGKILL)
        process.process.wait(STOP_SECONDS)
        code, _, said = process.end(signal.SIGTERM)
        assert code == 1
        assert "default_1_1 was ended by SIGKILL" in said


def test_a_demo_for_people_shows_the_command_to_type(place: Path) -> None:
    process = subprocess.Popen(
        [*SHOAL, "demo", "--base-port", "0", "--trust", "--dir", str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(COLUMNS="100"),
    )
    assert process.stdout is not None
    shown = ""
    while "Ctrl-C" not in shown:
        line = process.stdout.readline()
        assert line, process.communicate()
        shown += line
    assert "psql postgresql://admin@127.0.0.1:" in shown
    assert "default_1_1" in shown
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=STOP_SECONDS)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--replication-factor", "2"), "--replication-factor 2 needs as many instances, and there is one"),
        (
            ("--instances", "2", "--replication-factor", "3"),
            "--replication-factor 3 needs as many instances, and there are 2",
        ),
        (("--dir", "/proc/shoal"), "--dir /proc/shoal: "),
        (("--dir", "/dev/null"), "--dir /dev/null: "),
        (("--dir", "/etc"), "/etc is not empty, and holds no cluster"),
    ],
)
def test_what_a_demo_refuses(arguments: tuple[str, ...], said: str) -> None:
    refused = shoal("demo", "--base-port", "0", "--json", *arguments)
    assert refused.returncode == 1
    assert said in refused.stderr
    assert refused.stdout == ""
    assert "Traceback" not in refused.stderr


def test_a_path_too_long_for_the_socket(place: Path) -> None:
    refused = shoal("demo", "--base-port", "0", "--dir", str(place / ("d" * 100)))
    assert refused.returncode == 1
    assert "a Unix socket's has at most 107" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_damaged_cluster_files(place: Path) -> None:
    start = '{"cluster_name": "x", "replication_factor": 1'
    for text in ("{", "[]", start + "}", start + ', "instances": [{"pg": 1}]}', start + ', "instances": []}'):
        (place / "cluster.json").write_text(text)
        refused = shoal("demo", "--dir", str(place))
        assert refused.returncode == 1
        assert "cluster.json is damaged" in refused.stderr


# --- run -----------------------------------------------------------------------------------------


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    free = ("--pg-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
    return shoal("run", *free, *arguments, **more)


def test_a_wrong_configuration_is_told_in_full(place: Path) -> None:
    (place / "shoal.yaml").write_text("wal_mod: fsync\n")
    refused = run(
        *("--config", str(place / "shoal.yaml"), "-c", "peer=nowhere", "--cache-bytes", "much"),
        SHOAL_LOG_LEVEL="loud",
    )
    assert refused.returncode == 1
    for said in ("did you mean wal_mode?", "-c peer: ", "--cache-bytes: ", "SHOAL_LOG_LEVEL: "):
        assert said in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("option", ["pg_listen", "http_listen"])
def test_a_busy_port_is_named(place: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run("--instance-dir", str(place / "i"), "-c", f"{option}=127.0.0.1:{port}")
    assert refused.returncode == 1
    assert f"{option}: can't listen on 127.0.0.1:{port}: port {port} is in use" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_directories_that_cannot_be_written(place: Path) -> None:
    (place / "file").touch()
    for directory in (str(place / "file"), str(place / "file" / "below"), "/proc/shoal"):
        refused = run("--instance-dir", directory)
        assert refused.returncode == 1
        assert directory in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_read_only_directory(place: Path) -> None:
    # Root may write anywhere, unless it gives that capability away.
    as_anyone = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    if as_anyone and shutil.which("setpriv") is None:
        pytest.skip("setpriv is not here")
    (place / "i").mkdir(mode=0o555)
    for command in (("run", "--instance-dir", str(place / "i")), ("demo", "--dir", str(place / "i"))):
        refused = subprocess.run(
            [*as_anyone, *SHOAL, *command], capture_output=True, text=True, env=environment(), timeout=60
        )
        assert refused.returncode == 1, refused
        assert str(place / "i") in refused.stderr
        assert "Traceback" not in refused.stderr


def test_it_refuses_to_run_without_assertions() -> None:
    for command, more in (
        ([sys.executable, "-O", "-P", "-m", "shoal", "run"], {}),
        ([*SHOAL, "run"], {"PYTHONOPTIMIZE": "1"}),
    ):
        refused = subprocess.run(command, capture_output=True, text=True, env=environment(**more), timeout=60)
        assert refused.returncode == 1
        assert "refusing to run without assertions" in refused.stderr
        assert "Traceback" not in refused.stderr


# --- admin and status ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def playground() -> Iterator[dict[str, Any]]:
    with demo("--base-port", "0") as (_, ready):
        yield ready


def test_admin_in_all_formats(playground: dict[str, Any]) -> None:
    where = playground["dir"]
    made = shoal(
        "admin", where, "-c", "CREATE TABLE f (id INT PRIMARY KEY, t TEXT); INSERT INTO f VALUES (1, 'a;b')"
    )
    assert (made.returncode, made.stderr) == (0, "")
    assert "INSERT 0 1" in made.stdout
    assert json.loads(shoal("admin", where, "--json", "-c", "SELECT id, t FROM f").stdout) == [
        {"id": 1, "t": "a;b"}
    ]
    assert shoal("admin", where, "--csv", "-c", "SELECT * FROM f").stdout == "id,t\n1,a;b\n"
    assert "| 1 | a;b" in shoal("admin", where, "-c", "SELECT * FROM f").stdout.replace("|  1", "| 1")
    assert "a;b" in shoal("admin", playground["admin_url"], stdin="SELECT *\nFROM f -- ;\n").stdout


def test_admin_errors(playground: dict[str, Any]) -> None:
    failed = shoal("admin", playground["dir"], "-c", "SELECT 1;\nSELECT nothing\n  FROM nowhere; SELECT 2")
    assert failed.returncode == 1
    assert "ERROR 42P01: " in failed.stderr
    assert "Traceback" not in failed.stderr
    assert "2" not in failed.stdout  # nothing after the first error
    failed = shoal("admin", playground["dir"], "-c", "SELECT 1 +")
    assert "ERROR 42601: " in failed.stderr
    assert "LINE 1: SELECT 1 +" in failed.stderr


class Terminal:
    """`shoal admin` at a terminal: what a person types, and what is shown."""

    def __init__(self, where: str, home: Path) -> None:
        ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*SHOAL, "admin", where],
            env=environment(HOME=str(home), TERM="dumb", COLUMNS="120"),
            preexec_fn=lambda: os.login_tty(theirs),  # so that Ctrl-C becomes a signal
        )
        os.close(theirs)
        self.terminal = ours
        self.shown = ""

    def expect(self, text: str) -> str:
        """What has been shown up to this text, which must come."""
        deadline = time.monotonic() + 30
        while text not in self.shown:
            readable, _, _ = select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))
            assert readable, f"no {text!r} in {self.shown!r}"
            self.shown += os.read(self.terminal, 65536).decode()
        before, _, self.shown = self.shown.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())


def test_the_repl(playground: dict[str, Any], place: Path) -> None:
    at = Terminal(playground["dir"], place)
    try:
        at.expect("shoal> ")
        at.type("SELECT 'a;b' AS x,\n")
        at.expect("    -> ")
        at.type("  7 AS y; SELECT 8 AS z;\n")
        answers = at.expect("shoal> ")
        assert "a;b" in answers
        assert " 8 " in answers
        at.type("SELECT nothing FROM nowhere;\n")
        assert "ERROR 42P01" in at.expect("shoal> ")
        at.type("CREATE TABLE described (id INT PRIMARY KEY, t TEXT NOT NULL);\n")
        at.expect("shoal> ")
        at.type("\\d\n")
        assert "described" in at.expect("shoal> ")
        at.type("\\d described\n")
        columns = at.expect("shoal> ")
        assert "text" in columns.lower()
        assert "primary key (id)" in columns
        at.type("\\d nowhere\n")
        assert "no table nowhere" in at.expect("shoal> ")
        at.type("\\dS\n")
        assert "_pico_instance" in at.expect("shoal> ")
        at.type("\\what\n")
        assert "unknown command" in at.expect("shoal> ")
        at.type("SELECT 'a quote that is not closed\n")
        at.expect("    -> ")
        at.type("\x03")  # Ctrl-C drops it
        at.expect("shoal> ")
        # A statement that runs for long is cancelled, and the session goes on.
        at.type("WITH t(i) AS (VALUES " + ", ".join(f"({i})" for i in range(100)) + ")\n")
        at.expect("    -> ")
        at.type("SELECT count(*) FROM t a, t b, t c, t d, t e WHERE a.i + b.i + c.i + d.i + e.i = 7;\n")
        time.sleep(1)
        at.type("\x03")
        at.expect("shoal> ")
        at.type("SELECT 40 + 2 AS answer;\n")
        assert "42" in at.expect("shoal> ")
        at.type("\\q\n")
        assert at.process.wait(30) == 0
        assert "SELECT 40 + 2" in (place / ".shoal_history").read_text()
    finally:
        at.process.kill()
        at.process.wait()
        os.close(at.terminal)


def test_status(playground: dict[str, Any]) -> None:
    shoal("admin", playground["dir"], "-c", "CREATE TABLE s (a INT PRIMARY KEY, b INT) DISTRIBUTED BY (b)")
    answered = shoal("status", playground["dir"], "--json")
    report = json.loads(answered.stdout)
    assert (answered.returncode, report["degraded"], report["problems"]) == (0, False, [])
    (expected,) = playground["instances"]
    (found,) = report["instances"]
    assert report["cluster_name"] == playground["cluster_name"]
    assert report["leader"] == found["name"]
    known = {"state": "Online", "reachable": True, "health": "running", "leader": True, "role": "voter"}
    assert known.items() <= found.items()
    assert found["term"] > 0
    assert found["commit"] >= found["applied"] > 0
    for key in ("name", "uuid", "pg", "rpc", "http", "tier", "replicaset"):
        assert found[key] == expected[key]
    assert {"name": "s", "distribution": "sharded by b in default"}.items() <= report["tables"][-1].items()
    shown = shoal("status", playground["admin_url"], COLUMNS="150").stdout
    for word in (expected["name"], expected["pg"], "Online", "sharded by b in default", "3000"):
        assert word in shown
    assert shown.splitlines()[-1] == f"all is well: the instance is Online, and {expected['name']} leads"


def test_status_is_there_whatever_the_limits(playground: dict[str, Any]) -> None:
    limited = "ALTER SYSTEM SET sql_motion_row_max = 1; ALTER SYSTEM SET sql_vdbe_opcode_max = 1"
    assert shoal("admin", playground["dir"], "-c", limited).returncode == 0
    try:
        report = json.loads(shoal("status", playground["dir"], "--json").stdout)
        assert {"key": "sql_motion_row_max", "scope": "", "value": 1} in report["limits"]
    finally:
        assert shoal("admin", playground["dir"], "-c", "ALTER SYSTEM RESET ALL").returncode == 0


def test_expel_says_what_is_wrong(playground: dict[str, Any], place: Path) -> None:
    (instance,) = playground["instances"]
    for arguments, code, said in (
        (("the-slow-one", playground["dir"]), 2, "a valid UUID"),
        ((instance["uuid"], playground["dir"], "--timeout", "0"), 2, "--timeout"),
        ((), 2, "UUID"),
        ((instance["uuid"], str(place)), 1, "no instance runs on"),
        ((instance["uuid"], playground["dir"]), 1, "ERROR "),  # it is the only one
        ((instance["uuid"], playground["dir"], "--force"), 1, "ERROR "),
        (("00000000-0000-4000-8000-000000000000", playground["dir"]), 1, "ERROR "),
    ):
        refused = shoal("expel", *arguments, COLUMNS="150")
        assert (refused.returncode, refused.stdout) == (code, "")
        assert said in refused.stderr
        assert "Traceback" not in refused.stderr


def test_nobody_is_there(place: Path) -> None:
    for command in ("status", "admin"):
        refused = shoal(command, str(place))
        assert refused.returncode == 1
        assert "no instance runs on" in refused.stderr
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place / ".s.PGSQL.4327"))
    listener.close()  # what a crash leaves behind
    refused = shoal("status", str(place))
    assert refused.returncode == 1
    assert "can't connect" in refused.stderr
    assert "Traceback" not in refused.stderr
