"""Services on a real broker and registry: order, commits, retries, dead letters, bad input, starting and stopping."""

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.support.patience import patient, patient_ms
from tests.support.waiting import until

from busway import (
    Admin,
    App,
    BadDeclaration,
    BrokerError,
    ConnectionFailed,
    Consumer,
    ConsumerRecord,
    DeliveryFailed,
    Exponential,
    HandlerFailed,
    NotRunning,
    Producer,
    RegistryClient,
    RegistryRefused,
    RegistryUnreachable,
    Retry,
    TopicPartition,
    Undecodable,
)
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
FAST = {"heartbeat_interval_ms": 50, "session_timeout_ms": patient_ms(6_000)}


@dataclasses.dataclass
class Ride:
    id: str
    zone: int = 0


@dataclasses.dataclass
class Quote:
    ride: str


def service(name: str = "surge", **options: Any) -> App:
    """An app that commits and drains fast."""
    return App(name, **{"commit_interval_s": 0.02, "drain_timeout_s": patient(5), "consumer": FAST, **options})


async def committed(app: App, topic: str) -> dict[int, int]:
    """What the group has committed, by partition."""
    async with Admin(app.bootstrap_servers) as admin:
        offsets = await admin.list_group_offsets(app.group_id)
    return {partition.partition: offset.offset for partition, offset in offsets.items() if partition.topic == topic}


def _has_committed(app: App, offsets: dict[int, int]) -> Any:
    async def check() -> bool:
        return await committed(app, "rides") == offsets

    return check


async def test_each_partition_is_handled_in_order_and_sends_are_typed() -> None:
    """Six partitions, a handler that gives way at random places, one output for each input."""
    app = service()
    rides = app.topic("rides", value=Ride, partitions=6)
    quotes = app.topic("quotes", key=str, value=Quote)
    seen: dict[int, list[int]] = {}

    @app.subscribe(rides)
    async def quote(ride: Ride, partition: int, offset: int) -> None:
        for _ in range(offset % 4):
            await asyncio.sleep(0)
        seen.setdefault(partition, []).append(offset)
        await quotes.send_soon(Quote(ride.id), key=ride.id)

    async with app.test() as bus:
        for number in range(120):
            await bus.send(rides, Ride(f"r{number}"), key=f"k{number}")
        await bus.settle()
        assert sorted(record.value.ride for record in await bus.records(quotes)) == sorted(f"r{n}" for n in range(120))
    assert sum(map(len, seen.values())) == 120
    for offsets in seen.values():
        assert offsets == list(range(len(offsets)))


async def test_an_offset_is_committed_only_after_its_handler_has_returned() -> None:
    """While the second of three is being handled, only the first is committed; an app that is gone repeats the rest."""
    app = service()
    rides = app.topic("rides", value=Ride)
    began, may_end = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        calls.append(ride.id)
        if ride.id == "r1":
            began.set()
            await may_end.wait()

    async with app.test() as bus:
        for number in range(3):
            await bus.send(rides, Ride(f"r{number}"), key="k")
        await began.wait()

        async def first_is_committed() -> bool:
            return await committed(app, "rides") == {0: 1}

        await until(first_is_committed)
        app.drain_timeout_s = 0.01
        assert app.worker is not None
        app.worker._context = dataclasses.replace(app.worker._context, drain_timeout_s=0.01)
        await app.stop()
        assert await committed(app, "rides") == {0: 1}
        may_end.set()
        await app.start()
        await until(_has_committed(app, {0: 3}))
    assert calls == ["r0", "r1", "r1", "r2"]


