"""What is encoded is read back, and what is read is checked."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.errors import (
    InvalidCharacter,
    ProtocolViolation,
    ShoalError,
    SqlSyntaxError,
    StatementInvalidated,
    UndefinedTable,
)
from shoal.pgwire import messages as m

# A busy machine is no reason to fail.
calm = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
oids = st.integers(0, 2**32 - 1)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
uint32s = st.integers(0, 2**32 - 1)
formats = st.lists(st.sampled_from((0, 1)), max_size=9).map(tuple)
values = st.lists(st.none() | st.binary(max_size=30), max_size=9).map(tuple)
raw = st.binary(max_size=40)
targets = st.sampled_from(("statement", "portal"))


@st.composite
def binds(draw: st.DrawFn) -> m.Bind:
    parameters = draw(values)
    some = draw(
        st.sampled_from(((), (0,), (1,)))
        | st.lists(st.sampled_from((0, 1)), min_size=len(parameters), max_size=len(parameters)).map(tuple)
    )
    return m.Bind(draw(names), draw(names), some, parameters, draw(formats))


def reports(kind: type[m.ErrorResponse] | type[m.NoticeResponse]) -> st.SearchStrategy[m.Message]:
    return st.builds(
        kind,
        severity=names,
        sqlstate=names,
        message=names,
        detail=st.none() | names,
        hint=st.none() | names,
        position=st.none() | st.integers(1, 10**9),
    )


columns = st.builds(
    m.Column,
    name=names,
    type_oid=oids,
    type_size=int16s,
    type_modifier=int32s,
    table_oid=oids,
    column_number=int16s,
    format=st.sampled_from((0, 1)),
)

frontend_messages: st.SearchStrategy[m.Message] = st.one_of(
    st.builds(m.Query, names),
    st.builds(m.Parse, names, names, st.lists(oids, max_size=5).map(tuple)),
    binds(),
    st.builds(m.Describe, targets, names),
    st.builds(m.Execute, names, int32s),
    st.builds(m.Close, targets, names),
    st.builds(m.FunctionCall, oids, formats, values, st.sampled_from((0, 1))),
    st.builds(m.CopyData, raw),
    st.builds(m.CopyFail, names),
    st.sampled_from((m.Flush(), m.Sync(), m.Terminate(), m.CopyDone())),
)

password_messages: st.SearchStrategy[m.PasswordMessage | m.SASLInitialResponse | m.SASLResponse] = st.one_of(
    st.builds(m.PasswordMessage, raw.map(lambda text: text.replace(b"\0", b""))),
    st.builds(m.SASLInitialResponse, names, st.none() | raw),
    st.builds(m.SASLResponse, raw),
)

backend_messages: st.SearchStrategy[m.Message] = st.one_of(
    st.sampled_from((m.AuthenticationOk(), m.AuthenticationCleartextPassword())),
    st.builds(m.AuthenticationMD5Password, st.binary(min_size=4, max_size=4)),
    st.builds(m.AuthenticationSASL, st.lists(names.filter(bool), max_size=3).map(tuple)),
    st.builds(m.AuthenticationSASLContinue, raw),
    st.builds(m.AuthenticationSASLFinal, raw),
    st.builds(m.NegotiateProtocolVersion, st.integers(0, 2**16 - 1), st.lists(names, max_size=3).map(tuple)),
    st.builds(m.BackendKeyData, uint32s, uint32s),
    st.builds(m.ParameterStatus, names, names),
    st.builds(m.ReadyForQuery, st.sampled_from(("I", "T", "E"))),
    reports(m.ErrorResponse),
    reports(m.NoticeResponse),
    st.sampled_from(
        (
            m.ParseComplete(),
            m.BindComplete(),
            m.CloseComplete(),
            m.NoData(),
            m.EmptyQueryResponse(),
            m.PortalSuspended(),
        )
    ),
    st.builds(m.ParameterDescription, st.lists(oids, max_size=5).map(tuple)),
    st.builds(m.RowDescription, st.lists(columns, max_size=4).map(tuple)),
    st.builds(m.DataRow, values),
    st.builds(m.CommandComplete, names),
    st.builds(m.CopyInResponse, st.sampled_from((0, 1)), formats),
    st.builds(m.CopyOutResponse, st.sampled_from((0, 1)), formats),
)

startup_messages: st.SearchStrategy[m.Message] = st.one_of(
    st.builds(
        m.StartupMessage,
        st.just(3),
        st.integers(0, 2**16 - 1),
        st.lists(st.tuples(names.filter(bool), names), max_size=4).map(tuple),
    ),
    st.builds(m.CancelRequest, uint32s, uint32s),
    st.sampled_from((m.SSLRequest(), m.GSSENCRequest())),
)


@given(frontend_messages)
@calm
def test_frontend_messages_are_read_back(message: m.Message) -> None:
    frame = message.encode()
    assert struct.unpack_from(">BI", frame) == (message.kind, len(frame) - 1)
    assert m.FRONTEND_DECODERS[message.kind](frame[5:]) == message


@given(password_messages)
@calm
def test_password_messages_are_read_back(
    message: m.PasswordMessage | m.SASLInitialResponse | m.SASLResponse,
) -> None:
    assert type(message).decode(message.encode()[5:]) == message


@given(backend_messages)
@calm
def test_backend_messages_are_read_back(message: m.Message) -> None:
    frame = message.encode()
    assert struct.unpack_from(">BI", frame) == (message.kind, len(frame) - 1)
    assert m.BACKEND_DECODERS[message.kind](frame[5:]) == message


@given(startup_messages)
@calm
def test_startup_messages_are_read_back(message: m.Message) -> None:
    frame = message.encode()
    assert int.from_bytes(frame[:4]) == len(frame)
    assert m.decode_startup(frame[4:]) == message


@given(frontend_messages, st.data())
@calm
def test_every_truncation_is_an_answer(message: m.Message, data: st.DataObject) -> None:
    payload = message.payload()
    cut = data.draw(st.integers(0, max(0, len(payload) - 1)))
    decode = m.FRONTEND_DECODERS[message.kind]
    if isinstance(message, m.CopyData) or not payload:
        return  # whatever its bytes are, they are the message
    with pytest.raises((ProtocolViolation, InvalidCharacter)):
        decode(payload[:cut])
    with pytest.raises((ProtocolViolation, InvalidCharacter)):
        decode(payload + b"x")


def test_messages_cannot_be_changed() -> None:
    bind = m.Bind("", "s", (), (), ())
    with pytest.raises(AttributeError):
        bind.portal = "p"  # type: ignore[misc]


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(m.PasswordMessage(b"secret"))


# What drivers send: counts are unsigned, though the layouts say Int16.


def test_a_bind_may_have_65535_parameters() -> None:
    bind = m.Bind("", "wide", (1,), (b"7",) * 65_535, (0,))
    assert m.Bind.decode(bind.payload()) == bind


def test_a_parse_may_have_65535_types() -> None:
    parse = m.Parse("", "SELECT", (20,) * 65_535)
    assert m.Parse.decode(parse.payload()) == parse


def test_a_description_may_have_7500_parameters() -> None:
    description = m.ParameterDescription((25,) * 7500)
    assert len(description.encode()) > 30_000
    assert m.BACKEND_DECODERS[ord("t")](description.payload()) == description


def test_a_length_past_the_end_allocates_nothing() -> None:
    with pytest.raises(ProtocolViolation):
        m.Bind.decode(b"\0\0" + struct.pack(">HHi", 0, 1, 2**31 - 1) + b"\0\0")
    with pytest.raises(ProtocolViolation):
        m.FunctionCall.decode(struct.pack(">IHHi", 1, 0, 65_535, 2**31 - 1))


# Formats


@pytest.mark.parametrize(
    ("formats", "count", "spread"),
    [
        ((), 0, ()),
        ((), 3, (0, 0, 0)),
        ((1,), 3, (1, 1, 1)),
        ((1,), 1, (1,)),
        ((1,), 0, ()),
        ((0, 1), 2, (0, 1)),
    ],
)
def test_formats_are_spread(formats: tuple[int, ...], count: int, spread: tuple[int, ...]) -> None:
    assert m.spread_formats(formats, count) == spread


@pytest.mark.parametrize(("formats", "count"), [((0, 1), 3), ((0, 1), 1), ((0, 1), 0)])
def test_formats_that_fit_nothing(formats: tuple[int, ...], count: int) -> None:
    with pytest.raises(ProtocolViolation, match=f"got 2 format codes for {count} items"):
        m.spread_formats(formats, count)


def test_parameters_that_do_not_fit_the_statement() -> None:
    error = m.parameter_count_violated(m.Bind("", "s", (), (b"1",), ()), required=2)
    assert error.message == (
        'protocol violation: bind message supplies 1 parameters, but prepared statement "s" requires 2'
    )


# Answers


def test_constant_answers() -> None:
    assert m.PARSE_COMPLETE == b"1\0\0\0\4"
    assert m.BIND_COMPLETE == b"2\0\0\0\4"
    assert m.CLOSE_COMPLETE == b"3\0\0\0\4"
    assert m.NO_DATA == b"n\0\0\0\4"
    assert m.EMPTY_QUERY_RESPONSE == b"I\0\0\0\4"
    assert m.PORTAL_SUSPENDED == b"s\0\0\0\4"
    assert m.READY_FOR_QUERY == {"I": b"Z\0\0\0\5I", "T": b"Z\0\0\0\5T", "E": b"Z\0\0\0\5E"}
    assert m.command_complete("SELECT 1") == m.CommandComplete("SELECT 1").encode()


@given(st.lists(columns, max_size=4), st.data())
@calm
def test_row_description_takes_the_portals_formats(columns: list[m.Column], data: st.DataObject) -> None:
    chosen = [data.draw(st.sampled_from((0, 1))) for _ in columns]
    raw = m.row_description(columns, chosen)
    described = m.BACKEND_DECODERS[raw[0]](raw[5:])
    assert isinstance(described, m.RowDescription)
    assert [column.format for column in described.columns] == chosen
    assert [column.name for column in described.columns] == [column.name for column in columns]
    assert len(raw) == 1 + int.from_bytes(raw[1:5])


@pytest.mark.parametrize(
    "error",
    [
        UndefinedTable('table with name "t" not found', position=15),
        SqlSyntaxError("unexpected end", position=1, hint="finish it", detail="or don't"),
        StatementInvalidated("prepared statement has been invalidated, reprepare is required", detail="s"),
    ],
)
def test_errors_become_responses(error: ShoalError) -> None:
    response = m.ErrorResponse.of(error)
    assert (response.severity, response.sqlstate, response.message) == (
        "ERROR",
        error.sqlstate,
        error.message,
    )
    assert (response.position, response.detail, response.hint) == (error.position, error.detail, error.hint)
    assert m.ErrorResponse.decode(response.payload()) == response
    assert m.ErrorResponse.of(error, fatal=True).severity == "FATAL"
