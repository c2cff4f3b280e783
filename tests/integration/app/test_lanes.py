"""How handlers get their records: order and concurrency, filters, deadlines, batches, and what they return."""

import asyncio
import collections
import threading
from typing import Any

import pytest
from tests.integration.app.test_app import FAST, Quote, Ride, committed, service
from tests.support.patience import patient
from tests.support.waiting import until

from busway import Admin, Batch, ConsumerRecord, Exponential, HandlerFailed, Producer, Retry, TopicPartition
from busway.app.handling.lane import OPEN_MAX
from busway.types import OffsetAndMetadata

pytestmark = pytest.mark.slow


async def test_a_parked_key_holds_itself_alone() -> None:
    """While a record waits for its next attempt, later ones of its key wait behind it and all others are handled; none is committed."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    waits, may_go = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def wait(seconds: float) -> None:
        waits.set()
        await may_go.wait()

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        if ride.id == "a0" and not may_go.is_set():
            raise TimeoutError
        done.append(ride.id)

    async with app.test() as bus:
        app.sleep = wait
        for name in ("a0", "b0", "a1", "c0", "a2"):
            await bus.send(rides, Ride(name), key=name[0])

        async def flown() -> bool:
            return done == ["b0", "c0"]

        await until(flown)
        assert (await committed(app, "rides")).get(0, 0) == 0
        may_go.set()
        await bus.settle()
    assert done == ["b0", "c0", "a0", "a1", "a2"]


async def test_what_was_handled_ahead_of_a_parked_record_does_not_come_again() -> None:
    """The service is killed while a record waits: the next one handles that record and its key, and nothing that was finished beyond it;
    an offset that another client has committed since, without metadata, is followed to the letter."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json", partitions=1)
    parked = asyncio.Event()
    mended = [False]
    done: list[str] = []

    async def wait(seconds: float) -> None:
        parked.set()
        await asyncio.Event().wait()

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        if ride.id == "a2" and not mended[0]:
            raise TimeoutError
        done.append(ride.id)

    names = [f"{'abc'[number % 3]}{number // 3}" for number in range(30)]
    async with app.test() as bus:
        app.sleep = wait
        for name in names:
            await bus.send(rides, Ride(name), key=name[0])

        async def remembered() -> bool:
            async with Admin(app.bootstrap_servers) as admin:
                offsets = await admin.list_group_offsets(app.group_id)
            return any(at == OffsetAndMetadata(6, f"1;{','.join(['1+2'] * 8)}") for at in offsets.values())

        await until(remembered)
        assert parked.is_set()
        assert len(done) == 22
        mended[0] = True
        crash = bus.crash(at="before-commit")
        await bus.send(rides, Ride("b99"), key="b")
        await crash
        await bus.settle()
        first, again = done[:22], done[22:]
        assert [name for name in again if name != "b99"] == [f"a{number}" for number in range(2, 10)]
        assert sorted(set(first + again)) == sorted([*names, "b99"])
        await app.stop()
        async with Admin(app.bootstrap_servers) as admin:
            await admin.alter_group_offsets(app.group_id, {TopicPartition("rides", 0): OffsetAndMetadata(6)})
        done.clear()
        await app.start()
        await bus.settle()
        assert done == [*names[6:], "b99"]


async def test_metadata_of_a_log_that_lost_its_tail_is_not_believed() -> None:
    """What the group says was finished beyond the end of the log would be other records'."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json", partitions=1)
    done: list[str] = []

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        done.append(ride.id)

    async with app.test() as bus:
        await app.stop()
        async with Producer(app.bootstrap_servers) as producer:
            for number in range(4):
                await producer.send_and_wait("rides", b'{"id": "r%d"}' % number, b"k")
        async with Admin(app.bootstrap_servers) as admin:
            await admin.alter_group_offsets(app.group_id, {TopicPartition("rides", 0): OffsetAndMetadata(0, "1;2+3")})
        await app.start()
        await bus.settle()
    assert done == ["r0", "r1", "r2", "r3"]


async def test_strict_order_holds_the_partition() -> None:
    """ordering="partition": nothing overtakes a record that is tried again."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    calls: list[str] = []

    @app.subscribe(rides, ordering="partition")
    async def handle(ride: Ride) -> None:
        calls.append(ride.id)
        if calls == ["a0"]:
            raise TimeoutError

    async with app.test() as bus:
        for name in ("a0", "b0", "a1"):
            await bus.send(rides, Ride(name), key=name[0])
        await bus.settle()
    assert calls == ["a0", "a0", "b0", "a1"]