async def test_a_stop_waits_for_the_handler_and_commits_what_it_did() -> None:
    """Drained: nothing is repeated by the next start."""
    app = service()
    rides = app.topic("rides", value=Ride)
    began, may_end = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        calls.append(ride.id)
        began.set()
        await may_end.wait()

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await began.wait()
        stopping = asyncio.ensure_future(app.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        may_end.set()
        await stopping
        assert await committed(app, "rides") == {0: 1}
        await app.start()
        await bus.settle()
    assert calls == ["r0"]


async def test_a_record_that_fails_goes_to_the_dead_letters_after_its_attempts() -> None:
    """With its key, value, headers and story; the others of its key flow on, in order."""
    app = service()
    rides = app.topic("rides", value=Ride)
    done: list[str] = []
    calls: list[str] = []

    @app.subscribe(rides, retry=Retry(attempts=3, backoff=Exponential(0.2, jitter=0), on=(TimeoutError,)))
    async def handle(ride: Ride) -> None:
        calls.append(ride.id)
        if ride.id == "r1":
            raise TimeoutError("no rates")
        if ride.id == "r2":
            raise ValueError("never")
        done.append(ride.id)

    async with app.test() as bus:
        for number in range(4):
            await bus.send(rides, Ride(f"r{number}"), key="k", headers=[("own", b"1"), ("null", None)])
        await bus.settle()
        letters = await bus.dead_letters(rides)
        assert bus.waited_s == [0.2, 0.4]
        await until(_has_committed(app, {0: 4}))
    assert calls == ["r0", "r1", "r1", "r1", "r2", "r3"]
    assert done == ["r0", "r3"]
    assert [(letter.error, letter.attempts, letter.key, letter.value, letter.raw_key) for letter in letters] == [
        ("TimeoutError: no rates", 3, "k", Ride("r1"), b"k"),
        ("ValueError: never", 1, "k", Ride("r2"), b"k"),
    ]
    headers = dict(letters[0].headers)
    assert (headers["own"], headers["null"]) == (b"1", None)
    assert headers["kafka_dlt-original-offset"] == b"1"
    assert headers["busway_dlt-handler"] == f"{__name__}.{handle.__qualname__}".encode()


async def test_dead_letters_keep_the_order_of_each_key() -> None:
    """Those of one key are in one partition, as they were."""
    app = service()
    rides = app.topic("rides", value=Ride, partitions=4)

    @app.subscribe(rides, retry=Retry(attempts=1))
    async def handle(ride: Ride) -> None:
        raise ValueError(ride.id)

    async with app.test() as bus:
        for number in range(40):
            await bus.send(rides, Ride(f"{number}"), key=f"k{number % 5}")
        await bus.settle()
        letters = await bus.dead_letters(rides)
    assert len(letters) == 40
    for key in range(5):
        attempts = [int(letter.error.rpartition(" ")[2]) for letter in letters if letter.key == f"k{key}"]
        assert attempts == list(range(key, 40, 5))


async def test_a_failed_attempt_leaves_no_trace_in_the_next() -> None:
    """What an attempt sent and lost, and what a handler caught itself, does not stop the app."""
    app = service(producer={"max_request_size": 20_000})
    rides = app.topic("rides", value=Ride)
    quotes = app.topic("quotes", value=Quote)
    calls = 0

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        nonlocal calls
        calls += 1
        lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        lost.set_exception(DeliveryFailed("lost"))
        soon = await quotes.send_soon(Quote(ride.id))
        soon.cancel()  # what is on its way is on its way
        if calls == 1:
            from busway.app.calling.layers import unacknowledged

            sent = unacknowledged.get()
            assert sent is not None
            sent.append(lost)
            raise TimeoutError
        with contextlib.suppress(DeliveryFailed):
            await lost

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await bus.settle()
        assert await bus.dead_letters(rides) == []
        assert len(await bus.records(quotes)) == 2
    assert calls == 2


async def test_what_a_handler_sent_and_lost_stops_the_app_before_its_commit() -> None:
    """The record counts as handled only when everything it sent is acknowledged."""
    app = service()
    rides = app.topic("rides", value=Ride)

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        from busway.app.calling.layers import unacknowledged

        lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        lost.set_exception(DeliveryFailed("lost"))
        sent = unacknowledged.get()
        assert sent is not None
        sent.append(lost)

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        with pytest.raises(HandlerFailed, match=r"rides-0 offset 0 was not acknowledged.*lost"):
            await app.wait()
        assert await committed(app, "rides") == {0: 0}  # where the group began


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_the_end_that_latest_found_is_committed_before_any_record(guarantee: Any) -> None:
    """What comes while the app is down is handled when it is up again, although it had handled nothing before."""
    async with LocalCluster() as cluster:
        app, got = App("late", cluster.bootstrap_servers, auto_offset_reset="latest", commit_interval_s=0.02), []
        numbers = app.topic("numbers", value=int, format="json", partitions=1)

        @app.subscribe(numbers, guarantee=guarantee)
        async def handle(value: int) -> None:
            got.append(value)

        async with asyncio.timeout(patient(60)), app:
            while not await committed(app, "numbers"):
                await asyncio.sleep(0.01)
        other = App("other", cluster.bootstrap_servers)
        theirs = other.topic("numbers", value=int, format="json")
        async with other:
            await theirs.send(1)
        async with asyncio.timeout(patient(60)), app:
            while not got:
                await asyncio.sleep(0.01)
    assert got == [1]


async def test_a_handler_whose_own_task_was_cancelled_has_failed() -> None:
    """Its partition goes on; a lane that ended without a word would stop for ever."""
    app = service()
    rides = app.topic("rides", value=Ride)
    done: list[str] = []

    @app.subscribe(rides, retry=Retry(attempts=2))
    async def handle(ride: Ride) -> None:
        if ride.id == "r0":
            task = asyncio.ensure_future(asyncio.sleep(60))
            asyncio.get_running_loop().call_soon(task.cancel)
            await task
        done.append(ride.id)

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"), key="k")
        await bus.send(rides, Ride("r1"), key="k")
        await bus.settle()
        assert [letter.error for letter in await bus.dead_letters(rides)] == [
            "Cancelled: the handler waited for a task that was cancelled"
        ]
    assert done == ["r1"]


class Escape(BaseException):
    """As `pytest.fail` raises it."""


@pytest.mark.parametrize("kind", [SystemExit, Escape])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_that_raises_what_is_no_exception_has_failed(kind: type[BaseException], plain: bool) -> None:
    """A library that ends the process, or a test's own outcome, is a failure of the record and not of the partition."""
    app = service()
    rides = app.topic("rides", value=Ride)
    done: list[str] = []

    def handle(ride: Ride) -> None:
        if ride.id == "r0":
            raise kind("stop")
        done.append(ride.id)

    async def handle_in_loop(ride: Ride) -> None:
        handle(ride)

    app.subscribe(rides, retry=Retry(attempts=2))(handle if plain else handle_in_loop)
    async with app.test() as bus:
        await bus.send(rides, Ride("r0"), key="k")
        await bus.send(rides, Ride("r1"), key="k")
        await bus.settle()
        (letter,) = await bus.dead_letters(rides)
    assert letter.error == f"Exited: the handler raised {kind.__name__}('stop'), which is no Exception"
    assert letter.attempts == 2
    assert done == ["r1"]


async def test_a_handler_that_cancels_its_own_task_stops_the_app() -> None:
    """Its record is not committed and comes again; a lane that ended without a word would stop for ever."""
    app = service()
    rides = app.topic("rides", value=Ride)

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        with pytest.raises(HandlerFailed, match=r"handle was ended on rides-0: CancelledError"):
            await bus.settle()
        assert not any((await committed(app, "rides")).values())


async def test_a_handler_that_will_not_end_does_not_hold_the_app() -> None:
    """Cancelled after drain_timeout; one that does not hear it is left behind, and its record is not committed."""
    app = service(drain_timeout_s=0.05)
    rides = app.topic("rides", value=Ride, format="json")
    began, let_go = asyncio.Event(), asyncio.Event()

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        began.set()
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await began.wait()
        assert app.worker is not None
        ((lane,),) = (assigned.lanes for assigned in app.worker._assigned.values())
        (task,) = lane._hands
        async with asyncio.timeout(patient(5)):
            await app.stop()
        assert not any((await committed(app, "rides")).values())
        let_go.set()
        await asyncio.wait([task])


async def test_a_failure_without_dead_letters_stops_the_app() -> None:
    """Nothing is skipped: the record is there for the next start, what came before it is committed."""
    app = service()
    rides = app.topic("rides", value=Ride)

    @app.subscribe(rides, retry=Retry(attempts=2), dead_letter=False)
    async def handle(ride: Ride) -> None:
        if ride.id == "r1":
            raise ValueError("broken")

    async with app.test() as bus:
        for number in range(3):
            await bus.send(rides, Ride(f"r{number}"), key="k")
        with pytest.raises(HandlerFailed, match=r"rides-0 offset 1 after 2 attempts.*broken"):
            await app.wait()
        assert await committed(app, "rides") == {0: 1}
        with pytest.raises(HandlerFailed):
            await bus.settle()


async def test_two_handlers_of_a_topic_fail_on_their_own() -> None:
    """The dead letter of one does not keep the record from the other."""
    app = service()
    rides = app.topic("rides", value=Ride)
    done: list[str] = []

    @app.subscribe(rides, retry=Retry(attempts=1))
    async def first(ride: Ride) -> None:
        raise ValueError("first")

    @app.subscribe(rides)
    async def second(ride: Ride) -> None:
        done.append(ride.id)

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await bus.settle()
        assert [letter.error for letter in await bus.dead_letters(rides)] == ["ValueError: first"]
    assert done == ["r0"]


async def test_what_cannot_be_read_goes_to_the_dead_letters_at_once() -> None:
    """No frame, an id that the registry does not have, a damaged body, a key that is no text: each with its reason."""
    app = service()
    rides = app.topic("rides", value=Ride)
    done: list[str] = []

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        done.append(ride.id)

    async with app.test() as bus:
        good = await bus.send(rides, Ride("r0"), key="k")
        async with Producer(app.bootstrap_servers) as producer:
            framed = await read_value(app, "rides", good.offset)
            for value, key in (
                (b"{}", b"k"),
                (b"\x00\x00\x00\x27\x0f" + framed[5:], b"k"),
                (framed[:-1], b"k"),
                (framed + b"x", b"k"),
                (b"", b"k"),
                (framed, b"\xff"),
            ):
                await producer.send_and_wait("rides", value, key)
        await bus.send(rides, Ride("r1"), key="k")
        await bus.settle()
        errors = [letter.error for letter in await bus.dead_letters(rides)]
        assert bus.waited_s == []
    for error, why in zip(
        errors,
        [
            "too few",
            "schema id 9999 is not in the registry",
            "cannot be read as Ride",
            "left over",
            "too few",
            "the key",
        ],
        strict=True,
    ):
        assert error.startswith("Undecodable: the ")
        assert why in error
    assert done == ["r0", "r1"]


async def test_two_handlers_of_a_record_that_nobody_can_read_put_it_aside_once() -> None:
    """Both ask the registry for a schema that it does not have; one dead letter comes of it."""
    app = service()
    rides = app.topic("rides", value=Ride, partitions=1)

    @app.subscribe(rides)
    async def first(ride: Ride) -> None: ...

    @app.subscribe(rides)
    async def second(ride: Ride) -> None: ...

    async with app.test() as bus:
        async with Producer(app.bootstrap_servers) as producer:
            await producer.send_and_wait("rides", b"\x00\x00\x00\x27\x0fx", b"k")
        await bus.settle()
        assert len(await bus.dead_letters(rides)) == 1


async def read_value(app: App, topic: str, offset: int) -> bytes:
    """The bytes of a value in partition 0."""
    async with Consumer(bootstrap_servers=app.bootstrap_servers) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), offset)
        return (await consumer.getone()).value or b""


