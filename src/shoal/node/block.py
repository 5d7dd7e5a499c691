"""The transaction block of a session: BEGIN … COMMIT, told truthfully.

Here: Block, the status that ReadyForQuery shows and what BEGIN, COMMIT and ROLLBACK answer; the settings
that a block goes back to.
Not here yet: transactions. Statements inside a block apply at once, one by one. So a ROLLBACK after a
write, or a COMMIT that PostgreSQL would turn into one, can't be done: it is refused, and says that the
writes stand. Claiming success would be a lie that an application acts on.
"""

from __future__ import annotations

from shoal.errors import (
    FeatureNotSupported,
    InFailedTransaction,
    InvalidSavepoint,
    InvalidTransactionState,
    NoActiveTransaction,
    ReadOnlyTransaction,
)
from shoal.node.settings import Kept
from shoal.pgwire.messages import NoticeResponse, TransactionStatus

_STAND = "each of them was applied at once, and none is undone"


class Block:
    __slots__ = ("_begun_with", "_savepoints", "_writes", "is_read_only", "status")

    def __init__(self) -> None:
        self.status: TransactionStatus = "I"
        self._writes = 0  # statements of this block that have written, or may have
        # Name, how many writes there were before it, the settings then.
        self._savepoints: list[tuple[str, int, Kept]] = []
        self._begun_with: Kept | None = None
        self.is_read_only = False

    def enter(self, *, writes: str | None, session_read_only: bool) -> None:
        """A statement other than COMMIT or ROLLBACK begins. `writes` names the command that writes."""
        if self.status == "E":
            raise InFailedTransaction
        read_only = self.is_read_only if self.status == "T" else session_read_only
        if writes is not None and read_only:
            raise ReadOnlyTransaction(f"cannot execute {writes} in a read-only transaction")

    def begin(self, read_only: bool, settings: Kept) -> NoticeResponse | None:
        if self.status != "I":
            return warning("25001", "there is already a transaction in progress")
        self._leave()
        self.status, self.is_read_only, self._begun_with = "T", read_only, settings
        return None

    @property
    def settings_at_rollback(self) -> Kept | None:
        """What was set since BEGIN goes with the block, if it is rolled back."""
        return self._begun_with

    def set_read_only(self, read_only: bool) -> NoticeResponse | None:
        """SET TRANSACTION READ ONLY | READ WRITE."""
        if self.status == "I":
            return warning("25P01", "SET TRANSACTION can only be used in transaction blocks")
        if self.is_read_only and not read_only and self._writes:
            raise InvalidTransactionState("transaction read-write mode must be set before any query")
        self.is_read_only = read_only
        return None

    def note_write(self) -> None:
        """A statement has written, or may have."""
        self._writes += 1

    def fail(self) -> None:
        if self.status == "T":
            self.status = "E"

    def commit(self) -> tuple[str, NoticeResponse | None]:
        """The command tag of the answer."""
        if self.status == "I":
            return "COMMIT", warning("25P01", "there is no transaction in progress")
        failed, wrote = self.status == "E", self._writes > 0
        self._leave()
        if not failed:
            return "COMMIT", None
        if wrote:
            raise FeatureNotSupported(
                "COMMIT of a failed transaction block cannot roll back: the writes before the error stand",
                detail=f"Shoal has no multi-statement transactions yet: {_STAND}.",
            )
        return "ROLLBACK", None

    def rollback(self) -> tuple[str, NoticeResponse | None]:
        if self.status == "I":
            return "ROLLBACK", warning("25P01", "there is no transaction in progress")
        wrote = self._writes > 0
        self._leave()
        if wrote:
            raise FeatureNotSupported(
                "ROLLBACK cannot undo: the writes of this transaction block stand",
                detail=f"Shoal has no multi-statement transactions yet: {_STAND}.",
            )
        return "ROLLBACK", None

    # A savepoint that nothing was written after is one that can be gone back to: drivers make them around
    # questions of their own.

    def savepoint(self, name: str, settings: Kept) -> None:
        self._require_block("SAVEPOINT")
        self._savepoints.append((name, self._writes, settings))

    def release(self, name: str) -> None:
        self._require_block("RELEASE SAVEPOINT")
        del self._savepoints[self._find(name) :]

    def rollback_to(self, name: str) -> Kept:
        """The settings that it goes back to."""
        if self.status == "I":
            raise NoActiveTransaction("ROLLBACK TO SAVEPOINT can only be used in transaction blocks")
        at = self._find(name)
        _, writes, settings = self._savepoints[at]
        if self._writes > writes:
            raise FeatureNotSupported(
                f"ROLLBACK TO SAVEPOINT cannot undo: the writes since savepoint {name} stand",
                detail=f"Shoal has no multi-statement transactions yet: {_STAND}.",
            )
        del self._savepoints[at + 1 :]
        self.status = "T"
        return settings

    def _require_block(self, command: str) -> None:
        if self.status == "I":
            raise NoActiveTransaction(f"{command} can only be used in transaction blocks")

    def _find(self, name: str) -> int:
        """The last one of that name: a later one hides an earlier one."""
        for at in reversed(range(len(self._savepoints))):
            if self._savepoints[at][0] == name:
                return at
        raise InvalidSavepoint(f'savepoint "{name}" does not exist')

    def _leave(self) -> None:
        self.status, self._writes, self.is_read_only, self._begun_with = "I", 0, False, None
        self._savepoints.clear()


def warning(sqlstate: str, message: str) -> NoticeResponse:
    return NoticeResponse("WARNING", sqlstate, message)