async def test_concurrent_handlers_keep_the_order_of_each_key() -> None:
    """As many at once as was asked for, never two of a key, whatever fails on the way; every record once."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    seen: dict[str, list[int]] = collections.defaultdict(list)
    running: set[str] = set()
    full = asyncio.Event()
    most = 0

    @app.subscribe(rides, concurrency=8, retry=Retry(backoff=Exponential(0.001)))
    async def handle(ride: Ride, key: str) -> None:
        nonlocal most
        assert key not in running, "two of a key at once"
        running.add(key)
        most = max(most, len(running))
        if most == 8:
            full.set()
        await full.wait()
        for _ in range(ride.zone % 5):
            await asyncio.sleep(0)
        running.discard(key)
        if ride.zone % 7 == 0 and ride.id not in failed:
            failed.add(ride.id)
            raise TimeoutError
        seen[key].append(ride.zone)

    failed: set[str] = set()
    async with app.test() as bus:
        for number in range(300):
            await rides.send_soon(Ride(f"r{number}", number), key=f"k{number % 13}")
        await bus.settle()
    assert most == 8
    assert sum(map(len, seen.values())) == 300
    assert all(offsets == sorted(offsets) for offsets in seen.values())


async def test_records_without_a_key_run_at_once() -> None:
    """With concurrency they have no order; and ordering="none" gives up that of keys too."""
    for ordering, key in (("key", None), ("none", "k")):
        app = service()
        rides = app.topic("rides", value=Ride, format="json")
        together = asyncio.Barrier(3)

        @app.subscribe(rides, concurrency=3, ordering=ordering)  # type: ignore[arg-type]
        async def handle(ride: Ride) -> None:
            await together.wait()  # noqa: B023 - called before the loop goes on

        async with app.test() as bus:
            for number in range(3):
                await bus.send(rides, Ride(f"r{number}"), key=key)
            await bus.settle()


async def test_what_is_open_has_a_bound() -> None:
    """A key whose record waits for ever holds many behind it: the partition is paused, and goes on when it may."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    may_go = asyncio.Event()
    done = 0

    async def wait(seconds: float) -> None:
        await may_go.wait()

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        nonlocal done
        if not may_go.is_set():
            raise TimeoutError
        done += 1

    async with app.test() as bus:
        app.sleep = wait
        for number in range(4 * OPEN_MAX):
            await rides.send_soon(Ride(f"r{number}"), key="k")

        async def paused() -> bool:
            assert app.worker is not None
            return any(assigned.paused for assigned in app.worker._assigned.values())

        await until(paused)
        assert app.worker is not None
        (assigned,) = app.worker._assigned.values()
        assert OPEN_MAX <= assigned.done.open <= OPEN_MAX + 500
        may_go.set()
        await bus.settle()
    assert done == 4 * OPEN_MAX


