"""What handlers ask for: dependencies, the context, the transaction."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from tests.integration.app.test_app import Quote, Ride, service

from busway import (
    App,
    ConsumerRecord,
    Context,
    Depends,
    Extension,
    HandlerFailed,
    Retry,
    TransactionalInbox,
)

pytestmark = pytest.mark.slow


async def test_dependencies_are_made_once_for_a_call_and_closed_after_it() -> None:
    """Plain, async, generators of both kinds, of each other; closed also when the handler fails, which they see."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    pages: list[str] = []

    def plain(key: str) -> str:
        pages.append("plain")
        return key + "!"

    async def waiting(text: str = Depends(plain)) -> str:
        await asyncio.sleep(0)
        return text + "?"

    async def opened(ride: Ride, record: ConsumerRecord[str, Ride]) -> AsyncIterator[str]:
        assert record.value is ride
        try:
            yield f"open {ride.id}"
        except ValueError as problem:
            pages.append(f"saw {problem}")
            # Not raised again: the record has failed all the same.
        finally:
            pages.append(f"close {ride.id}")

    def made(context: Context[Any]) -> Iterator[int]:
        yield context.attempt

    @app.subscribe(rides, retry=Retry(attempts=2))
    async def handle(
        ride: Ride,
        text: Annotated[str, Depends(waiting)],
        same: Annotated[str, Depends(plain)],
        connection: str = Depends(opened),
        attempt: int = Depends(made),
    ) -> None:
        pages.append(f"{text} {same} {connection} {attempt}")
        if ride.id == "bad":
            raise ValueError("broken")

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"), key="k")
        await bus.send(rides, Ride("bad"), key="k")
        await bus.settle()
        assert [letter.error for letter in await bus.dead_letters(rides)] == ["ValueError: broken"]
    assert pages == [
        *("plain", "k!? k! open r0 1", "close r0"),
        *("plain", "k!? k! open bad 1", "saw broken", "close bad"),
        *("plain", "k!? k! open bad 2", "saw broken", "close bad"),
    ]


async def test_dependencies_of_the_app_live_as_long_as_it() -> None:
    """Made before the first record, shared by handlers, closed at the stop; others stand in for them in a test."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    pages: list[Any] = []

    def settings() -> str:
        pages.append("settings")
        return "real"

    async def pool(setting: str = Depends(settings, scope="app")) -> AsyncIterator[str]:
        pages.append("open")
        yield f"pool of {setting}"
        pages.append("closed")

    @app.subscribe(rides)
    async def first(ride: Ride, pool: str = Depends(pool, scope="app")) -> None:
        pages.append(pool)

    @app.subscribe(rides)
    def second(ride: Ride, pool: str = Depends(pool, scope="app")) -> None:
        assert threading.current_thread() is not threading.main_thread()
        pages.append(pool)

    async with app.test() as bus:
        for number in range(2):
            await bus.send(rides, Ride(f"r{number}"))
        await bus.settle()
    assert pages == ["settings", "open", *["pool of real"] * 4, "closed"]
    pages.clear()
    async with app.test(overrides={settings: lambda: "fake"}) as bus:
        await bus.send(rides, Ride("r0"))
        await bus.settle()
    assert pages == ["open", *["pool of fake"] * 2, "closed"]
    pages.clear()
    async with app.test(overrides={pool: "a plain value"}) as bus:
        await bus.send(rides, Ride("r0"))
        await bus.settle()
    assert pages == ["a plain value"] * 2
    assert app.overrides == {}


@pytest.mark.parametrize("kind", ["generator", "manager", "nothing"])
async def test_the_context_tells_of_the_call(kind: str) -> None:
    """App, record, attempt, group, and what the lifespan yielded."""
    left: list[str] = []

    async def generator(app: App) -> AsyncIterator[dict[str, int]]:
        yield {"rate": 3}
        left.append("left")

    lifespan = {"generator": generator, "manager": contextlib.asynccontextmanager(generator), "nothing": None}[kind]
    app = service(lifespan=lifespan, group_id="group")
    rides = app.topic("rides", value=Ride, format="json")
    seen: list[Any] = []

    @app.subscribe(rides)
    async def handle(ride: Ride, context: Context[Any]) -> None:
        assert context.app is app
        assert context.record.value is ride
        seen.append((context.attempt, context.group, context.state))
        if len(seen) == 1:
            raise TimeoutError

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await bus.settle()
    state = None if kind == "nothing" else {"rate": 3}
    assert seen == [(1, "group", state), (2, "group", state)]
    assert left == ([] if kind == "nothing" else ["left"])


class Ledger(Extension):
    """A database of this process: what was written counts once its transaction is committed."""

    def __init__(self) -> None:
        self.handled: set[int] = set()
        self.rows: list[str] = []
        self.started = 0

    async def starting(self, app: App) -> None:
        self.started += 1

    @contextlib.asynccontextmanager
    async def handling(self, group: str, record: ConsumerRecord[Any, Any]) -> AsyncIterator[list[str] | None]:
        if record.offset in self.handled:
            yield None
            return
        rows: list[str] = []
        yield rows
        self.rows += rows
        self.handled.add(record.offset)


async def test_a_handler_runs_in_the_transaction_of_its_database() -> None:
    """Undone when it raises; skipped when it was handled before; committed only when what it sent is acknowledged."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    quotes = app.topic("quotes", value=Quote, format="json")
    ledger = Ledger()
    assert isinstance(ledger, TransactionalInbox)
    calls: list[str] = []

    @app.publish(quotes)
    @app.subscribe(rides, sql=ledger)
    async def handle(ride: Ride, tx: list[str]) -> Quote:
        calls.append(ride.id)
        tx.append(ride.id)
        if calls == ["r0"]:
            raise TimeoutError
        return Quote(ride.id)

    app.subscribe(app.topic("others", value=Ride, format="json"), sql=ledger)(handle)
    async with app.test() as bus:
        await bus.send(rides, Ride("r0"), key="k")
        await bus.settle()
        ledger.handled.add(1)
        await bus.send(rides, Ride("before"), key="k")
        await bus.settle()
        assert [record.value for record in await bus.records(quotes)] == [Quote("r0")]
    assert (ledger.rows, calls, ledger.started) == (["r0"], ["r0", "r0"], 1)


async def test_a_transaction_is_undone_when_a_send_is_lost() -> None:
    """Marked as handled it would never be sent again."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    ledger = Ledger()

    @app.subscribe(rides, sql=ledger, retry=Retry(attempts=1), dead_letter=False)
    async def handle(ride: Ride, tx: list[str]) -> None:
        from busway.app.calling.layers import unacknowledged

        tx.append(ride.id)
        lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        lost.set_exception(TimeoutError("lost"))
        sent = unacknowledged.get()
        assert sent is not None
        sent.append(lost)

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        with pytest.raises(HandlerFailed, match="lost"):
            await app.wait()
    assert ledger.rows == []
