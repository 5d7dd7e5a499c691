"""The statements that are no queries: BEGIN, SET, SHOW, DEALLOCATE, EXPLAIN, CREATE, ALTER SYSTEM, …

Here: Commands, one method for each, and Answer, what they say.
Not here: queries and DML (session.py), what a transaction block answers (block.py), schema changes (ddl.py).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shoal.catalog.acl import acl_rows, loses_password, refuse_password
from shoal.catalog.apply import Catalog
from shoal.catalog.entries import Acl, RenameUser, SchemaChange
from shoal.catalog.rights import ADMIN_ID
from shoal.catalog.settings import alter_system
from shoal.errors import (
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidTextRepresentation,
    NotAcknowledged,
    OutcomeUnknown,
    QueryCanceled,
)
from shoal.node.block import warning
from shoal.node.catalog_log import DEADLINE_SECONDS, Decision
from shoal.node.execute import statement_facts
from shoal.node.portals import Portal
from shoal.pgwire.auth import SALT_BYTES, Method, make_secret
from shoal.pgwire.messages import NoticeResponse
from shoal.sql import ast
from shoal.sql.bind.acl import PASSWORD_METHOD, AclStatement, bind_acl
from shoal.sql.bind.schema_changes import SchemaStatement, bind_schema_change
from shoal.sql.explain import explain
from shoal.sql.local import compile_program
from shoal.storage.catalog_db import CatalogDb
from shoal.types.values import Stored

if TYPE_CHECKING:
    from shoal.node.executing import Executing
    from shoal.node.session import Session

_EXPEL_SECONDS: Final = 60.0
_EVERYWHERE_SECONDS: Final = 10.0  # for all instances to have a change of rights


@dataclass(frozen=True, slots=True)
class Answer:
    tag: str
    rows: Sequence[tuple[Stored, ...]] | None = None  # None: the statement gives none


class Commands:
    def __init__(self, session: Session, executing: Executing) -> None:
        self._session = session
        self._executing = executing

    def run(self, portal: Portal, statement: ast.Statement) -> Answer | Coroutine[Any, Any, Answer]:
        """The answer, or what will give it."""
        match statement:
            case ast.Begin():
                settings = self._session.settings
                read_only = settings.read_only if statement.read_only is None else statement.read_only
                self._session.notice(self._session.block.begin(read_only, settings.keep()))
                return Answer("BEGIN")
            case ast.Commit():
                block = self._session.block
                return self._end(block.commit, undo=block.status == "E")
            case ast.Rollback():
                return self._end(self._session.block.rollback, undo=True)
            case ast.Savepoint():
                self._session.block.savepoint(statement.name.text, self._session.settings.keep())
                return Answer("SAVEPOINT")
            case ast.ReleaseSavepoint():
                self._session.block.release(statement.name.text)
                return Answer("RELEASE")
            case ast.RollbackTo():
                kept = self._session.block.rollback_to(statement.name.text)
                self._report(self._session.settings.go_back(kept))
                return Answer("ROLLBACK")
            case ast.SetVariable():
                return self._set(statement)
            case ast.SetTransaction():
                return self._set_transaction(statement)
            case ast.Show():
                return self._show(statement)
            case ast.Reset():
                return self._reset(statement)
            case ast.Deallocate():
                if statement.name is None:
                    self._session.drop_statements()
                    return Answer("DEALLOCATE ALL")
                self._session.drop_statement(statement.name.text)
                return Answer("DEALLOCATE")
            case ast.Discard():
                return self._discard(statement)
            case ast.Explain():
                return self._explain(portal, statement)
            case ast.AlterSystem():
                return self._alter_system(statement)
            case ast.ExpelInstance():
                return self._expel(statement)
            case ast.AbortSchemaChange():
                return self._abort_schema_change(statement)
            case _ if isinstance(statement, ast.ACL):
                return self._change_rights(statement)
            case _ if isinstance(statement, ast.DDL):
                return self._change_schema(statement)
            case _:
                raise FeatureNotSupported(f"{type(statement).__name__} is not supported")

    # --- blocks and settings ---------------------------------------------------------------------

    def _end(self, end: Callable[[], tuple[str, NoticeResponse | None]], *, undo: bool) -> Answer:
        session = self._session
        begun_with = session.block.settings_at_rollback
        if begun_with is not None:
            session.close_portals()
            settings = session.settings
            self._report(settings.go_back(begun_with) if undo else settings.end_local())
        tag, notice = end()
        session.notice(notice)
        return Answer(tag)

    def _report(self, names: Iterable[str | None]) -> None:
        """Tells the client which settings have changed, of those that it follows."""
        for name in names:
            if name is not None:
                self._session.report(name)

    def _set(self, statement: ast.SetVariable) -> Answer:
        session = self._session
        value = ", ".join(statement.values) if statement.values else None
        if not statement.local:
            self._report([session.settings.set(statement.name.text, value)])
        elif session.block.status == "I":
            session.notice(warning("25P01", "SET LOCAL can only be used in transaction blocks"))
        else:
            self._report([session.settings.set_local(statement.name.text, value)])
        return Answer("SET")

    def _set_transaction(self, statement: ast.SetTransaction) -> Answer:
        if statement.read_only is not None:
            if statement.session:
                value = "on" if statement.read_only else "off"
                self._report([self._session.settings.set("default_transaction_read_only", value)])
            else:
                self._session.notice(self._session.block.set_read_only(statement.read_only))
        return Answer("SET")

    def _show(self, statement: ast.Show) -> Answer:
        settings = self._session.settings
        name = statement.name.text
        if name == "all":
            return Answer("SHOW", settings.all())
        if name == "transaction_read_only":
            return Answer("SHOW", [("on" if self._session.is_read_only else "off",)])
        return Answer("SHOW", [(settings.show(name)[1],)])

    def _reset(self, statement: ast.Reset) -> Answer:
        settings = self._session.settings
        name = statement.name
        self._report(settings.reset_all() if name is None else [settings.set(name.text, None)])
        return Answer("RESET")

    def _discard(self, statement: ast.Discard) -> Answer:
        """Portals are closed by the Sync that follows; there are no channels to leave and no plans to keep."""
        match statement.what:
            case "all":
                if self._session.block.status != "I":
                    raise FeatureNotSupported("DISCARD ALL cannot run inside a transaction block")
                self._session.drop_statements()
                self._report(self._session.settings.reset_all())
                return Answer("DISCARD ALL")
            case "plans":
                return Answer("DISCARD PLANS")
            case "portals":
                return Answer("CLOSE CURSOR ALL")
            case _:
                return Answer("UNLISTEN")

    # --- EXPLAIN ---------------------------------------------------------------------------------

    def _explain(self, portal: Portal, statement: ast.Explain) -> Answer:
        if statement.analyze:
            raise FeatureNotSupported("EXPLAIN ANALYZE is not supported yet", position=statement.at + 1)
        session, node = self._session, self._session.node
        bound = portal.prepared.bound
        assert bound is not None
        schema = node.catalog.schema
        lines = explain(
            bound,
            compile_program(bound, schema),
            schema,
            statement.facets,
            portal.values,
            facts=statement_facts(session.settings.zone, session.facts),
            query_plan=node.query_plan,
            fmt=statement.fmt,
        )
        return Answer("EXPLAIN", [(line,) for line in lines])

    # --- what changes the catalog ----------------------------------------------------------------

    async def _change_schema(self, statement: SchemaStatement) -> Answer:
        session, node = self._session, self._session.node
        user_id = session.user_id

        def change(catalog: Catalog) -> SchemaChange | None:
            permit = partial(catalog.rights.refuse, user_id)
            schema, next_id = catalog.schema, catalog.next_table_id
            return bind_schema_change(statement, schema, user_id, next_id, permit=permit)

        timeout = statement.wait.timeout
        seconds = float(timeout) if timeout is not None else node.cluster_settings.sql_ddl_timeout
        deadline = node.loop.time() + seconds
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                with self._executing.stoppable():
                    index = await node.schema_changes.carry_out(change, user_id)
        except TimeoutError:
            raise QueryCanceled("timeout", detail="The schema change has not begun.") from None
        except OutcomeUnknown as error:
            error.message = "timeout" if limit.expired() else self._executing.stopped().message
            raise
        if index is not None:
            session.wrote()
        if statement.wait.globally:
            # Also if there was nothing to do: that may be news to others.
            missing = await self._missing(node.log.applied if index is None else index, deadline)
            if missing is None:
                raise NotAcknowledged(
                    f"{self._executing.stopped().message}: the schema change is committed, and it was not waited for that"
                    " every instance has it"
                )
            # Here it is applied, however short the time was.
            own = node.cluster.instance
            missing = tuple(name for name in missing if own is None or name != own.name)
            if missing:
                raise NotAcknowledged(
                    f"the schema change is committed, and not acknowledged by all instances: {', '.join(missing)}",
                    detail="They were Online when it was committed, and have not answered.",
                    hint="Nothing is to be repeated. An instance has the change before it is Online again.",
                )
        return Answer(_tag(statement))

    async def _missing(self, index: int, deadline: float) -> tuple[str, ...] | None:
        """Who hasn't got the entry at the deadline, by name; None: nobody wants to wait any longer."""
        node = self._session.node
        waiting = node.loop.create_task(node.applied.everywhere(index, deadline))
        try:
            with self._executing.stoppable():
                return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.cancel()
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return None

    async def _abort_schema_change(self, statement: ast.AbortSchemaChange) -> Answer:
        self._admin_only("ALTER SYSTEM")
        await self._session.node.schema_changes.abort(statement.version)
        self._session.wrote()
        return Answer("ALTER SYSTEM")

    async def _alter_system(self, statement: ast.AlterSystem) -> Answer:
        self._admin_only("ALTER SYSTEM")
        value: object | None = statement.value
        kind = statement.value_kind
        if kind in (ast.LiteralKind.DECIMAL, ast.LiteralKind.DOUBLE) and isinstance(value, str):
            value = float(value)
        entry = alter_system(
            statement.name.text if statement.name is not None else None,
            value,
            statement.tier.text if statement.tier is not None else None,
            self._session.user_id,
        )
        try:
            with self._executing.stoppable():
                await self._session.node.log.propose(entry)
        except OutcomeUnknown as error:
            error.message = self._executing.stopped_by or error.message
            raise
        self._session.wrote()
        return Answer("ALTER SYSTEM")

    async def _expel(self, statement: ast.ExpelInstance) -> Answer:
        self._admin_only("ALTER SYSTEM")
        try:
            uuid.UUID(statement.uuid)
        except ValueError:
            raise InvalidTextRepresentation(
                f'invalid input syntax for type uuid: "{statement.uuid}"'
            ) from None
        seconds = float(statement.timeout) if statement.timeout is not None else _EXPEL_SECONDS
        try:
            with self._executing.stoppable():
                await self._session.node.cluster.expel(statement.uuid, force=statement.force, seconds=seconds)
        except asyncio.CancelledError:
            raise OutcomeUnknown(
                self._executing.stopped().message, detail="The instance may be expelled, now or soon."
            ) from None
        self._session.wrote()
        return Answer("ALTER SYSTEM")

    # --- users, roles, rights --------------------------------------------------------------------

    async def _change_rights(self, statement: AclStatement) -> Answer:
        """Returns when it has taken effect on every instance that is Online, or says where it has not: in a notice where
        somebody may do more now, and in an error where somebody may do less. Who takes something away must not believe
        that it is gone."""
        session, node = self._session, self._session.node
        loop, user_id = node.loop, session.user_id
        told: list[NoticeResponse] = []
        secret = await self._secret_of(statement)

        def decide(db: CatalogDb) -> Decision | None:
            told.clear()
            change = bind_acl(statement, db.catalog)
            if change is None:
                return None
            rows = acl_rows(db.catalog, change, user_id, secret)
            if (
                isinstance(change, RenameUser)
                and rows
                and loses_password(db.catalog.rights.users[change.user_id])
            ):
                told.append(NoticeResponse("NOTICE", "00000", "MD5 password cleared because of role rename"))
            return Decision(Acl(change, rows, user_id)) if rows else None

        timeout = statement.wait.timeout
        seconds = float(timeout) if timeout is not None else DEADLINE_SECONDS
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                with self._executing.stoppable():
                    index = await node.log.propose_after(decide, seconds=seconds)
        except TimeoutError:
            raise QueryCanceled("timeout", detail="Nothing was changed.") from None
        except OutcomeUnknown as error:
            error.message = "timeout" if limit.expired() else error.message
            raise
        if index is not None:
            session.wrote()
        for notice in told:
            session.notice(notice)
        if statement.wait.globally:
            # Also if there was nothing to do: whoever says it again, to be sure, is told the same.
            there = node.log.applied if index is None else index
            patience = seconds if timeout is not None else _EVERYWHERE_SECONDS * node.config.timing_scale
            missing = await self._missing(there, loop.time() + patience)
            if missing is None or missing:
                told_of = _not_everywhere(missing)
                if _takes_away(statement):
                    raise told_of
                session.notice(NoticeResponse("WARNING", "01000", told_of.message, told_of.detail))
        return Answer(_ACL_TAGS[type(statement)](statement))

    async def _secret_of(self, statement: AclStatement) -> str | None:
        """What is to be kept of the statement's password, if it has one."""
        if not isinstance(statement, ast.CreateUser | ast.AlterUserPassword):
            return None
        password, node = statement.password, self._session.node
        refuse_password(password.text, node.cluster_settings)
        method: Method = "md5" if password.method == "md5" else PASSWORD_METHOD
        salt = node.outside.chance.randbytes(SALT_BYTES)
        return await node.aside.run(make_secret, method, statement.user.text, password.text, salt)

    def _admin_only(self, command: str) -> None:
        if self._session.user_id != ADMIN_ID:
            raise InsufficientPrivilege(f"{command} is for admin only")