async def test_two_versions_of_a_class_live_side_by_side() -> None:
    """An old and a new service on one topic: each reads what the other writes as its own class."""
    old = service("old")
    old_rides = old.topic("rides", value=Ride)
    new = service("new")
    newer = dataclasses.make_dataclass(
        "Ride",
        [
            ("id", str),
            ("zone", int, 0),
            ("note", str | None, None),
            ("tags", list[str], dataclasses.field(default_factory=list)),
        ],
    )
    new_rides = new.topic("rides", value=newer)
    seen: dict[str, list[Any]] = {"old": [], "new": []}

    @old.subscribe(old_rides)
    async def handle_old(ride: Ride) -> None:
        seen["old"].append(ride)

    @new.subscribe(new_rides)
    async def handle_new(ride: newer) -> None:  # type: ignore[valid-type]
        seen["new"].append(ride)

    async with old.test() as bus:
        new.bootstrap_servers, new.schema_registry = old.bootstrap_servers, old.schema_registry
        async with new:
            await bus.send(old_rides, Ride("a", 1))
            await new.send(new_rides, newer("b", 2, "hi", ["x"]))
            await bus.settle()

            async def both() -> bool:
                return len(seen["new"]) == 2

            await until(both)
        async with RegistryClient(str(old.schema_registry)) as registry:
            assert await registry.versions("rides-value") == [1, 2]
    assert seen == {"old": [Ride("a", 1), Ride("b", 2)], "new": [newer("a", 1), newer("b", 2, "hi", ["x"])]}