async def test_what_is_open_has_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large records pause a partition before many of them wait; all are handled in the end, and none is counted any more."""
    monkeypatch.setattr("busway.app.handling.assigned_partition.OPEN_BYTES_MAX", 100_000)
    app = service(consumer={**FAST, "max_poll_records": 2})
    texts = app.topic("texts", value=bytes, format="raw", partitions=1)
    may_go = asyncio.Event()
    done = 0

    @app.subscribe(texts)
    async def handle(text: bytes) -> None:
        nonlocal done
        await may_go.wait()
        done += 1

    async with app.test() as bus:
        for _ in range(50):
            await texts.send_soon(b"x" * 20_000)

        async def paused() -> bool:
            assert app.worker is not None
            return any(assigned.paused for assigned in app.worker._assigned.values())

        await until(paused)
        assert app.worker is not None
        (assigned,) = app.worker._assigned.values()
        assert 100_000 <= assigned.open_bytes <= 140_000
        may_go.set()
        await bus.settle()
        assert assigned.open_bytes == 0
    assert done == 50


async def test_what_runs_ahead_of_a_parked_record_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop gives the parked one up; it and what was handled beyond it come again, for nothing beyond it was committed."""
    monkeypatch.setattr("busway.app.handling.assigned_partition.AHEAD_MAX", 700)
    app = service(consumer={**FAST, "max_poll_records": 100})
    rides = app.topic("rides", value=Ride, format="json")
    may_go = asyncio.Event()
    done: list[int] = []

    async def wait(seconds: float) -> None:
        await may_go.wait()

    @app.subscribe(rides, concurrency=4)
    async def handle(ride: Ride) -> None:
        if ride.zone == 3 and not may_go.is_set():
            raise TimeoutError
        done.append(ride.zone)

    async with app.test() as bus:
        app.sleep = wait
        for number in range(2_000):
            await rides.send_soon(Ride(f"r{number}", number), key=f"k{number}")

        async def ahead() -> bool:
            assert app.worker is not None
            return any(
                assigned.paused and assigned.done.open == len(done) - 2 for assigned in app.worker._assigned.values()
            )

        await until(ahead)
        assert 700 <= len(done) <= 800
        async with asyncio.timeout(patient(4)):
            await app.stop()
        assert await committed(app, "rides") == {0: 3}
        may_go.set()
        before = len(done)
        await app.start()
        await bus.settle()
    assert sorted(done) == list(range(2_000))
    assert done[before] == 3


async def test_a_handler_that_takes_too_long_has_failed() -> None:
    """A coroutine is cancelled, the result of a thread is dropped; the record is tried again and then put aside."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    plain = app.topic("plain", value=Ride, format="json")
    let_go = threading.Event()
    cancelled: list[str] = []

    @app.subscribe(rides, timeout_s=0.02, retry=Retry(attempts=2))
    async def handle(ride: Ride) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(ride.id)
            raise

    @app.subscribe(plain, timeout_s=0.02, retry=Retry(attempts=1))
    def block(ride: Ride) -> None:
        let_go.wait(patient(20))

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await bus.send(plain, Ride("p0"))
        await bus.settle()
        let_go.set()
        letters = [*await bus.dead_letters(rides), *await bus.dead_letters(plain)]
    assert cancelled == ["r0", "r0"]
    assert [(letter.error, letter.attempts) for letter in letters] == [
        ("HandlerTimedOut: the handler took longer than 0.02 s", 2),
        ("HandlerTimedOut: the handler took longer than 0.02 s", 1),
    ]


async def test_a_deadline_of_the_handler_itself_is_an_ordinary_failure() -> None:
    """Its TimeoutError keeps its name."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")

    @app.subscribe(rides, timeout_s=20, retry=Retry(attempts=1))
    async def handle(ride: Ride) -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await bus.settle()
        assert [letter.error for letter in await bus.dead_letters(rides)] == ["TimeoutError: "]


