"""Every way in which Shoal says no.

Here: ShoalError, an answer to a client that carries the SQLSTATE a driver acts on, and Fault, which
stops the instance because its state can no longer be trusted.
Not here: turning errors of SQLite into these (storage/sqlite.py), putting them on the wire
(pgwire/messages/).

This is a leaf: every package may import it, it imports none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class ShoalError(Exception):
    """An answer to a client. The connection goes on, unless the SQLSTATE's class is 08 or FATAL."""

    sqlstate: ClassVar[str] = "XX000"
    # The function of PostgreSQL that raises it, where drivers recognise an error by that.
    routine: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        position: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
        extra: Mapping[str, str | int] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.position = position  # 1-based, in characters of the statement's text
        self.detail = detail
        self.hint = hint
        self.extra: Mapping[str, str | int] = extra or {}  # for instances, not for people: who leads, …


class Fault(Exception):
    """The instance stops: its replica can no longer be trusted to agree with the others."""


class InternalError(ShoalError):
    """A bug of ours that reached a client. The log has the traceback."""

    sqlstate = "XX000"


# Class 08, 28, 3D: the connection


class ProtocolViolation(ShoalError):
    """The peer broke the protocol: malformed, oversized or out of turn."""

    sqlstate = "08P01"


class InvalidPassword(ShoalError):
    sqlstate = "28P01"


class InvalidAuthorization(ShoalError):
    sqlstate = "28000"


class CannotConnectNow(ShoalError):
    """The instance is starting or stopping."""

    sqlstate = "57P03"


class AdminShutdown(ShoalError):
    sqlstate = "57P01"


class TooManyConnections(ShoalError):
    sqlstate = "53300"


# Class F0: the instance itself


class InvalidConfiguration(ShoalError):
    """A value of the configuration, or what it asks of this machine, is wrong: the instance doesn't start."""

    sqlstate = "F0000"


# Class 0A: what we don't do


class FeatureNotSupported(ShoalError):
    """Understood, and refused. Never accepted and ignored."""

    sqlstate = "0A000"


class StalePlan(FeatureNotSupported):
    """A prepared statement would give other columns than those that it was described with. Drivers prepare it
    anew when they recognise this: pgJDBC and asyncpg by the routine, pgx by the text."""

    routine = "RevalidateCachedQuery"

    def __init__(self) -> None:
        super().__init__("cached plan must not change result type")


# Class 22: values


class DataError(ShoalError):
    sqlstate = "22000"


class NumericOutOfRange(DataError):
    sqlstate = "22003"


class DatetimeOverflow(DataError):
    sqlstate = "22008"


class DivisionByZero(DataError):
    sqlstate = "22012"

    def __init__(self, message: str = "division by zero") -> None:
        super().__init__(message)


class InvalidTextRepresentation(DataError):
    """A text that is no value of its type: as a literal, a cast or a parameter."""

    sqlstate = "22P02"


class InvalidBinaryRepresentation(DataError):
    sqlstate = "22P03"


class InvalidCharacter(DataError):
    """A NUL character, or bytes that are not UTF-8."""

    sqlstate = "22021"


class InvalidEscape(DataError):
    sqlstate = "22025"


class InvalidRegularExpression(DataError):
    sqlstate = "2201B"


class InvalidParameterValue(DataError):
    sqlstate = "22023"


class SubstringError(DataError):
    sqlstate = "22011"


class StringTooLong(DataError):
    sqlstate = "22001"


class InvalidRowCountInLimit(DataError):
    sqlstate = "2201W"


class InvalidRowCountInOffset(DataError):
    sqlstate = "2201X"


class CardinalityViolation(ShoalError):
    """A scalar subquery gave several rows, or ON CONFLICT met one row twice."""

    sqlstate = "21000"


# Class 23: constraints


class IntegrityError(ShoalError):
    sqlstate = "23000"


class NotNullViolation(IntegrityError):
    sqlstate = "23502"


class UniqueViolation(IntegrityError):
    sqlstate = "23505"


class CheckViolation(IntegrityError):
    sqlstate = "23514"


# Class 25, 40: transactions


class InvalidTransactionState(ShoalError):
    sqlstate = "25000"


class ReadOnlyTransaction(ShoalError):
    sqlstate = "25006"


class InvalidSavepoint(ShoalError):
    sqlstate = "3B001"


class NoActiveTransaction(ShoalError):
    sqlstate = "25P01"


class InFailedTransaction(ShoalError):
    sqlstate = "25P02"

    def __init__(self) -> None:
        super().__init__("current transaction is aborted, commands ignored until end of transaction block")


