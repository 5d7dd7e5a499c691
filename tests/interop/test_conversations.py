"""Conversations that the protocol allows and few drivers hold: flushes, pipelines that fail, portals by name.

The client is our own messages on a socket (raw_client.py): what a driver may send, in any order that is allowed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from shoal.pgwire.messages import (
    BACKEND_DECODERS,
    Bind,
    Close,
    CommandComplete,
    DataRow,
    Describe,
    ErrorResponse,
    Execute,
    Flush,
    FunctionCall,
    Message,
    Parse,
    Query,
    ReadyForQuery,
    RowDescription,
    Sync,
    Terminate,
)
from tests.cluster import Instance, eventually
from tests.interop.conftest import numbers
from tests.interop.raw_client import RawClient

MakeTable = Callable[[str], str]


@pytest.fixture
def client(instance: Instance) -> Iterator[RawClient]:
    """Logged in, and still served at the end."""
    with RawClient(instance) as made:
        made.log_in()
        yield made
        assert heard(made, Query("SELECT n FROM digits WHERE n = 5")) == ["T", "5", "SELECT 1", "Z I"]


def heard(client: RawClient, *messages: Message, until: str = "Z") -> list[str]:
    """Says this, and what is heard up to a message of that type: in short, one string each."""
    client.say(*messages)
    found: list[str] = []
    for kind, payload in client.frames():
        message = BACKEND_DECODERS[kind](payload)
        match message:
            case DataRow():
                found.append(",".join("NULL" if v is None else bytes(v).decode() for v in message.values))
            case CommandComplete():
                found.append(message.tag)
            case ErrorResponse():
                found.append(f"E {message.sqlstate}")
            case ReadyForQuery():
                found.append(f"Z {message.status}")
            case _:
                found.append(chr(kind))
        if chr(kind) == until:
            return found
    raise AssertionError(f"closed after {found}")


def run(text: str, *parameters: bytes | None, rows: int = 0) -> tuple[Message, ...]:
    """Parse, Bind, Execute."""
    return Parse("", text, ()), Bind("", "", (), parameters, ()), Execute("", rows)


# --- flush ---------------------------------------------------------------------------------------


def test_flush_brings_the_answers_before_sync(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    assert heard(client, Parse("s", f"INSERT INTO {name} VALUES ($1)", ()), Flush(), until="1") == ["1"]
    assert heard(client, Describe("statement", "s"), Flush(), until="n") == ["t", "n"]
    for i in range(5):
        said = Bind("", "s", (), (b"%d" % i,), ()), Execute("", 0), Flush()
        assert heard(client, *said, until="C") == ["2", "INSERT 0 1"]
    assert heard(client, *run(f"SELECT count(*) FROM {name}"), Flush(), until="C") == [
        "1",
        "2",
        "5",
        "SELECT 1",
    ]
    assert heard(client, Sync()) == ["Z I"]


def test_flush_brings_an_error_before_sync(client: RawClient) -> None:
    assert heard(client, *run("SELECT 1 / 0"), Flush(), until="E") == ["1", "2", "E 22012"]
    assert heard(client, *run("SELECT 1"), Flush(), Sync()) == ["Z I"]


# --- pipelines -----------------------------------------------------------------------------------


def test_a_pipeline_up_to_its_error(client: RawClient, table: MakeTable) -> None:
    """Writes in a row share a commit; the one that fails stops the rest, and what was before it stands."""
    name = table("id INT PRIMARY KEY")
    insert = f"INSERT INTO {name} VALUES ($1)"
    ids = [b"1", b"2", b"3", b"2", b"4", b"5"]
    said = [message for value in ids for message in run(insert, value)]
    answers = heard(client, *said, *run(f"SELECT count(*) FROM {name}"), Sync())
    assert answers == [*["1", "2", "INSERT 0 1"] * 3, "1", "2", "E 23505", "Z I"]
    assert heard(client, Query(f"SELECT id FROM {name} ORDER BY id"))[1:-2] == ["1", "2", "3"]


def test_a_pipeline_of_several_syncs(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    insert = f"INSERT INTO {name} VALUES ($1)"
    said: list[Message] = []
    for value in (b"1", b"1", b"2"):
        said += [*run(insert, value), Sync()]
    client.say(*said)
    assert heard(client) == ["1", "2", "INSERT 0 1", "Z I"]
    assert heard(client) == ["1", "2", "E 23505", "Z I"]
    assert heard(client) == ["1", "2", "INSERT 0 1", "Z I"]


def test_reads_see_the_writes_before_them(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, n INT")
    said: list[Message] = [*run(f"INSERT INTO {name} VALUES (1, 0)")]
    for _ in range(50):
        said += [*run(f"UPDATE {name} SET n = n + 1"), *run(f"SELECT n FROM {name} WHERE id = 1")]
        said += run(f"SELECT sum(n) FROM {name}")
    answers = heard(client, *said, Sync())
    # Each row stands before its CommandComplete; ParseComplete and BindComplete look like numbers, too.
    rows = [row for row, tag in itertools.pairwise(answers) if tag == "SELECT 1"]
    assert rows == [str(n) for n in range(1, 51) for _ in range(2)]


def test_a_thousand_statements_before_the_first_answer_is_read(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    said: list[Message] = [Parse("s", f"INSERT INTO {name} VALUES ($1)", ())]
    for i in range(1000):
        said += [Bind("", "s", (), (b"%d" % i,), ()), Execute("", 0)]
    answers = heard(client, *said, Sync())
    assert answers == ["1", *["2", "INSERT 0 1"] * 1000, "Z I"]


def test_a_block_in_one_pipeline(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    insert = f"INSERT INTO {name} VALUES ($1)"
    answers = heard(client, *run("BEGIN"), *run(insert, b"1"), *run(insert, b"2"), *run("COMMIT"), Sync())
    assert answers == ["1", "2", "BEGIN", *["1", "2", "INSERT 0 1"] * 2, "1", "2", "COMMIT", "Z I"]
    answers = heard(client, *run("BEGIN"), *run(insert, b"3"), *run(insert, b"3"), *run("COMMIT"), Sync())
    assert answers == ["1", "2", "BEGIN", "1", "2", "INSERT 0 1", "1", "2", "E 23505", "Z E"]
    assert heard(client, *run("SELECT 1"), Sync()) == ["E 25P02", "Z E"]
    assert heard(client, *run("COMMIT"), Sync()) == ["1", "2", "E 0A000", "Z I"]
    assert heard(client, Query(f"SELECT count(*) FROM {name}")) == ["T", "3", "SELECT 1", "Z I"]


def test_an_error_in_a_block_that_only_read(client: RawClient) -> None:
    assert heard(client, Query("BEGIN; SELECT 1 / 0; SELECT 2"))[-2:] == ["E 22012", "Z E"]
    assert heard(client, Query("ROLLBACK")) == ["ROLLBACK", "Z I"]
    assert heard(client, Query("BEGIN; SELECT 1 / 0"))[-1] == "Z E"
    assert heard(client, Query("COMMIT")) == ["ROLLBACK", "Z I"]


def test_a_simple_query_amid_extended_messages(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    said = *run(f"INSERT INTO {name} VALUES (1)"), Query(f"SELECT id FROM {name}")
    assert heard(client, *said) == ["1", "2", "INSERT 0 1", "T", "1", "SELECT 1", "Z I"]
    # Behind an error all is skipped up to Sync, a simple query, too.
    assert heard(client, *run("SELECT 1 / 0"), Query("SELECT 2"), Sync()) == ["1", "2", "E 22012", "Z I"]


# --- portals -------------------------------------------------------------------------------------


def test_portals_by_name(client: RawClient) -> None:
    rows = "SELECT n FROM digits ORDER BY n"
    said = Parse("s", rows, ()), Bind("a", "s", (), (), ()), Bind("b", "s", (), (), ())
    assert heard(client, Query("BEGIN")) == ["BEGIN", "Z T"]
    answers = heard(client, *said, Execute("a", 2), Execute("b", 1), Execute("a", 2), Sync())
    assert answers == ["1", "2", "2", "0", "1", "s", "0", "s", "2", "3", "s", "Z T"]
    answers = heard(client, Execute("b", 0), Execute("a", 6), Execute("a", 1), Sync())
    assert answers == [*"123456789", "SELECT 9", *"456789", "s", "SELECT 0", "Z T"]
    assert heard(client, Bind("a", "s", (), (), ()), Sync()) == ["E 42P03", "Z E"]
    assert heard(client, Query("ROLLBACK")) == ["ROLLBACK", "Z I"]
    assert heard(client, Execute("a", 1), Sync()) == ["E 34000", "Z I"]
    assert heard(client, Close("statement", "s"), Close("portal", "nothing"), Sync()) == ["3", "3", "Z I"]


def test_portals_end_with_sync_outside_of_a_block(client: RawClient) -> None:
    rows = "SELECT n FROM digits ORDER BY n"
    answers = heard(client, Parse("", rows, ()), Bind("a", "", (), (), ()), Execute("a", 2), Sync())
    assert answers == ["1", "2", "0", "1", "s", "Z I"]
    assert heard(client, Execute("a", 2), Sync()) == ["E 34000", "Z I"]
    # Before the Sync it may go on.
    said = *run(rows, rows=2), Execute("", 2), Execute("", 0), Execute("", 0), Sync()
    assert heard(client, *said) == [
        "1",
        "2",
        "0",
        "1",
        "s",
        "2",
        "3",
        "s",
        *"456789",
        "SELECT 6",
        "SELECT 0",
        "Z I",
    ]


def test_a_write_is_executed_once(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    said = *run(f"INSERT INTO {name} VALUES (1)"), Execute("", 0), Sync()
    assert heard(client, *said) == ["1", "2", "INSERT 0 1", "E 55000", "Z I"]
    said = (
        *run(f"INSERT INTO {name} VALUES (2), (3), (4) RETURNING id", rows=1),
        Execute("", 1),
        Execute("", 0),
        Sync(),
    )
    assert heard(client, *said) == ["1", "2", "2", "s", "3", "s", "4", "INSERT 0 3", "Z I"]
    assert heard(client, Query(f"SELECT count(*) FROM {name}")) == ["T", "4", "SELECT 1", "Z I"]


def test_a_portal_keeps_its_snapshot(client: RawClient, instance: Instance, table: MakeTable) -> None:
    """What it reads is what there was when it began, whatever happens to the table meanwhile."""
    name = table("id INT PRIMARY KEY")
    instance.execute(f"INSERT INTO {name} SELECT n FROM digits")
    client.say(Query("BEGIN"))
    client.until(ReadyForQuery)
    said = (
        Parse("", f"SELECT id FROM {name} ORDER BY id", ()),
        Bind("p", "", (), (), ()),
        Execute("p", 3),
        Sync(),
    )
    assert heard(client, *said) == ["1", "2", "0", "1", "2", "s", "Z T"]
    instance.execute(f"DELETE FROM {name} WHERE id > 4", f"INSERT INTO {name} VALUES (100)")
    assert heard(client, Execute("p", 3), Sync()) == ["3", "4", "5", "s", "Z T"]
    instance.execute(f"DROP TABLE {name}")
    assert heard(client, Execute("p", 0), Sync()) == ["6", "7", "8", "9", "SELECT 4", "Z T"]
    assert heard(client, Query("COMMIT")) == ["COMMIT", "Z I"]


def test_describe(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT, d DECIMAL(8, 3)")
    client.say(Parse("s", f"SELECT * FROM {name} WHERE t = $1", ()), Describe("statement", "s"), Sync())
    columns = client.until(RowDescription).columns
    assert [(column.name, column.type_oid) for column in columns] == [("id", 20), ("t", 25), ("d", 1700)]
    client.until(ReadyForQuery)
    assert heard(client, Describe("statement", "none"), Sync()) == ["E 26000", "Z I"]
    assert heard(client, Describe("portal", "none"), Sync()) == ["E 34000", "Z I"]
    assert heard(client, Parse("b", "BEGIN", ()), Describe("statement", "b"), Sync()) == [
        "1",
        "t",
        "n",
        "Z I",
    ]


def test_result_formats_that_do_not_fit(client: RawClient) -> None:
    for formats in ((1, 1, 1), (0, 7), (7,)):
        said = Parse("", "SELECT 1, 2", ()), Bind("", "", (), (), formats), Execute("", 0), Sync()
        assert heard(client, *said) == ["1", "E 08P01", "Z I"]
    said = (
        Parse("", "SELECT n FROM digits WHERE n = 3", ()),
        Bind("", "", (), (), (1, 1)),
        Execute("", 0),
        Sync(),
    )
    assert heard(client, *said) == ["1", "E 08P01", "Z I"]


# --- simple queries of several statements --------------------------------------------------------


def test_a_script_that_fails_in_the_middle(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    text = f"INSERT INTO {name} VALUES (1); INSERT INTO {name} VALUES (1); INSERT INTO {name} VALUES (2)"
    client.say(Query(text))
    answers = []
    for kind, payload in client.frames():
        if kind == ErrorResponse.kind:
            error = ErrorResponse.decode(payload)
            assert error.sqlstate == "23505"
            assert error.detail is not None  # PostgreSQL would have undone the first
        answers.append(chr(kind))
        if kind == ReadyForQuery.kind:
            break
    assert answers == ["C", "E", "Z"]
    assert heard(client, Query(f"SELECT id FROM {name}")) == ["T", "1", "SELECT 1", "Z I"]


def test_a_script_with_a_syntax_error_does_nothing(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    assert heard(client, Query(f"INSERT INTO {name} VALUES (1); SELEC 1")) == ["E 42601", "Z I"]
    assert heard(client, Query(f"SELECT count(*) FROM {name}")) == ["T", "0", "SELECT 1", "Z I"]


def test_empty_queries(client: RawClient) -> None:
    for text in ("", " ", ";", " ; ;", "-- nothing", "/* nothing */ ;"):
        assert heard(client, Query(text)) == ["I", "Z I"]
        assert heard(client, *run(text), Sync()) == ["1", "2", "I", "Z I"]
    assert heard(client, Query("; SELECT 1 ;; SELECT 2;")) == [
        *("T", "1", "SELECT 1"),
        *("T", "2", "SELECT 1"),
        "Z I",
    ]


def test_schema_changes_in_a_script(client: RawClient) -> None:
    text = """
        CREATE TABLE scripted (id INT PRIMARY KEY, t TEXT);
        INSERT INTO scripted VALUES (1, 'x');
        ALTER TABLE scripted ADD COLUMN n INT;
        UPDATE scripted SET n = 7;
        CREATE INDEX scripted_n ON scripted (n);
        SELECT * FROM scripted;
        DROP TABLE scripted;
    """
    assert heard(client, Query(text)) == [
        *("CREATE TABLE", "INSERT 0 1", "ALTER TABLE", "UPDATE 1", "CREATE INDEX"),
        *("T", "1,x,7", "SELECT 1", "DROP TABLE", "Z I"),
    ]


def test_function_call_is_refused(client: RawClient) -> None:
    said = FunctionCall(function_oid=1, argument_formats=(), arguments=(), result_format=0)
    assert heard(client, said) == ["E 0A000", "Z I"]


# --- ends ----------------------------------------------------------------------------------------


def test_terminate_behind_writes(instance: Instance, table: MakeTable) -> None:
    """They were asked for, so they happen; nobody hears of them."""
    name = table("id INT PRIMARY KEY")
    with RawClient(instance) as client:
        client.log_in()
        said = [message for i in range(20) for message in run(f"INSERT INTO {name} VALUES ($1)", b"%d" % i)]
        client.say(*said, Sync(), Terminate())
        for _ in client.frames():
            pass
    with instance.connect() as conn:
        query = f"SELECT count(*) FROM {name}".encode()
        eventually(lambda: conn.execute(query).fetchone() == (20,), 30)


def test_a_large_answer_amid_a_pipeline(client: RawClient, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    said = (
        *run(f"INSERT INTO {name} VALUES (1)"),
        *run(numbers(4)),
        *run(f"INSERT INTO {name} VALUES (2)"),
        Sync(),
    )
    answers = heard(client, *said)
    assert answers[:5] == ["1", "2", "INSERT 0 1", "1", "2"]
    assert answers[-5:] == ["SELECT 10000", "1", "2", "INSERT 0 1", "Z I"]