async def test_a_filter_passes_records_over_and_its_failures_are_the_records() -> None:
    """False finishes the record; what it raises is tried again, then put aside; a wait of nothing is still another attempt."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    done: list[str] = []
    asked: list[str] = []

    def is_wanted(record: ConsumerRecord[str, Ride]) -> bool:
        assert record.value is not None
        asked.append(record.value.id)
        if record.value.zone < 0:
            raise ValueError("no such zone")
        return record.value.zone > 1

    @app.subscribe(rides, where=is_wanted, retry=Retry(attempts=2, backoff=Exponential(0, max=0)))
    async def handle(ride: Ride) -> None:
        done.append(ride.id)

    async with app.test() as bus:
        for name, zone in (("r0", 1), ("r1", 2), ("bad", -1), ("r3", 3)):
            await bus.send(rides, Ride(name, zone), key=name)
        await bus.settle()
        letters = await bus.dead_letters(rides)
        await until(_committed(app, {0: 4}))
    assert done == ["r1", "r3"]
    assert asked.count("bad") == 2
    assert [(letter.error, letter.attempts) for letter in letters] == [("ValueError: no such zone", 2)]


def _committed(app: Any, offsets: dict[int, int]) -> Any:
    async def check() -> bool:
        return await committed(app, "rides") == offsets

    return check


async def test_two_handlers_go_at_their_own_pace_and_both_must_be_done() -> None:
    """One is ahead; the offset waits for the other; what cannot be read is put aside once."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    may_go = asyncio.Event()
    fast: list[str] = []
    slow: list[str] = []

    @app.subscribe(rides)
    async def first(ride: Ride) -> None:
        fast.append(ride.id)

    @app.subscribe(rides)
    async def second(ride: Ride) -> None:
        await may_go.wait()
        slow.append(ride.id)

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"), key="k")
        async with Producer(app.bootstrap_servers) as producer:
            await producer.send_and_wait("rides", b"{", b"k")
        await bus.send(rides, Ride("r2"), key="k")

        async def ahead() -> bool:
            return fast == ["r0", "r2"]

        await until(ahead)
        assert not any((await committed(app, "rides")).values())
        may_go.set()
        await bus.settle()
        assert len(await bus.dead_letters(rides)) == 1
        assert app.worker is not None
        assert (app.worker.handled, app.worker.dead_lettered) == (2, 1)
        await until(_committed(app, {0: 3}))
    assert slow == ["r0", "r2"]


async def test_what_was_replayed_for_another_group_is_finished_untouched() -> None:
    """Only the group that failed handles it again."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    done: list[str] = []

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        done.append(ride.id)

    async with app.test() as bus:
        for name, group in (("other", b"elsewhere"), ("mine", b"surge"), ("null", None)):
            await bus.send(rides, Ride(name), headers=[("busway_replay-for-group", group)])
        await bus.settle()
        await until(_committed(app, {0: 3}))
    assert done == ["mine"]


# Batches


async def test_batches_are_in_order_and_full_when_there_is_enough() -> None:
    """The records of one partition; values or whole records."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json", partitions=2)
    values: list[list[str]] = []
    offsets: dict[int, list[int]] = collections.defaultdict(list)

    @app.subscribe(rides, batch=Batch(max_records=10, max_wait_s=0.02))
    async def take(batch: list[Ride], partition: int) -> None:
        values.append([ride.id for ride in batch])

    @app.subscribe(rides, batch=Batch(max_records=7, max_wait_s=0))
    def take_records(batch: list[ConsumerRecord[str, Ride]]) -> None:
        assert len({record.partition for record in batch}) == 1
        offsets[batch[0].partition] += [record.offset for record in batch]

    async with app.test() as bus:
        for number in range(95):
            await rides.send_soon(Ride(f"r{number}"), key=f"k{number % 9}")
        await bus.settle()
        await until(
            _committed(app, {partition: len(partition_offsets) for partition, partition_offsets in offsets.items()})
        )
    assert sum(map(len, values)) == 95
    assert max(map(len, values)) == 10
    for partition_offsets in offsets.values():
        assert partition_offsets == list(range(len(partition_offsets)))


