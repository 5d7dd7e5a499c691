"""RPC between honest ends: calls, errors, deadlines, links that break and come back."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from shoal.errors import (
    Fault,
    FeatureNotSupported,
    InsufficientPrivilege,
    InternalError,
    ProgramLimitExceeded,
    QueryCanceled,
    RetryableError,
    UniqueViolation,
)
from shoal.node.rpc import Caller, LinkEvent, NotSent, Rejected, ReplyLost, Rpc, TimedOut
from shoal.node.rpc.connection import Timing
from shoal.node.rpc.dialled import WAITING_BYTES_MAX
from shoal.node.rpc.served import RUNNING_MAX
from shoal.protocol.envelope import Ping, Pong
from shoal.protocol.frames import FRAME_BYTES_MAX
from tests.unit.node.rpc_ground import SECRET, Ground, Told, Wire, address_of, listener, run, who


class Add(msgspec.Struct, frozen=True, array_like=True, tag="add"):
    left: int
    right: int
    seconds: float = 0.0


class Sum(msgspec.Struct, frozen=True, array_like=True, tag="sum"):
    total: int


class Blob(msgspec.Struct, frozen=True, array_like=True, tag="blob"):
    data: bytes


def add_at_once(caller: Caller, asked: Add, deadline: float) -> Sum:
    return Sum(asked.left + asked.right)


async def add_later(caller: Caller, asked: Add, deadline: float) -> Sum:
    await asyncio.sleep(asked.seconds)
    return Sum(asked.left + asked.right)


def never(arrived: list[int] | None = None) -> Callable[[Caller, Add, float], Awaitable[Sum]]:
    """A handler that waits for its end; it notes what came, and as 0 that it was ended."""
    seen = arrived if arrived is not None else []

    async def wait(caller: Caller, asked: Add, deadline: float) -> Sum:
        seen.append(asked.left)
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(0)
        raise AssertionError

    return wait


# --- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("handle", [add_at_once, add_later])
def test_a_call(handle: Callable[[Caller, Add, float], Sum | Awaitable[Sum]]) -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2", introduction=who("i2", 2))
        server.handle(Add, handle)
        dialler = ground.end("i1")
        assert await dialler.call(at, Add(2, 3), Sum, 5) == Sum(5)
        assert dialler.is_up(at)
        assert dialler.peer(at) == who("i2", 2)

    run(scenario)


def test_a_handler_may_return_a_future() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        waiting: list[asyncio.Future[Sum]] = []

        def promise(caller: Caller, asked: Add, deadline: float) -> asyncio.Future[Sum]:
            waiting.append(ground.loop.create_future())
            return waiting[-1]

        server.handle(Add, promise)
        call = asyncio.create_task(ground.end("i1").call(at, Add(1, 1), Sum, 5))
        await ground.until(lambda: waiting)
        waiting[0].set_result(Sum(2))
        assert await call == Sum(2)

    run(scenario)


def test_the_handler_knows_who_asks_and_for_how_long() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        seen: list[tuple[Caller, float]] = []

        def note(caller: Caller, asked: Add, deadline: float) -> Sum:
            seen.append((caller, deadline - ground.loop.time()))
            return Sum(0)

        server.handle(Add, note)
        await ground.end("i1", introduction=who("i1", 7)).call(at, Add(0, 0), Sum, 20)
        ((caller, left),) = seen
        assert (caller.role, caller.introduction, caller.user) == ("peer", who("i1", 7), "")
        assert caller.address.startswith("127.0.0.1:")
        assert 15 < left <= 20.1

    run(scenario)


def test_answers_come_in_any_order_on_one_connection() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        cut = await ground.cut(at)
        server.handle(Add, add_later)
        dialler = ground.end("i1")
        order: list[int] = []

        async def ask(number: int, seconds: float) -> None:
            assert await dialler.call(cut.address, Add(number, 0, seconds), Sum, 20) == Sum(number)
            order.append(number)

        await asyncio.gather(*(ask(number, 0.3 - number * 0.1) for number in range(4)))
        assert order == [3, 2, 1, 0]
        assert cut.connections == 1

    run(scenario)


def test_many_calls_at_once() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        server.handle(Add, add_later)
        dialler = ground.end("i1")
        chance = random.Random(5)
        asked = [Add(number, 1, chance.random() * 0.05) for number in range(RUNNING_MAX // 2)]
        sums = await asyncio.gather(*(dialler.call(at, add, Sum, 30) for add in asked))
        assert [answer.total for answer in sums] == [add.left + 1 for add in asked]

    run(scenario)


def test_large_messages_both_ways_among_small_ones() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        server.handle(Blob, lambda caller, blob, deadline: Blob(blob.data[::-1]))
        dialler = ground.end("i1")
        datas = [random.Random(size).randbytes(size) for size in (5_000_000, 1, 3_000_000, 70_000)]
        answers = await asyncio.gather(*(dialler.call(at, Blob(data), Blob, 30) for data in datas))
        assert [answer.data for answer in answers] == [data[::-1] for data in datas]

    run(scenario)


def test_what_is_longer_than_a_frame_is_refused_and_the_connection_goes_on() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        server.handle(Blob, lambda caller, blob, deadline: Blob(bytes(FRAME_BYTES_MAX)))
        dialler, told = ground.end("i1"), Told()
        dialler.on_link(told)
        with pytest.raises(ProgramLimitExceeded):
            await dialler.call(at, Blob(b""), Blob, 30)
        with pytest.raises(ProgramLimitExceeded):
            await dialler.call(at, Blob(bytes(FRAME_BYTES_MAX)), Blob, 30)
        assert await dialler.call(at, Ping(b"x"), Pong, 5) == Pong(b"x")
        assert told.of(at) == [LinkEvent.UP]

    run(scenario)


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [False, True])
def test_an_error_is_the_callers(later: bool) -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")

        def refuse(caller: Caller, asked: Add, deadline: float) -> Sum | Awaitable[Sum]:
            error = UniqueViolation(
                "there already", detail="Key (a)=(1)", hint="another", extra={"leader": 3}
            )

            async def wait() -> Sum:
                await asyncio.sleep(0)
                raise error

            if later:
                return wait()
            raise error

        server.handle(Add, refuse)
        with pytest.raises(UniqueViolation, match="there already") as raised:
            await ground.end("i1").call(at, Add(1, 1), Sum, 5)
        assert (raised.value.detail, raised.value.hint) == ("Key (a)=(1)", "another")
        assert raised.value.extra == {"leader": 3}

    run(scenario)


@pytest.mark.parametrize("later", [False, True])
def test_a_bug_in_a_handler_is_logged_and_told_without_its_text(later: bool) -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")

        def divide(caller: Caller, asked: Add, deadline: float) -> Sum | Awaitable[Sum]:
            async def wait() -> Sum:
                await asyncio.sleep(0)
                return Sum(asked.left // asked.right)

            return wait() if later else Sum(asked.left // asked.right)

        server.handle(Add, divide)
        dialler = ground.end("i1")
        with pytest.raises(InternalError) as raised:
            await dialler.call(at, Add(1, 0), Sum, 5)
        assert "division" not in raised.value.message
        assert await dialler.call(at, Add(4, 2), Sum, 5) == Sum(2)

    run(scenario, bugs=["a bug met by a request of peer 'i1'"])


def test_handlers_that_return_nonsense_harm_nobody() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        server.handle(Add, lambda caller, asked, deadline: None)  # type: ignore[arg-type,return-value]
        server.handle(Blob, lambda caller, asked, deadline: Blob(object()))  # type: ignore[arg-type]
        dialler = ground.end("i1")
        for nonsense in (Add(1, 1), Blob(b"")):
            with pytest.raises(InternalError):
                await dialler.call(at, nonsense, Sum, 5)
        assert await dialler.call(at, Ping(), Pong, 5) == Pong()

    run(scenario, bugs=["a bug met by a request"] * 2)


def test_a_fault_in_a_handler_reaches_the_instance() -> None:
    async def scenario(ground: Ground) -> None:
        faults: list[Fault] = []
        server, at = await ground.listening("i2", on_fault=faults.append)

        def break_down(caller: Caller, asked: Add, deadline: float) -> Sum:
            raise Fault("the log has a hole")

        server.handle(Add, break_down)
        with pytest.raises(InternalError):
            await ground.end("i1").call(at, Add(1, 1), Sum, 5)
        assert [str(fault) for fault in faults] == ["the log has a hole"]

    run(scenario, bugs=["met while answering: the log has a hole"])


def test_a_request_that_the_other_side_does_not_know() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2")
        dialler = ground.end("i1")
        with pytest.raises(FeatureNotSupported, match="request 'add' is unknown here"):
            await dialler.call(at, Add(1, 1), Sum, 5)
        assert await dialler.call(at, Ping(), Pong, 5) == Pong()

    run(scenario)


def test_an_answer_that_is_none() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2")
        dialler = ground.end("i1")
        with pytest.raises(ReplyLost, match="can't be read"):
            await dialler.call(at, Ping(), Sum, 5)
        assert await dialler.call(at, Ping(), Pong, 5) == Pong()

    run(scenario)


# --- deadlines -----------------------------------------------------------------------------------


def test_a_call_times_out_and_its_handler_is_ended() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        seen: list[int] = []
        server.handle(Add, never(seen))
        dialler, told = ground.end("i1", timing=Timing(probe_seconds=0.3)), Told()
        dialler.on_link(told)
        before = ground.loop.time()
        with pytest.raises(TimedOut):
            await dialler.call(at, Add(8, 0), Sum, 0.2)
        assert ground.loop.time() - before >= 0.19
        await ground.until(lambda: seen == [8, 0])
        # The other side is alive, so the connection stays, probed or not.
        await asyncio.sleep(0.5)
        assert await dialler.call(at, Ping(), Pong, 5) == Pong()
        assert told.of(at) == [LinkEvent.UP]

    run(scenario)


def test_a_link_on_which_nobody_is_asked_anything_is_looked_after() -> None:
    """One-way messages have no answers: without a look nobody would find out that they go nowhere."""

    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2")
        cut = await ground.cut(at)
        dialler, told = ground.end("i1", timing=Timing(quiet_seconds=0.2, probe_seconds=0.2)), Told()
        dialler.on_link(told)
        dialler.dial(cut.address)
        await ground.until(lambda: dialler.is_up(cut.address))
        await asyncio.sleep(0.8)  # several looks: the other side answers
        assert told.of(cut.address) == [LinkEvent.UP]
        cut.freeze()
        assert dialler.send(cut.address, b"into the void")
        await ground.until(lambda: told.of(cut.address)[:2] == [LinkEvent.UP, LinkEvent.LOST])
        cut.reset()
        cut.thaw()
        await ground.until(lambda: dialler.is_up(cut.address))

    run(scenario)


def test_each_call_has_its_own_deadline() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        server.handle(Add, never())
        dialler = ground.end("i1")
        await dialler.call(at, Ping(), Pong, 5)
        patient = asyncio.create_task(dialler.call(at, Add(0, 0), Sum, 600))

        async def ask(timeout: float) -> None:
            before = ground.loop.time()
            with pytest.raises(TimedOut):
                await dialler.call(at, Add(0, 0), Sum, timeout)
            assert ground.loop.time() - before >= timeout - 0.002

        await asyncio.gather(*map(ask, (0.4, 0.1, 0.3, 0.2)))
        assert not patient.done()
        patient.cancel()

    run(scenario)


def test_a_late_answer_is_for_nobody() -> None:
    async def scenario(ground: Ground) -> None:
        released = asyncio.Event()

        async def serve(wire: Wire) -> None:
            await wire.admit("i2")
            _, first, _, _ = await wire.heard()
            await released.wait()
            wire.put(1, first, ["pong", b"late"])
            wire.put(1, first, ["pong", b"and again"])
            while True:
                _, request, _, payload = await wire.heard()
                wire.put(1, request, ["pong", payload[1]])

        at = await ground.pretending(serve)
        dialler, told = ground.end("i1", timing=Timing(probe_seconds=20)), Told()
        dialler.on_link(told)
        with pytest.raises(TimedOut):
            await dialler.call(at, Ping(b"a"), Pong, 0.2)
        released.set()
        assert await dialler.call(at, Ping(b"b"), Pong, 5) == Pong(b"b")
        assert told.of(at) == [LinkEvent.UP]

    run(scenario)


def test_a_callers_own_cancel() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        server.handle(Add, add_later)
        dialler = ground.end("i1")
        await dialler.call(at, Ping(), Pong, 5)
        call = asyncio.create_task(dialler.call(at, Add(1, 1, 0.1), Sum, 5))
        await asyncio.sleep(0.02)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await dialler.call(at, Add(2, 2, 0.2), Sum, 5) == Sum(4)  # after that answer has come

    run(scenario)


def test_a_handler_that_somebody_else_cancels() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")

        async def give_up(caller: Caller, asked: Add, deadline: float) -> Sum:
            raise asyncio.CancelledError

        server.handle(Add, give_up)
        with pytest.raises(QueryCanceled):
            await ground.end("i1").call(at, Add(1, 1), Sum, 5)

    run(scenario)


# --- one-way messages ----------------------------------------------------------------------------


def test_one_way_messages_arrive_in_order() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        received: list[bytes] = []
        server.on_one_way(lambda caller, payload: received.append(payload))
        dialler = ground.end("i1")
        assert not dialler.send(at, b"dropped: there is no connection yet")
        await ground.until(lambda: dialler.is_up(at))
        sent = [b"%d" % number for number in range(1000)]
        assert all(dialler.send(at, payload) for payload in sent)
        await ground.until(lambda: len(received) == len(sent))
        assert received == sent

    run(scenario)


def test_a_bug_met_by_a_one_way_message_ends_nothing() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        received: list[int] = []
        server.on_one_way(lambda caller, payload: received.append(1 // len(payload)))
        dialler = ground.end("i1")
        await dialler.call(at, Ping(), Pong, 5)
        dialler.send(at, b"")
        dialler.send(at, b"x")
        await ground.until(lambda: received == [1])

    run(scenario, bugs=["a bug met by a one-way message of peer 'i1'"])


# --- links ---------------------------------------------------------------------------------------


def test_nobody_listens() -> None:
    async def scenario(ground: Ground) -> None:
        with listener() as bound:
            at = address_of(bound)
        dialler, told = ground.end("i1"), Told()
        dialler.on_link(told)
        with pytest.raises(NotSent, match="nobody listens there"):
            await dialler.call(at, Ping(), Pong, 5)
        assert told.of(at) == [LinkEvent.REFUSED]
        assert dialler.trouble(at) == "nobody listens there"

    run(scenario)


class _Patient(random.SystemRandom):
    """Draws the longest pauses."""

    def random(self) -> float:
        return 1.0


def test_dials_become_slower_and_calls_wait_for_the_next() -> None:
    async def scenario(ground: Ground) -> None:
        with listener() as bound:
            at = address_of(bound)
        timing = Timing(backoff_seconds=0.02, backoff_seconds_max=0.1)
        dialler = ground.end("i1", timing=timing, chance=_Patient())
        times: list[float] = []
        dialler.on_link(lambda address, event: times.append(ground.loop.time()))
        dialler.dial(at)
        await ground.until(lambda: len(times) >= 7)
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        for pause, least in zip(pauses, (0.02, 0.04, 0.08, 0.1, 0.1, 0.1), strict=False):
            assert pause >= least * 0.95
        before = len(times)
        for _ in range(5):  # one call, one dial: asking at once again makes no storm
            with pytest.raises(NotSent):
                await dialler.call(at, Ping(), Pong, 5)
        assert len(times) - before == 5

    run(scenario)


def test_an_instance_that_comes_up_later_is_found() -> None:
    async def scenario(ground: Ground) -> None:
        with listener() as bound:
            at = address_of(bound)
        dialler, told = ground.end("i1"), Told()
        dialler.on_link(told)
        dialler.dial(at)
        await ground.until(lambda: LinkEvent.REFUSED in told.of(at))
        await ground.listening("i2", port=int(at.rpartition(":")[2]))
        await ground.until(lambda: dialler.is_up(at))
        assert set(told.of(at)) == {LinkEvent.REFUSED, LinkEvent.UP}
        assert dialler.trouble(at) == ""

    run(scenario)


def test_the_other_side_stops_with_calls_in_flight() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        seen: list[int] = []
        server.handle(Add, never(seen))
        dialler, told = ground.end("i1"), Told()
        dialler.on_link(told)
        calls = [asyncio.create_task(dialler.call(at, Add(number, 0), Sum, 20)) for number in (1, 2)]
        await ground.until(lambda: len(seen) == 2)
        await server.close()
        for call in calls:
            with pytest.raises(ReplyLost):
                await call
        await ground.until(lambda: seen == [1, 2, 0, 0])
        await ground.until(lambda: LinkEvent.REFUSED in told.of(at))
        assert told.of(at)[:3] == [LinkEvent.UP, LinkEvent.LOST, LinkEvent.REFUSED]
        # And back on the same port.
        server, again = await ground.listening("i2", port=int(at.rpartition(":")[2]))
        assert again == at
        server.handle(Add, add_at_once)
        await ground.until(lambda: dialler.is_up(at))
        assert await dialler.call(at, Add(1, 2), Sum, 5) == Sum(3)

    run(scenario)


def test_a_steady_link_that_breaks_dials_again_at_once() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2")
        cut = await ground.cut(at)
        dialler, told = ground.end("i1", timing=Timing(backoff_seconds=30, backoff_seconds_max=30)), Told()
        dialler.on_link(told)
        await dialler.call(cut.address, Ping(), Pong, 5)
        cut.reset()
        await ground.until(lambda: told.of(cut.address).count(LinkEvent.UP) == 2)
        # Broken at once again, it waits: somebody who takes us in and throws us out isn't asked without end.
        cut.reset()
        await ground.until(lambda: told.of(cut.address).count(LinkEvent.LOST) == 2)
        await asyncio.sleep(0.2)
        assert told.of(cut.address) == [LinkEvent.UP, LinkEvent.LOST] * 2

    run(scenario)


def test_a_forgotten_address_is_left_alone() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        server.handle(Add, never())
        dialler, told = ground.end("i1"), Told()
        dialler.on_link(told)
        call = asyncio.create_task(dialler.call(at, Add(1, 1), Sum, 20))
        await ground.until(lambda: dialler.is_up(at))
        dialler.forget(at)
        with pytest.raises(ReplyLost):
            await call
        assert not dialler.is_up(at)
        with listener() as bound:
            nowhere = address_of(bound)
        waiting = asyncio.create_task(dialler.call(nowhere, Ping(), Pong, 20))
        await asyncio.sleep(0)
        dialler.forget(nowhere)
        with pytest.raises(NotSent):
            await waiting
        await asyncio.sleep(0.1)
        assert told.events == [(at, LinkEvent.UP)]
        dialler.forget("never.heard.of:1")
        assert await dialler.call(at, Ping(), Pong, 5) == Pong()  # and may be called again

    run(scenario)


@pytest.mark.parametrize(
    "address", ["", "nonsense", "127.0.0.1", "127.0.0.1:0", ":1", "127.0.0.1:x", "a:99999"]
)
def test_addresses_that_are_none(address: str) -> None:
    async def scenario(ground: Ground) -> None:
        dialler, told = ground.end("i1"), Told()
        dialler.on_link(told)
        with pytest.raises(NotSent, match="is no address"):
            await dialler.call(address, Ping(), Pong, 5)
        assert told.of(address) == [LinkEvent.UNREACHABLE]

    run(scenario)


def test_a_name_that_has_an_address_where_nobody_listens_is_refused_all_the_same() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2")
        dialler = ground.end("i1")
        assert await dialler.call(at.replace("127.0.0.1", "localhost"), Ping(), Pong, 5) == Pong()
        with listener() as bound:
            nowhere = address_of(bound).replace("127.0.0.1", "localhost")
        with pytest.raises(NotSent, match="nobody listens there"):
            await dialler.call(nowhere, Ping(), Pong, 5)

    run(scenario)


def test_a_callback_may_forget_the_link_it_is_told_of() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2")
        dialler, events = ground.end("i1"), []

        def forget(address: str, event: LinkEvent) -> None:
            events.append(event)
            dialler.forget(address)

        dialler.on_link(forget)
        with pytest.raises((ReplyLost, NotSent)):
            await dialler.call(at, Ping(), Pong, 5)
        assert events == [LinkEvent.UP]
        with listener() as bound:
            nowhere = address_of(bound)
        with pytest.raises(NotSent):
            await dialler.call(nowhere, Ping(), Pong, 5)
        assert events == [LinkEvent.UP, LinkEvent.REFUSED]

    run(scenario)


def test_a_bug_in_the_callback_does_not_stop_the_link() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2")
        dialler = ground.end("i1")
        dialler.on_link(lambda address, event: 1 // 0)  # type: ignore[arg-type,return-value]
        assert await dialler.call(at, Ping(), Pong, 5) == Pong()

    run(scenario, bugs=["a bug met by the news that"])


def test_an_instance_may_call_itself() -> None:
    async def scenario(ground: Ground) -> None:
        end, at = await ground.listening("i1")
        assert await end.call(at, Ping(b"me"), Pong, 5) == Pong(b"me")
        assert end.peer(at) == who("i1")

    run(scenario)


def test_after_the_end_nothing_is_asked() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2")
        dialler = ground.end("i1")
        await dialler.call(at, Ping(), Pong, 5)
        await dialler.close()
        await dialler.close()
        with pytest.raises(NotSent, match="stopping"):
            await dialler.call(at, Ping(), Pong, 5)
        assert not dialler.send(at, b"x")
        dialler.dial(at)

    run(scenario)


def test_what_was_put_before_the_end_is_sent() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        received: list[bytes] = []
        server.on_one_way(lambda caller, payload: received.append(payload))
        dialler = ground.end("i1")
        await dialler.call(at, Ping(), Pong, 5)
        assert dialler.send(at, bytes(500_000))
        assert dialler.send(at, b"take over")
        await dialler.close()
        await ground.until(lambda: received and received[-1] == b"take over")

    run(scenario)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, reason, says",
    [
        ({"secret": b"another secret"}, "secret", "have the same secret"),
        (
            {"introduction": who("i1", cluster="bank")},
            "cluster",
            "belongs to cluster 'shop', instance 'i1' to 'bank'",
        ),
        (
            {"introduction": who("i1", cluster_uuid="other")},
            "cluster",
            "two clusters named 'shop': 'ours' and 'other'",
        ),
    ],
)
def test_who_is_turned_away_learns_why(
    options: dict[str, object], reason: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2", introduction=who("i2", cluster_uuid="ours"))
        dialler, told = ground.end("i1", **options), Told()
        dialler.on_link(told)
        with pytest.raises(Rejected, match=says) as rejected:
            await dialler.call(at, Ping(), Pong, 5)
        assert rejected.value.reason == reason
        assert told.of(at) == [LinkEvent.REJECTED]
        await ground.until(lambda: len(told.of(at)) >= 3)
        assert set(told.of(at)) == {LinkEvent.REJECTED}

    run(scenario)
    for side in ("refused a connection from 127.0.0.1", "no connection to 127.0.0.1"):
        said = [line for line in caplog.messages if line.startswith(side)]
        assert len(said) == 1 and says in said[0]  # not for every dial anew
    assert SECRET.decode() not in caplog.text
    assert "another secret" not in caplog.text


def test_a_dialler_that_finds_a_strangers_cluster_says_so() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2", secret=b"another secret", introduction=who("i2", cluster="bank"))
        with pytest.raises(Rejected, match="belongs to cluster 'bank', instance 'i1' to 'shop'"):
            await ground.end("i1").call(at, Ping(), Pong, 5)

    run(scenario)


# --- bounds --------------------------------------------------------------------------------------


def test_what_waits_for_a_side_that_does_not_read_has_a_bound() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        received = 0

        def count(caller: Caller, payload: bytes) -> None:
            nonlocal received
            received += 1

        server.on_one_way(count)
        cut = await ground.cut(at)
        dialler = ground.end("i1")
        await dialler.call(cut.address, Ping(), Pong, 5)
        cut.freeze()
        payload, taken = bytes(100_000), 0
        for _ in range(200):
            while dialler.send(cut.address, payload):
                taken += 1
                assert taken * len(payload) < 10 * WAITING_BYTES_MAX
            await asyncio.sleep(0.001)
        with pytest.raises(NotSent, match="too much waits"):
            await dialler.call(cut.address, Ping(), Pong, 5)
        assert taken * len(payload) > WAITING_BYTES_MAX
        # What was taken was not lost: the link is the same.
        cut.thaw()
        await ground.until(lambda: received == taken)
        assert await dialler.call(cut.address, Ping(), Pong, 5) == Pong()
        assert cut.connections == 1

    run(scenario)


def test_calls_that_had_not_left_when_the_connection_broke_may_be_asked_again() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        server.handle(Add, never())
        cut = await ground.cut(at)
        dialler = ground.end("i1")
        await dialler.call(cut.address, Ping(), Pong, 5)
        left = asyncio.create_task(dialler.call(cut.address, Add(1, 1), Sum, 60))
        await dialler.call(cut.address, Ping(), Pong, 5)
        cut.freeze()
        for _ in range(200):
            while dialler.send(cut.address, bytes(100_000)) and not is_paused(dialler, cut.address):
                pass
            await asyncio.sleep(0.001)
            if is_paused(dialler, cut.address):
                break
        stayed = asyncio.create_task(dialler.call(cut.address, Add(2, 2), Sum, 60))
        await asyncio.sleep(0.01)
        cut.reset()
        with pytest.raises(ReplyLost):
            await left
        with pytest.raises(NotSent):
            await stayed

    run(scenario)


def is_paused(dialler: Rpc, address: str) -> bool:
    connection = dialler._links[address]._connection
    return connection is not None and connection.paused


def test_too_many_requests_at_once_may_be_asked_again() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        server.handle(Add, never())
        dialler = ground.end("i1")
        await dialler.call(at, Ping(), Pong, 5)
        calls = [
            asyncio.create_task(dialler.call(at, Add(number, 0), Sum, 2))
            for number in range(RUNNING_MAX + 10)
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [TimedOut] * RUNNING_MAX + [RetryableError] * 10
        assert await dialler.call(at, Ping(), Pong, 5) == Pong()

    run(scenario)


# --- registering ---------------------------------------------------------------------------------


def test_requests_are_tagged_arrays_and_have_one_handler() -> None:
    class Untagged(msgspec.Struct, array_like=True):
        pass

    async def scenario(ground: Ground) -> None:
        end: Rpc = ground.end("i1")
        with pytest.raises(AssertionError, match="tagged array"):
            end.handle(Untagged, lambda caller, asked, deadline: Sum(0))
        end.handle(Add, add_at_once)
        with pytest.raises(AssertionError, match="has its handler"):
            end.handle(Add, add_at_once)

    run(scenario)


def test_roles_are_checked_by_request() -> None:
    async def scenario(ground: Ground) -> None:
        server, at = await ground.listening("i2")
        server.handle(Add, add_at_once, roles=("client",))
        with pytest.raises(
            InsufficientPrivilege, match="request 'add' is not for connections of role 'peer'"
        ):
            await ground.end("i1").call(at, Add(1, 1), Sum, 5)

    run(scenario)
