"""What extends an app: notified of all that happens, in order; its failures stop the app."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.integration.app.test_app import FAST, Ride, committed, service
from tests.support.waiting import until

from busway import App, BadDeclaration, Extension, ExtensionFailed, Handling, Retry, TopicPartition
from busway.app.extending.extension import CRASH_POINTS

pytestmark = pytest.mark.slow
P0 = TopicPartition("rides", 0)


class Diary(Extension):
    """Records its notifications."""

    def __init__(self, name: str = "", pages: list[Any] | None = None) -> None:
        self.name = name
        self.pages: list[Any] = [] if pages is None else pages

    async def starting(self, app: App) -> None:
        self.pages.append(self.name + "starting")

    async def stopped(self, app: App) -> None:
        self.pages.append(self.name + "stopped")

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.pages.append((self.name + "assigned", list(partitions)))
        return {}

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.pages.append((self.name + "revoked", list(partitions)))

    def around(self, route: Any, call: Any) -> Any:
        async def surrounded(record: Any) -> Any:
            self.pages.append(self.name + "in")
            try:
                return await call(record)
            finally:
                self.pages.append(self.name + "out")

        return surrounded

    def finished(self, handling: Handling) -> None:
        assert handling.seconds >= 0
        self.pages.append((handling.outcome, handling.offset, handling.attempt, handling.records, handling.problem))

    async def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.pages.append((self.name + "committed", dict(offsets)))

    async def reached(self, point: str, topic: str, partition: int, offset: int) -> None:
        self.pages.append((point, topic, partition, offset))


async def test_an_extension_is_told_of_everything_in_order() -> None:
    """A record that is tried twice, then the stop."""
    app = service(commit_interval_s=60)
    rides = app.topic("rides", value=Ride, format="json")
    diary = app.extend(Diary())
    assert app.extend(diary) is diary
    problem = ValueError("once")
    calls = 0

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise problem

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await bus.settle()
    assert diary.pages == [
        "starting",
        ("assigned", [P0]),
        ("before-handler", "rides", 0, 0),
        "in",
        "out",
        ("retried", 0, 1, 1, problem),
        ("before-handler", "rides", 0, 0),
        "in",
        "out",
        ("handled", 0, 2, 1, None),
        ("after-handler", "rides", 0, 0),
        ("after-send", "rides", 0, 0),
        ("before-commit", "rides", 0, 0),
        ("committed", {P0: 1}),
        ("after-commit", "rides", 0, 0),
        ("revoked", [P0]),
        "stopped",
    ]
    assert [page[0] for page in diary.pages if page[0] in CRASH_POINTS] == ["before-handler", *CRASH_POINTS]


async def test_the_first_extension_is_outermost_and_the_last_to_stop() -> None:
    """As with nested blocks."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    pages: list[Any] = []
    app.extend(Diary("a ", pages))
    app.extend(Diary("b ", pages))

    @app.subscribe(rides, retry=Retry(attempts=1))
    async def handle(ride: Ride) -> None:
        raise ValueError

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await bus.settle()
    words = [page for page in pages if isinstance(page, str)]
    assert words == ["a starting", "b starting", "a in", "b in", "b out", "a out", "b stopped", "a stopped"]
    assert [page[0] for page in pages].count("dead_lettered") == 2


async def test_an_extension_may_say_where_to_go_on() -> None:
    """Before the first record; several agree on the lowest offset, which the group then commits."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json", partitions=2)
    seen: list[str] = []

    class From(Extension):
        def __init__(self, offset: int) -> None:
            self.offset = offset

        async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            return {P0: self.offset, TopicPartition("others", 0): 7}

    app.extend(From(4))
    app.extend(From(3))

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        seen.append(ride.id)

    async with app.test() as bus:
        await app.stop()
        quiet = service(bootstrap_servers=app.bootstrap_servers)
        topic = quiet.topic("rides", value=Ride, format="json")
        async with quiet:
            for number in range(5):
                await quiet.send(topic, Ride(f"r{number}"), partition=0)
            await quiet.send(topic, Ride("other"), partition=1)
        await app.start()
        await bus.settle()
        assert sorted(seen) == ["other", "r3", "r4"]
        await app.stop()
        seen.clear()
        app.extensions.clear()
        app.extend(From(5))
        await app.start()
        await bus.settle()

        async def is_committed() -> bool:
            return await committed(app, "rides") == {0: 5, 1: 1}

        await until(is_committed)
    assert seen == []


@pytest.mark.parametrize("where", ["assigned", "finished", "committed", "reached", "revoked"])
async def test_an_extension_that_fails_stops_the_app(where: str) -> None:
    """With its class, what it was given, and the cause."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")

    async def fail(*_: Any) -> None:
        raise ValueError("broken")

    def fail_at_once(*_: Any) -> None:
        raise ValueError("broken")

    broken = type("Broken", (Extension,), {where: fail_at_once if where == "finished" else fail})
    app.extend(broken())

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None: ...

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        if where == "revoked":
            await bus.settle()
            assert app.worker is not None
            await app.worker.on_partitions_lost([P0])
        with pytest.raises(ExtensionFailed, match=rf"extension Broken, {where}.*broken"):
            await app.wait()


async def test_an_extension_that_cannot_start_ends_the_start() -> None:
    """It and those before it are stopped, those behind it were never started."""
    app = service()
    pages: list[Any] = []

    class Broken(Diary):
        async def starting(self, app: App) -> None:
            raise ValueError("broken")

        async def stopped(self, app: App) -> None:
            await super().stopped(app)
            raise ValueError("again")

    app.extend(Diary("a ", pages))
    app.extend(Broken("b ", pages))
    app.extend(Diary("c ", pages))
    with pytest.raises(ExtensionFailed, match="extension Broken, starting: ValueError\\('broken'\\)"):
        async with app.test():
            raise AssertionError("started")
    assert pages == ["a starting", "b stopped", "a stopped"]
    with pytest.raises(BadDeclaration, match="extend takes an Extension, not <class"):
        app.extend(Diary)  # type: ignore[type-var]


async def test_an_app_of_extensions_alone_runs() -> None:
    """No handler, no group; they start and stop."""
    app = App("alone", consumer=FAST)
    diary = app.extend(Diary())
    async with app.test():
        assert diary.pages == ["starting"]
        await asyncio.sleep(0)
    assert diary.pages == ["starting", "stopped"]
