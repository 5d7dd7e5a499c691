"""The transaction block of a session: BEGIN … COMMIT, told truthfully.

Here: Block, the status that ReadyForQuery shows and what BEGIN, COMMIT and ROLLBACK answer.
Not here yet: transactions. Statements inside a block apply at once, one by one. So a ROLLBACK after a
write, or a COMMIT that PostgreSQL would turn into one, can't be done: it is refused, and says that the
writes stand. Claiming success would be a lie that an application acts on.
"""

from __future__ import annotations

from shoal.errors import (
    FeatureNotSupported,
    InFailedTransaction,
    InvalidTransactionState,
    ReadOnlyTransaction,
)
from shoal.pgwire.messages import NoticeResponse, TransactionStatus

_STAND = "each of them was applied at once, and none is undone"


class Block:
    __slots__ = ("is_read_only", "status", "wrote")

    def __init__(self) -> None:
        self.status: TransactionStatus = "I"
        self.wrote = False  # a statement of this block has written, or may have
        self.is_read_only = False

    def enter(self, *, writes: str | None, session_read_only: bool) -> None:
        """A statement other than COMMIT or ROLLBACK begins. `writes` names the command that writes."""
        if self.status == "E":
            raise InFailedTransaction
        read_only = self.is_read_only if self.status == "T" else session_read_only
        if writes is not None and read_only:
            raise ReadOnlyTransaction(f"cannot execute {writes} in a read-only transaction")

    def begin(self, read_only: bool) -> NoticeResponse | None:
        if self.status != "I":
            return _warning("25001", "there is already a transaction in progress")
        self.status, self.wrote, self.is_read_only = "T", False, read_only
        return None

    def set_read_only(self, read_only: bool) -> NoticeResponse | None:
        """SET TRANSACTION READ ONLY | READ WRITE."""
        if self.status == "I":
            return _warning("25P01", "SET TRANSACTION can only be used in transaction blocks")
        if self.is_read_only and not read_only and self.wrote:
            raise InvalidTransactionState("transaction read-write mode must be set before any query")
        self.is_read_only = read_only
        return None

    def fail(self) -> None:
        if self.status == "T":
            self.status = "E"

    def commit(self) -> tuple[str, NoticeResponse | None]:
        """The command tag of the answer."""
        if self.status == "I":
            return "COMMIT", _warning("25P01", "there is no transaction in progress")
        failed, wrote = self.status == "E", self.wrote
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
            return "ROLLBACK", _warning("25P01", "there is no transaction in progress")
        wrote = self.wrote
        self._leave()
        if wrote:
            raise FeatureNotSupported(
                "ROLLBACK cannot undo: the writes of this transaction block stand",
                detail=f"Shoal has no multi-statement transactions yet: {_STAND}.",
            )
        return "ROLLBACK", None

    def _leave(self) -> None:
        self.status, self.wrote, self.is_read_only = "I", False, False


def _warning(sqlstate: str, message: str) -> NoticeResponse:
    return NoticeResponse("WARNING", sqlstate, message)