async def test_a_registry_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record whose schema cannot be asked for now is neither skipped nor put aside."""
    app = service()
    rides = app.topic("rides", value=Ride)
    seen: list[Ride] = []
    asked = 0
    real = RegistryClient.schema

    async def away(self: RegistryClient, schema_id: int) -> str:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise RegistryUnreachable("the schema registry does not answer")
        return await real(self, schema_id)

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        seen.append(ride)

    async with app.test() as bus:
        monkeypatch.setattr(RegistryClient, "schema", away)
        other = service("other", bootstrap_servers=app.bootstrap_servers, schema_registry=app.schema_registry)
        same = other.topic("rides", value=dataclasses.make_dataclass("Ride", [("id", str)]))
        async with other:
            await other.send(same, same.value("r0"))
        await bus.settle()
        assert await bus.dead_letters(rides) == []
        assert bus.waited_s == [0.2, 0.4, 0.8]
    assert (asked, seen) == (4, [Ride("r0")])


async def test_dead_letters_need_no_broker_that_makes_topics() -> None:
    """Production brokers make no topic on a request for it; the app makes its dead-letter topic, and no other one."""
    async with LocalCluster(properties={"auto.create.topics.enable": "false"}) as cluster:
        app = service(bootstrap_servers=cluster.bootstrap_servers)
        rides = app.topic("rides", value=Ride, format="json", partitions=1)
        missing = app.topic("missing", value=Ride, format="json")

        @app.subscribe(rides, retry=Retry(attempts=1))
        async def handle(ride: Ride) -> None:
            raise ValueError("broken")

        async with app:
            await rides.send(Ride("r0"))
            async with Consumer(
                "rides.surge.dlt",
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
            ) as consumer:
                assert (await consumer.getone()).value == b'{"id":"r0","zone":0}'
            async with Producer(cluster.bootstrap_servers, metadata_timeout_ms=100) as producer:
                with pytest.raises(BrokerError, match=r"topic missing: does not exist, .*; create it first"):
                    await producer.send(missing.name, b"{}")


async def test_headers_are_pairs() -> None:
    """A dictionary, as other clients take it, is refused in words."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    async with app.test() as bus:
        with pytest.raises(TypeError, match=r"headers are pairs, such as \[\('name', b'value'\)\], not \{'trace'"):
            await bus.send(rides, Ride("r0"), headers={"trace": b"1"})  # type: ignore[arg-type]


