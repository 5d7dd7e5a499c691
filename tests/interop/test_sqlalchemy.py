"""SQLAlchemy Core 2 with its dialect postgresql+psycopg."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from tests.cluster import Instance

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def engine(instance: Instance) -> Iterator[sa.Engine]:
    engine = sa.create_engine(instance.url().replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


@pytest.fixture
def users(engine: sa.Engine) -> sa.Table:
    """A table of its own for each test, made by SQLAlchemy."""
    metadata = sa.MetaData()
    table = sa.Table(
        f"users_{next(_numbers)}",
        metadata,
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("email", sa.String(100)),
        sa.Column("balance", sa.Numeric(20, 2)),
        sa.Column("height", sa.Double),
        sa.Column("active", sa.Boolean),
        sa.Column("token", sa.Uuid),
        sa.Column("seen", sa.DateTime(timezone=True)),
        sa.Column("tags", pg.ARRAY(sa.Text)),
        sa.Column("about", sa.JSON),
    )
    # checkfirst asks pg_catalog whether the table is there.
    metadata.create_all(engine, checkfirst=False)
    return table


ADA = {
    "id": 1,
    "name": "Ada",
    "email": "ada@example.org",
    "balance": Decimal("10.50"),
    "height": 1.65,
    "active": True,
    "token": uuid.UUID(int=7),
    "seen": datetime(2024, 7, 1, 10, 30, tzinfo=UTC),
    "tags": ["x", "y z"],
    "about": {"born": 1815},
}


def test_connecting(engine: sa.Engine) -> None:
    with engine.connect() as conn:
        assert conn.scalar(sa.text("SELECT 1")) == 1
        assert engine.dialect.server_version_info == (15, 0)
        assert engine.dialect.default_schema_name == "public"
        assert conn.get_isolation_level() == "READ COMMITTED"
        assert conn.exec_driver_sql("SELECT current_schema()").scalar() == "public"


def test_every_type(engine: sa.Engine, users: sa.Table) -> None:
    with engine.begin() as conn:
        conn.execute(users.insert(), ADA)
    with engine.connect() as conn:
        assert dict(conn.execute(users.select()).one()._mapping) == ADA
        for column in users.columns:
            if column.name not in ("tags", "about"):
                found = conn.scalar(sa.select(users.c.id).where(column == ADA[column.name]))
                assert found == 1, column


def test_insert_update_delete(engine: sa.Engine, users: sa.Table) -> None:
    with engine.begin() as conn:
        conn.execute(users.insert(), [{"id": i, "name": f"user {i}"} for i in range(100)])
        result = conn.execute(users.update().where(users.c.id >= 90).values(name=users.c.name + "!"))
        assert result.rowcount == 10
        result = conn.execute(users.delete().where(users.c.id.in_([1, 2, 3, 1000])))
        assert result.rowcount == 3
    with engine.connect() as conn:
        query = sa.select(sa.func.count()).where(users.c.name.like("%!"))
        assert conn.scalar(query.select_from(users)) == 10
        assert conn.scalar(sa.select(sa.func.count()).select_from(users)) == 97


def test_returning(engine: sa.Engine, users: sa.Table) -> None:
    with engine.begin() as conn:
        inserted = conn.execute(
            users.insert().returning(users.c.id, sa.func.upper(users.c.name).label("upper")),
            [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}],
        )
        assert sorted(map(tuple, inserted)) == [(1, "ONE"), (2, "TWO")]
        updated = conn.execute(
            users.update().where(users.c.id == 1).values(name="uno").returning(users.c.name)
        )
        assert updated.scalars().all() == ["uno"]
        deleted = conn.execute(users.delete().where(users.c.id == 2).returning(users.c.id))
        assert deleted.scalars().all() == [2]


def test_queries(engine: sa.Engine, users: sa.Table) -> None:
    with engine.begin() as conn:
        conn.execute(
            users.insert(),
            [{"id": i, "name": "even" if i % 2 == 0 else "odd", "balance": i} for i in range(10)],
        )
    other = users.alias("other")
    cte = (
        sa.select(users.c.name, sa.func.sum(users.c.balance).label("total"))
        .group_by(users.c.name)
        .cte("totals")
    )
    with engine.connect() as conn:
        totals = conn.execute(sa.select(cte.c.name, cte.c.total).order_by(cte.c.name)).all()
        assert list(map(tuple, totals)) == [("even", 20), ("odd", 25)]
        joined = (
            sa.select(users.c.id, other.c.id)
            .join(other, users.c.id + 1 == other.c.id)
            .order_by(users.c.id.desc())
            .limit(2)
            .offset(1)
        )
        assert list(map(tuple, conn.execute(joined))) == [(7, 8), (6, 7)]
        case = sa.case((users.c.id < 5, "low"), else_="high")
        grouped = sa.select(case.label("half"), sa.func.count()).group_by(case).order_by(case)
        assert list(map(tuple, conn.execute(grouped))) == [("high", 5), ("low", 5)]
        exists = (
            sa.select(users.c.id).where(sa.exists().where(other.c.id == users.c.id * 2)).order_by(users.c.id)
        )
        assert conn.execute(exists).scalars().all() == [0, 1, 2, 3, 4]
        union = sa.union_all(sa.select(sa.literal(1).label("n")), sa.select(sa.literal(2)))
        assert sorted(conn.execute(union).scalars()) == [1, 2]


def test_on_conflict(engine: sa.Engine, users: sa.Table) -> None:
    row = {"id": 1, "name": "one"}
    insert = pg.insert(users)
    with engine.begin() as conn:
        conn.execute(insert, row)
        conn.execute(insert.on_conflict_do_nothing(), {"id": 1, "name": "uno"})
        assert conn.scalar(sa.select(users.c.name)) == "one"
        conn.execute(insert.on_conflict_do_update(index_elements=["id"], set_={"name": "uno"}), row)
        assert conn.execute(sa.select(users.c.id, users.c.name)).all() == [(1, "uno")]


def test_errors_have_their_class(engine: sa.Engine, users: sa.Table) -> None:
    with engine.begin() as conn:
        conn.execute(users.insert(), {"id": 1, "name": "one"})
    cases: list[tuple[sa.Executable, type[Exception]]] = [
        (users.insert().values(id=1, name="again"), sa.exc.IntegrityError),
        (users.insert().values(id=2, name=None), sa.exc.IntegrityError),
        (sa.text("SELECT 1 / 0"), sa.exc.DataError),
        (sa.text("SELECT nothing"), sa.exc.ProgrammingError),
        (sa.text("COPY x FROM STDIN"), sa.exc.NotSupportedError),
    ]
    for statement, kind in cases:
        with engine.connect() as conn, pytest.raises(kind):
            conn.execute(statement)
    with engine.connect() as conn:
        assert conn.scalar(sa.select(sa.func.count()).select_from(users)) == 1


def test_rollback_after_a_write(engine: sa.Engine, users: sa.Table) -> None:
    with engine.connect() as conn:
        conn.execute(users.insert(), {"id": 1, "name": "stays"})
        with pytest.raises(sa.exc.NotSupportedError, match="stand"):
            conn.rollback()
        assert conn.scalar(sa.select(sa.func.count()).select_from(users)) == 1


def test_autocommit(engine: sa.Engine, users: sa.Table) -> None:
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as conn:
        conn.execute(users.insert(), {"id": 1, "name": "one"})
        assert conn.scalar(sa.select(users.c.name)) == "one"


def test_streams(engine: sa.Engine, users: sa.Table) -> None:
    """stream_results makes a named cursor, which needs DECLARE: refused; yield_per over a plain one works."""
    with engine.connect() as conn, pytest.raises(sa.exc.NotSupportedError, match="DECLARE"):
        conn.execution_options(stream_results=True).execute(users.select())


def test_dropping(engine: sa.Engine, users: sa.Table) -> None:
    index = sa.Index(f"{users.name}_name", users.c.name)
    index.create(engine, checkfirst=False)
    index.drop(engine, checkfirst=False)
    users.drop(engine, checkfirst=False)
    with engine.connect() as conn, pytest.raises(sa.exc.ProgrammingError, match="not found"):
        conn.execute(users.select())


def test_reflection_says_what_is_missing(engine: sa.Engine, users: sa.Table) -> None:
    """It reads pg_catalog, which is not there yet. The system tables tell the same to who asks them."""
    with pytest.raises(sa.exc.DBAPIError, match="pg_catalog"):
        sa.inspect(engine).get_table_names()
    with pytest.raises(sa.exc.DBAPIError, match="pg_catalog"):
        sa.inspect(engine).has_table(users.name)
    with engine.connect() as conn:
        query = sa.text("SELECT name FROM _pico_table WHERE name = :name")
        assert conn.scalar(query, {"name": users.name}) == users.name


def test_asynchronous_engine(instance: Instance) -> None:
    import asyncio

    pytest.importorskip("greenlet", reason="SQLAlchemy's asyncio needs greenlet")
    from sqlalchemy.ext.asyncio import create_async_engine

    async def main() -> None:
        engine = create_async_engine(instance.url().replace("postgresql:", "postgresql+psycopg:"))
        async with engine.connect() as conn:
            assert (await conn.execute(sa.text("SELECT count(*) FROM digits"))).scalar() == 10
        await engine.dispose()

    asyncio.run(main())