class OutcomeUnknown(ShoalError):
    """It may have happened. Do not blindly retry."""

    sqlstate = "40003"


class NotAcknowledged(ShoalError):
    """It is committed, and will be everywhere. Not every instance that should has said that it has it by now."""

    sqlstate = "57S01"  # ours


class RetryableError(ShoalError):
    """Nothing happened; the same statement may work when sent again."""

    sqlstate = "40001"


class NotLeader(RetryableError):
    """Another instance leads, or none does. Nothing was proposed."""

    def __init__(self, leader: int = 0) -> None:
        who = f"the instance with raft id {leader} does" if leader else "nobody is known to"
        super().__init__(f"this instance doesn't lead the cluster, {who}")
        self.leader = leader
        self.extra = {"leader": leader}


class ProposalDropped(RetryableError):
    """The leader takes no proposals now. Nothing was proposed."""


# Class 26, 34, 42: names and statements


class UndefinedStatement(ShoalError):
    sqlstate = "26000"


class UndefinedPortal(ShoalError):
    sqlstate = "34000"


class SqlSyntaxError(ShoalError):
    sqlstate = "42601"


class InvalidName(ShoalError):
    sqlstate = "42602"


class NameTooLong(ShoalError):
    sqlstate = "42622"


class UndefinedTable(ShoalError):
    sqlstate = "42P01"


class UndefinedColumn(ShoalError):
    sqlstate = "42703"


class UndefinedFunction(ShoalError):
    """No function or operator of this name takes these types."""

    sqlstate = "42883"


class UndefinedObject(ShoalError):
    sqlstate = "42704"


class UndefinedParameter(ShoalError):
    sqlstate = "42P02"


class AmbiguousColumn(ShoalError):
    sqlstate = "42702"


class AmbiguousAlias(ShoalError):
    sqlstate = "42P09"


class DuplicateAlias(ShoalError):
    sqlstate = "42712"


class DuplicateColumn(ShoalError):
    sqlstate = "42701"


class DuplicateTable(ShoalError):
    sqlstate = "42P07"


class DuplicateObject(ShoalError):
    sqlstate = "42710"


class DuplicateFunction(ShoalError):
    sqlstate = "42723"


class DuplicateCursor(ShoalError):
    sqlstate = "42P03"


class DuplicateStatement(ShoalError):
    sqlstate = "42P05"


class DatatypeMismatch(ShoalError):
    sqlstate = "42804"


class CannotCoerce(ShoalError):
    sqlstate = "42846"


class IndeterminateType(ShoalError):
    sqlstate = "42P18"


class AmbiguousParameter(ShoalError):
    """One parameter, two types."""

    sqlstate = "42P08"


class GroupingError(ShoalError):
    sqlstate = "42803"


class WindowingError(ShoalError):
    sqlstate = "42P20"


class InvalidColumnReference(ShoalError):
    """A position in ORDER BY or GROUP BY that the select list doesn't have."""

    sqlstate = "42P10"


class InvalidTableDefinition(ShoalError):
    sqlstate = "42P16"


class InvalidObjectDefinition(ShoalError):
    sqlstate = "42P17"


class InsufficientPrivilege(ShoalError):
    sqlstate = "42501"


class WrongObjectType(ShoalError):
    sqlstate = "42809"


class InvalidGrantOperation(ShoalError):
    """There is no such privilege on such an object, or no such grantee for it."""

    sqlstate = "0LP01"


class DependentObjectsStillExist(ShoalError):
    sqlstate = "2BP01"


class StatementInvalidated(ShoalError):
    """adr/000: a table of the prepared statement changed, and the client asked to be told."""

    sqlstate = "42999"


# Class 53, 54, 55, 57, 58: resources and the outside


class DiskFull(ShoalError):
    sqlstate = "53100"


class OutOfMemory(ShoalError):
    sqlstate = "53200"


class ConfigurationLimitExceeded(ShoalError):
    """A limit that an operator can raise: rows, opcodes, statements, portals."""

    sqlstate = "53400"


class StatementTooComplex(ShoalError):
    sqlstate = "54001"


class TooManyColumns(ShoalError):
    sqlstate = "54011"


class ProgramLimitExceeded(ShoalError):
    sqlstate = "54000"


class ObjectNotInPrerequisiteState(ShoalError):
    sqlstate = "55000"


class ObjectInUse(ShoalError):
    sqlstate = "55006"


class QueryCanceled(ShoalError):
    sqlstate = "57014"


class IoError(ShoalError):
    """The disk or the file system failed. Nothing of the statement is kept."""

    sqlstate = "58030"


class DataCorrupted(ShoalError):
    """A page's checksum is wrong: named, never served."""

    sqlstate = "XX001"