async def test_what_cannot_be_read_stops_an_app_without_dead_letters() -> None:
    """As a handler's own failure does."""
    app = service()
    rides = app.topic("rides", value=Ride)

    @app.subscribe(rides, dead_letter=False)
    async def handle(ride: Ride) -> None: ...

    async with app.test():
        async with Producer(app.bootstrap_servers) as producer:
            await producer.send_and_wait("rides", b"{}")
        with pytest.raises(HandlerFailed, match="rides-0 offset 0 cannot be read"):
            await app.wait()


async def test_a_record_without_room_for_the_story_is_put_aside_without_it() -> None:
    """Near the largest size: the long headers go, the record does not."""
    app = service(producer={"max_request_size": 20_000})
    rides = app.topic("rides", key=bytes, value=bytes, format="raw")

    @app.subscribe(rides, retry=Retry(attempts=1))
    async def handle(ride: bytes) -> None:
        raise ValueError("x" * 5_000)

    async with app.test() as bus:
        await bus.send(rides, bytes(19_000))
        await bus.settle()
        letters = await bus.dead_letters(rides)
    assert [(len(letter.value or b""), letter.error) for letter in letters] == [(19_000, "ValueError: ")]


async def test_dead_letters_out_of_reach_stop_the_partition_and_skip_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The record is tried until its dead letter is written; what follows waits, other partitions do not."""
    app = service()
    rides = app.topic("rides", value=Ride, partitions=2)
    done: list[str] = []

    @app.subscribe(rides, retry=Retry(attempts=1))
    async def handle(ride: Ride) -> None:
        if ride.id == "bad":
            raise ValueError("bad")
        done.append(ride.id)

    real, refused = app._send_raw, 0

    async def out_of_reach(*arguments: Any) -> Any:
        nonlocal refused
        refused += 1
        if refused < 5:
            raise DeliveryFailed("not acknowledged")
        return await real(*arguments)

    app._send_raw = out_of_reach  # type: ignore[method-assign]
    async with app.test() as bus:
        await app.send(rides, Ride("bad"), partition=0)
        await app.send(rides, Ride("after"), partition=0)
        await app.send(rides, Ride("other"), partition=1)
        await bus.settle()
        assert len(await bus.dead_letters(rides)) == 1
        assert len(bus.waited_s) == 4
    assert sorted(done) == ["after", "other"]
    assert "rides-0 stops at offset 0: rides.surge.dlt: not acknowledged" in caplog.text


async def test_a_plain_function_runs_in_a_thread() -> None:
    """It may block; order is kept."""
    app = service()
    rides = app.topic("rides", value=Ride)
    seen: list[tuple[bool, str]] = []

    @app.subscribe(rides)
    def handle(ride: Ride) -> None:
        seen.append((threading.current_thread() is threading.main_thread(), ride.id))

    async with app.test() as bus:
        for number in range(20):
            await bus.send(rides, Ride(f"r{number}"), key="k")
        await bus.settle()
    assert seen == [(False, f"r{number}") for number in range(20)]


async def test_tombstones_keys_and_json() -> None:
    """A value of None, a number as the key, JSON without a registry."""
    app = service()
    counts = app.topic("counts", key=int, value=Ride, format="json")
    seen: list[ConsumerRecord[int, Ride]] = []

    @app.subscribe(counts)
    async def handle(record: ConsumerRecord[int, Ride]) -> None:
        seen.append(record)

    async with app.test() as bus:
        await bus.send(counts, Ride("a", 5), key=-7, headers=[("h", b"1"), ("h", b"2")])
        await bus.send(counts, None, key=-7)
        await bus.settle()
        assert [(record.key, record.value) for record in await bus.records(counts)] == [(-7, Ride("a", 5)), (-7, None)]
    assert [(record.key, record.value, record.header("h")) for record in seen] == [
        (-7, Ride("a", 5), b"2"),
        (-7, None, None),
    ]


async def test_a_service_loads_what_it_keeps_before_the_first_record() -> None:
    """on_assigned has returned, with the table read to its end while others write, before a handler is called."""
    app = service()
    rides = app.topic("rides", value=Ride, partitions=3)
    table = app.topic("table", value=Ride, partitions=3, configs={"cleanup.policy": "compact"})
    loaded: dict[int, list[str]] = {}
    early: list[int] = []

    @app.on_assigned
    async def load(partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            values = [record.value async for record in app.read(table, partitions=[partition.partition])]
            loaded[partition.partition] = [value.id for value in values if value is not None]

    @app.subscribe(rides)
    async def handle(ride: Ride, partition: int) -> None:
        if partition not in loaded:
            early.append(partition)
        await table.send(ride, key=ride.id, partition=partition)

    async with app.test() as bus:
        for number in range(30):
            await bus.send(rides, Ride(f"r{number}"), key=f"k{number}")
        await bus.settle()
        loaded.clear()
        await bus.restart()
        await until(_all_loaded(loaded, 3))
        assert len(await bus.records(table)) == 30
    assert sum(map(len, loaded.values())) == 30
    assert early == []


def _all_loaded(loaded: dict[int, list[str]], count: int) -> Any:
    async def check() -> bool:
        return len(loaded) == count

    return check


async def test_a_loader_that_fails_stops_the_app() -> None:
    """Without its tables it handles nothing."""
    app = service()
    rides = app.topic("rides", value=Ride)
    handled: list[str] = []

    @app.on_assigned
    async def load(partitions: Sequence[TopicPartition]) -> None:
        raise ValueError("no tables")

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        handled.append(ride.id)

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        with pytest.raises(ValueError, match="no tables"):
            await app.wait()
    assert handled == []


async def test_a_topic_is_read_to_its_end_while_it_is_written() -> None:
    """Without hanging on what comes after the end."""
    app = service()
    rides = app.topic("rides", value=Ride, partitions=2)
    async with app.test() as bus:
        for number in range(50):
            await bus.send(rides, Ride(f"r{number}"), key=f"k{number}")

        async def write() -> None:
            while True:
                await rides.send_soon(Ride("late"), key="k1")
                await asyncio.sleep(0)

        writing = asyncio.ensure_future(write())
        async with asyncio.timeout(patient(20)):
            read_ids = [record.value.id async for record in app.read(rides) if record.value is not None]
        writing.cancel()
    assert {f"r{number}" for number in range(50)} <= set(read_ids)


async def test_a_record_that_cannot_be_read_back_is_named() -> None:
    """app.read says which one."""
    app = service()
    rides = app.topic("rides", value=Ride)
    async with app.test():
        async with Producer(app.bootstrap_servers) as producer:
            await producer.send_and_wait("rides", b"{}")
        with pytest.raises(Undecodable, match="rides-0 offset 0: the value is not what topic rides holds"):
            [record async for record in app.read(rides)]


# Two members


async def test_two_instances_share_and_one_dies_without_a_word() -> None:
    """Every record is handled at least once, although a member held some of them when it died."""
    async with LocalCluster(properties={"group.min.session.timeout.ms": "100"}) as cluster:
        seen: list[str] = []
        apps = []
        for _ in range(2):
            app = service(bootstrap_servers=cluster.bootstrap_servers, consumer={**FAST, "session_timeout_ms": 1_500})
            rides = app.topic("rides", value=Ride, format="json", partitions=4)

            @app.subscribe(rides)
            async def handle(ride: Ride) -> None:
                await asyncio.sleep(0)
                seen.append(ride.id)

            await app.start()
            apps.append((app, rides))
        (first, rides), (second, _) = apps

        async def shared() -> bool:
            assert first.worker is not None
            assert second.worker is not None
            return len(first.worker._assigned) == len(second.worker._assigned) == 2

        await until(shared)
        for number in range(100):
            await first.send(rides, Ride(f"a{number}"), key=f"k{number}")
        await die(second)
        for number in range(100):
            await first.send(rides, Ride(f"b{number}"), key=f"k{number}")

        async def all_seen() -> bool:
            return len(set(seen)) == 200

        await until(all_seen, seconds=30)
        await first.stop()


async def die(app: App) -> None:
    """End an app as a lost process does: no drain, no commit, no leave; only its sockets close."""
    assert app.worker is not None
    consumer = app.worker.consumer
    lanes = [lane for assigned in app.worker._assigned.values() for lane in assigned.lanes]
    tasks = [*consumer._tasks, *(task for lane in lanes for task in lane.close())]
    app.worker._assigned.clear()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    consumer._tasks = []
    await app.stop()


async def test_a_rebalance_waits_for_the_handler_and_hands_over_what_it_committed() -> None:
    """A record in work when its partition goes is finished and committed by who has it, and not handled again."""
    async with LocalCluster() as cluster:
        calls: list[tuple[str, str]] = []
        began, may_end = asyncio.Event(), asyncio.Event()

        def member(name: str) -> tuple[App, Any]:
            app = service(bootstrap_servers=cluster.bootstrap_servers)
            rides = app.topic("rides", value=Ride, format="json", partitions=2)

            @app.subscribe(rides)
            async def handle(ride: Ride) -> None:
                calls.append((name, ride.id))
                began.set()
                await may_end.wait()

            return app, rides

        first, rides = member("first")
        second, _ = member("second")
        async with first:
            for number in range(2):
                await first.send(rides, Ride(f"r{number}"), partition=number)

            async def both() -> bool:
                return len(calls) == 2

            await until(both)
            async with second:
                assert second.worker is not None

                async def rebalancing() -> bool:
                    assert first.worker is not None
                    return first.worker._closing.locked()

                await until(rebalancing)
                may_end.set()

                async def moved() -> bool:
                    return bool(second.worker and second.worker._assigned)

                await until(moved)
                await first.send(rides, Ride("last0"), partition=0)
                await first.send(rides, Ride("last1"), partition=1)

                async def four() -> bool:
                    return len(calls) >= 4

                await until(four)
        assert sorted(at for _, at in calls) == ["last0", "last1", "r0", "r1"]


async def test_a_partition_that_goes_during_a_back_off_is_not_held_up() -> None:
    """Its next owner begins with the record that was about to be tried again."""
    async with LocalCluster() as cluster:
        app = service(bootstrap_servers=cluster.bootstrap_servers)
        rides = app.topic("rides", value=Ride, format="json")
        calls: list[str] = []
        resting = asyncio.Event()

        async def for_ever(seconds: float) -> None:
            resting.set()
            await asyncio.Event().wait()

        app.sleep = for_ever

        @app.subscribe(rides)
        async def handle(ride: Ride) -> None:
            calls.append(ride.id)
            if len(calls) == 1:
                raise TimeoutError

        async with app:
            await app.send(rides, Ride("r0"))
            await resting.wait()
            async with asyncio.timeout(patient(3)):
                await app.stop()
        assert not any((await committed(app, "rides")).values())
        async with app:

            async def again() -> bool:
                return len(calls) == 2

            await until(again)


# Starting and stopping


async def test_a_schema_that_breaks_the_subject_fails_at_start_with_the_path() -> None:
    """Before a record is read; the text is the registry's."""
    app = service()
    app.topic("rides", value=Ride)
    async with app.test():
        other = service(bootstrap_servers=app.bootstrap_servers, schema_registry=app.schema_registry)
        other.topic("rides", value=dataclasses.make_dataclass("Ride", [("id", int), ("more", str)]))
        with pytest.raises(RegistryRefused, match=r"/fields/(0|1|more)") as refused:
            await other.start()
        assert refused.value.code == 409
        strict = service(
            bootstrap_servers=app.bootstrap_servers, schema_registry=app.schema_registry, register_schemas=False
        )
        strict.topic("unknown", value=Ride)
        with pytest.raises(RegistryRefused, match=r"40401|not found"):
            await strict.start()
        async with RegistryClient(str(app.schema_registry)) as registry:
            assert await registry.subjects() == ["rides-value"]