async def test_a_poison_record_is_found_by_halving() -> None:
    """It alone is put aside, after the attempts of the whole; the others are handled, in order; the unreadable never get there."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    done: list[str] = []
    sizes: list[int] = []

    @app.subscribe(
        rides,
        batch=Batch(max_records=16, max_wait_s=5),
        retry=Retry(attempts=2),
        where=lambda record: record.value.zone < 9,
    )
    async def take(batch: list[Ride]) -> None:
        sizes.append(len(batch))
        if any(ride.id == "bad" for ride in batch):
            raise ValueError("poison")
        done.extend(ride.id for ride in batch)

    async with app.test() as bus:
        await app.stop()
        async with Producer(app.bootstrap_servers) as producer:
            for number in range(16):
                value = (
                    b"{"
                    if number == 2
                    else b'{"id":"%s","zone":%d}'
                    % (
                        b"bad" if number == 9 else b"r%d" % number,
                        9 if number == 4 else 1,
                    )
                )
                await producer.send_and_wait("rides", value, b"k%d" % number)
        await app.start()
        await bus.settle()
        letters = await bus.dead_letters(rides)
        await until(_committed(app, {0: 16}))
    assert done == [f"r{number}" for number in range(16) if number not in {2, 4, 9}]
    assert sizes[:2] == [14, 14]
    assert sizes[-1] < 14
    assert [letter.error.partition(":")[0] for letter in letters] == ["Undecodable", "ValueError"]
    assert letters[1].attempts > 2


async def test_a_batch_without_dead_letters_stops_at_its_poison() -> None:
    """What comes before it is committed."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")

    @app.subscribe(rides, batch=Batch(max_records=4, max_wait_s=5), retry=Retry(attempts=1), dead_letter=False)
    async def take(batch: list[Ride]) -> None:
        if any(ride.id == "r2" for ride in batch):
            raise ValueError("poison")

    async with app.test() as bus:
        for number in range(4):
            await bus.send(rides, Ride(f"r{number}"))
        with pytest.raises(HandlerFailed, match=r"rides-0 offset 2 after \d attempts.*poison"):
            await app.wait()
        assert await committed(app, "rides") == {0: 2}


async def test_a_batch_that_fills_does_not_hold_the_stop() -> None:
    """It is given up; the next start has all of it."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    sizes: list[int] = []

    @app.subscribe(rides, batch=Batch(max_records=3, max_wait_s=60))
    async def take(batch: list[Ride]) -> None:
        sizes.append(len(batch))

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))

        async def waits() -> bool:
            assert app.worker is not None
            return any(lane._resting for assigned in app.worker._assigned.values() for lane in assigned.lanes)

        await until(waits)
        async with asyncio.timeout(patient(4)):
            await app.stop()
        assert not any((await committed(app, "rides")).values())
        await app.start()
        await bus.send(rides, Ride("r1"))
        await bus.send(rides, Ride("r2"))
        await bus.settle()
    assert sizes == [3]


# Results


async def test_a_result_is_published_under_the_key_of_its_record() -> None:
    """None sends nothing, a list each of its members; two topics each get it; a name is enough."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    quotes = app.topic("quotes", value=Quote, format="json")
    copies = app.topic("copies", key=int, value=Quote, format="json")

    @app.publish("copies", key=lambda quote: len(quote.ride))
    @app.publish(quotes)
    @app.subscribe(rides)
    async def handle(ride: Ride) -> list[Quote] | Quote | None:
        return {0: None, 1: Quote(ride.id), 2: [Quote(ride.id), Quote("more")]}[ride.zone]

    async with app.test() as bus:
        for zone in range(3):
            await bus.send(rides, Ride(f"r{zone}", zone), key=f"k{zone}")
        await bus.settle()
        results = [(record.key, record.value) for record in await bus.records(quotes)]
        assert results == [("k1", Quote("r1")), ("k2", Quote("r2")), ("k2", Quote("more"))]
        assert [record.key for record in await bus.records(copies)] == [2, 2, 4]


async def test_a_result_that_does_not_fit_is_a_failure_of_the_record() -> None:
    """It is put aside like any other."""
    app = service()
    rides = app.topic("rides", value=Ride, format="json")
    quotes = app.topic("quotes", value=Quote, format="json")

    @app.publish(quotes)
    @app.subscribe(rides, retry=Retry(attempts=1))
    def handle(ride: Ride):  # type: ignore[no-untyped-def]
        return "text"

    async with app.test() as bus:
        await bus.send(rides, Ride("r0"))
        await bus.settle()
        (letter,) = await bus.dead_letters(rides)
    assert letter.error.startswith("Unencodable: 'text' is str; the topic takes Quote")