def _takes_away(statement: AclStatement) -> bool:
    """May somebody do less after it than before? With an old password, too."""
    if isinstance(statement, ast.AlterUserLogin):
        return not statement.login
    return isinstance(statement, ast.Revoke | ast.DropUser | ast.DropRole | ast.AlterUserPassword)


def _not_everywhere(missing: Sequence[str] | None) -> NotAcknowledged:
    """Of a change of rights."""
    if missing is None:
        return NotAcknowledged(
            "the change is committed, and it was not waited for that every instance knows of it"
        )
    return NotAcknowledged(
        f"the change is committed, and not acknowledged by all instances: {', '.join(missing)}",
        detail="They were Online when it was committed, and have not answered. Until they have caught up with the log they"
        " may act on the rights of before.",
        hint="The same statement, said again, changes nothing, and waits again.",
    )


def _membership(verb: str) -> Callable[[Any], str]:
    return lambda statement: f"{verb} ROLE" if isinstance(statement.what, ast.Name) else verb


def _always(tag: str) -> Callable[[Any], str]:
    return lambda statement: tag


# A user is a kind of role to PostgreSQL's clients.
_ACL_TAGS: Final[Mapping[type, Callable[[Any], str]]] = {
    **dict.fromkeys((ast.CreateUser, ast.CreateRole), _always("CREATE ROLE")),
    **dict.fromkeys((ast.AlterUserPassword, ast.AlterUserLogin, ast.RenameUser), _always("ALTER ROLE")),
    **dict.fromkeys((ast.DropUser, ast.DropRole), _always("DROP ROLE")),
    ast.Grant: _membership("GRANT"),
    ast.Revoke: _membership("REVOKE"),
}


def _tag(statement: SchemaStatement) -> str:
    match statement:
        case ast.CreateProcedure():
            return "CREATE PROCEDURE"
        case ast.RenameProcedure():
            return "ALTER PROCEDURE"
        case ast.DropProcedure():
            return "DROP PROCEDURE"
        case ast.CreateTable():
            return "CREATE TABLE"
        case ast.DropTable():
            return "DROP TABLE"
        case ast.AlterTable():
            return "ALTER TABLE"
        case ast.Truncate():
            return "TRUNCATE TABLE"
        case ast.CreateIndex():
            return "CREATE INDEX"
        case ast.DropIndex():
            return "DROP INDEX"
        case ast.RenameIndex():
            return "RENAME INDEX"