async def test_servers_that_are_not_there_are_named() -> None:
    """Broker and registry, each with its address; nothing stays open."""
    app = service(bootstrap_servers="127.0.0.1:1")
    rides = app.topic("rides", value=Ride, format="json")
    app.subscribe(rides)(lambda ride: None)
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
        await app.start()
    async with LocalCluster() as cluster:
        avro = service(bootstrap_servers=cluster.bootstrap_servers, schema_registry="http://me:secret@127.0.0.1:1")
        avro.topic("rides", value=Ride)
        with pytest.raises(RegistryUnreachable, match=r"http://127\.0\.0\.1:1 does not answer") as unreachable:
            await avro.start()
        assert "secret" not in str(unreachable.value)
        none = service(bootstrap_servers=cluster.bootstrap_servers)
        none.topic("rides", value=Ride)
        with pytest.raises(BadDeclaration, match="app surge has no schema_registry"):
            await none.start()
        with pytest.raises(NotRunning):
            await none.topics["rides"].send(Ride("r0"))


async def test_stop_while_starting_ends_the_start() -> None:
    """Its starter gets the error; a second start works, and two at once do not."""
    async with LocalCluster() as cluster:
        entered = asyncio.Event()
        left: list[bool] = []

        @contextlib.asynccontextmanager
        async def lifespan(app: App) -> AsyncIterator[None]:
            entered.set()
            try:
                if not left:
                    await asyncio.Event().wait()
                yield
            finally:
                left.append(True)

        app = service(bootstrap_servers=cluster.bootstrap_servers, lifespan=lifespan)
        starting = asyncio.ensure_future(app.start())
        await entered.wait()
        with pytest.raises(NotRunning, match="running already"):
            await app.start()
        await app.stop()
        with pytest.raises(NotRunning, match="was stopped while it started"):
            await starting
        assert left == [True]
        async with app:
            assert left == [True]
        await app.stop()
        assert left == [True, True]


async def test_a_lifespan_may_send_at_its_end_and_a_handler_may_not_stop_its_app() -> None:
    """The producer is the last to go; stop() in a handler would wait for itself."""
    refused: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        yield
        await app.send(app.topics["rides"], Ride("bye"))

    app = service(lifespan=lifespan)
    rides = app.topic("rides", value=Ride, format="json")

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        try:
            await app.stop()
        except NotRunning as problem:
            refused.append(str(problem))

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await bus.settle()
        await app.stop()
        await app.start()
        assert [record.value for record in await bus.records(rides)] == [Ride("r0"), Ride("bye")]
        await bus.settle()
    assert "cannot be stopped by its own handler" in refused[0]
