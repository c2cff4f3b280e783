"""A service under everything at once, and the promises that must hold afterwards.

Here: two topics, four handlers, several instances that come, drain, are killed at named steps and lose their broker,
all drawn from one seed; and the checks. By hand: `python -m tests.integration.app.torture --seconds 300 --seed 7`; its
short form is `test_torture`.

Checked at every commit: no offset passes a record that some handler is not done with. At the end: every record was handled by every
handler or lies among the dead letters; the first time a key's records are finished is in their order; what a handler published is there
for each record; the table's totals are exact.
"""

import argparse
import asyncio
import collections
import dataclasses
import itertools
import logging
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
from tests.support.patience import patient

from busway import Admin, App, Batch, ConsumerRecord, Exponential, Extension, Retry, TopicPartition
from busway.app.extending.extension import CRASH_POINTS, Handling
from busway.consumer.snapshot import read_to_end
from busway.testing.bus import TestBus, bus_on
from busway.testing.cluster import Cluster, running_cluster

logger = logging.getLogger("busway.torture")
PARTITIONS: Final = 4
KEYS: Final = 23
INSTANCES_MAX: Final = 3
WAVE: Final = 40
"""Records that are sent between two faults, to each topic."""
END_S: Final = patient(60.0)
SESSION_MS: Final = 6_000
"""A member that was killed while it joined is unknown to who killed it; the others wait for so long."""
RETRY: Final = Retry(attempts=4, backoff=Exponential(0.002, 2, 0.02))
PATIENT: Final = Retry(attempts=30, backoff=Exponential(0.002, 2, 0.02), give_up_on=(ValueError,))
"""Only poison is put aside: of a record that was, and came again after a crash, it would be unknown whether it counts."""
Where = tuple[str, int, int]
FAULTS: Final = ("join", "join", "drain", "kill", "kill", "restart broker", "crash broker", "wait")


@dataclasses.dataclass
class Event:
    """What is sent; `poison` always fails."""

    number: int
    amount: int
    poison: bool = False


class Ledger:
    """What all instances did, and what must be true of it; one for the group, given to each app.

    Attributes:
        finished: for each handler the records it is done with, in the order in which it first was.
        broken: promises that were broken, in words.
    """

    def __init__(self, handlers: Mapping[str, tuple[str, ...]]) -> None:
        self.finished: dict[str, dict[Where, None]] = {name: {} for names in handlers.values() for name in names}
        self.broken: list[str] = []
        self.calls = 0
        self.commits = 0
        self._handlers = handlers
        self._passed: dict[TopicPartition, int] = collections.defaultdict(int)

    def done(self, handler: str, record: ConsumerRecord[Any, Any]) -> None:
        """The handler is about to return; or to fail for good, which `finished` tells."""
        self.calls += 1
        self.finished[handler].setdefault((record.topic, record.partition, record.offset))

    def buried(self, handling: Handling) -> None:
        """A record that is put aside counts as finished for order, and for commits."""
        name = handling.route.function.__name__
        self.finished[name].setdefault((handling.topic, handling.partition, handling.offset))

    def committed_up_to(self, partition: TopicPartition, offset: int) -> None:
        """Every record below must be done with."""
        self.commits += 1
        for at in range(self._passed[partition], offset):
            for name in self._handlers[partition.topic]:
                if (partition.topic, partition.partition, at) not in self.finished[name]:
                    self.broken.append(f"{partition} was committed at {offset}, {name} is not done with {at}")
        self._passed[partition] = max(self._passed[partition], offset)


class Watch(Extension):
    """The ledger's ears in one instance."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def finished(self, handling: Handling) -> None:
        """Only what is put aside; the handlers tell the rest."""
        if handling.outcome == "dead_lettered":
            self._ledger.buried(handling)

    async def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """What the brokers have acknowledged."""
        for partition, offset in offsets.items():
            self._ledger.committed_up_to(partition, offset)


class Instance:
    """One instance of the service."""

    def __init__(self, ledger: Ledger, chance: random.Random, *, ahead: int) -> None:
        self.app = app = App(
            "torture",
            commit_interval_s=0.05,
            drain_timeout_s=2,
            consumer={"heartbeat_interval_ms": 50, "session_timeout_ms": SESSION_MS, "max_poll_records": ahead},
        )
        self.orders = app.topic("orders", value=Event, format="json", partitions=PARTITIONS)
        self.sales = app.topic("sales", value=Event, format="json", partitions=PARTITIONS)
        self.published = app.topic("published", value=Event, format="json", partitions=PARTITIONS)
        self.sent = app.topic("sent", value=Event, format="json", partitions=PARTITIONS)
        self.totals = app.table("totals", value=int, format="json")
        self._ledger = ledger
        self._chance = chance
        app.extend(Watch(ledger))

        @app.publish(self.published)
        @app.subscribe(self.orders, retry=RETRY, concurrency=4, timeout_s=0.05)
        async def publish(event: Event, record: ConsumerRecord[str, Event]) -> Event:
            await self._work(event, may_hang=True)
            ledger.done("publish", record)
            return event

        @app.subscribe(self.orders, retry=RETRY, batch=Batch(max_records=20, max_wait_s=0.01))
        async def batch(records: list[ConsumerRecord[str, Event]]) -> None:
            for record in records:
                assert record.value is not None
                await self._work(record.value, rarely=10)
                await self.sent.send_soon(record.value, key=record.key)
            for record in records:
                ledger.done("batch", record)

        @app.subscribe(self.sales, retry=PATIENT, concurrency=8)
        async def total(event: Event, record: ConsumerRecord[str, Event], key: str) -> None:
            if not self.totals.includes(key, record):
                await self.totals.put(key, self.totals.get(key, 0) + event.amount)
            await self._work(event)
            ledger.done("total", record)

        @app.subscribe(self.sales, retry=RETRY, ordering="partition")
        async def strict(event: Event, record: ConsumerRecord[str, Event]) -> None:
            await self._work(event)
            ledger.done("strict", record)

    async def _work(self, event: Event, *, may_hang: bool = False, rarely: int = 1) -> None:
        """What handlers do: nothing, or wait, or fail, or hang until their time is over."""
        if event.poison:
            raise ValueError(f"poison {event.number}")
        what = self._chance.random() * rarely
        if what < 0.08:
            raise ConnectionError("away for a moment")
        if what < 0.10 and may_hang:
            await asyncio.Event().wait()
        elif what < 0.25:
            await asyncio.sleep(self._chance.random() * 0.004)


HANDLERS: Final = {"orders": ("publish", "batch"), "sales": ("total", "strict")}


class Torture:
    """One run.

    Args:
        cluster: where.
        seed: of all that is drawn.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ledger = Ledger(HANDLERS)
        self.amounts: dict[str, int] = collections.defaultdict(int)
        self.keys: dict[str, list[str]] = {}
        self.faults: collections.Counter[str] = collections.Counter()
        self._cluster = cluster
        self._numbers = itertools.count()
        self._running: list[tuple[Instance, TestBus, AsyncExitStack]] = []
        self._sender = App("sender", cluster.bootstrap_servers)
        self._topics = [
            self._sender.topic(name, value=Event, format="json", partitions=PARTITIONS) for name in HANDLERS
        ]
        self._events: dict[str, list[Event]] = collections.defaultdict(list)

    async def run(self, seconds: float) -> None:
        """Send and break for so long, let it settle, check.

        Raises:
            AssertionError: a promise was broken.
        """
        loop = asyncio.get_running_loop()
        async with self._sender:
            await self._join()
            end = loop.time() + seconds
            while loop.time() < end:
                sending = asyncio.ensure_future(self._wave())
                fault = self.chance.choice(FAULTS)
                try:
                    await self._break(fault)
                finally:
                    await sending
                assert not self.ledger.broken, self.ledger.broken[:5]
            await self._settled(loop.time() + END_S)
            await self._check()

    async def close(self) -> None:
        """End the instances."""
        while self._running:
            await self._running.pop()[2].aclose()

    async def _wave(self) -> None:
        futures = []
        for topic in self._topics:
            for _ in range(WAVE):
                key = f"k{self.chance.randrange(KEYS)}"
                event = Event(next(self._numbers), self.chance.randrange(100), self.chance.random() < 0.01)
                self._events[topic.name].append(event)
                if topic.name == "sales" and not event.poison:
                    self.amounts[key] += event.amount
                futures.append(await topic.send_soon(event, key=key))
        await asyncio.gather(*futures)

    # Faults

    async def _break(self, fault: str) -> None:
        self.faults[fault] += 1
        logger.info("%s, %d instances", fault, len(self._running))
        if fault == "join" and len(self._running) < INSTANCES_MAX:
            await self._join()
        elif fault == "drain" and len(self._running) > 1:
            _, _, stack = self._running.pop(self.chance.randrange(len(self._running)))
            await stack.aclose()
        elif fault == "kill":
            _, bus, _ = self.chance.choice(self._running)
            crash = bus.crash(at=self.chance.choice(CRASH_POINTS))
            sending = asyncio.ensure_future(self._until_killed(bus))
            try:
                await crash
            finally:
                sending.cancel()
                await asyncio.wait([sending])
        elif fault == "restart broker":
            await self._cluster.broker.stop()
            await self._cluster.broker.start()
        elif fault == "crash broker":
            await self._cluster.broker.crash()
            await self._cluster.broker.start()
        else:
            await asyncio.sleep(self.chance.random() * 0.2)

    async def _until_killed(self, bus: TestBus) -> None:
        """Something must happen for a step to be reached, on each partition."""
        while True:
            await asyncio.shield(asyncio.ensure_future(self._wave()))
            await asyncio.sleep(0.1)

    async def _join(self) -> None:
        instance = Instance(self.ledger, self.chance, ahead=self.chance.choice((20, 500)))
        stack = AsyncExitStack()
        bus = await stack.enter_async_context(bus_on(self._cluster, instance.app))
        self._running.append((instance, bus, stack))

    # Afterwards

    async def _settled(self, end_s: float) -> None:
        """Returns when the group has committed all there is."""
        loop = asyncio.get_running_loop()
        async with Admin(self._cluster.bootstrap_servers) as admin:
            partitions = [TopicPartition(name, partition) for name in HANDLERS for partition in range(PARTITIONS)]
            ends = await admin.list_offsets(dict.fromkeys(partitions, -1))
            while True:
                offsets = await admin.list_group_offsets("torture")
                left = {
                    partition: (offsets[partition].offset if partition in offsets else 0, end)
                    for partition, end in ends.items()
                    if end and (partition not in offsets or offsets[partition].offset < end)
                }
                if not left:
                    return
                for instance, _, _ in self._running:
                    assert instance.app.problem is None, instance.app.problem
                assert loop.time() < end_s, f"not settled: {left}"
                await asyncio.sleep(0.05)

    async def _read(self, topic: str) -> list[Any]:
        async with Admin(self._cluster.bootstrap_servers) as admin:
            if topic not in await admin.list_topics():
                return []
        return [record async for record in read_to_end(self._cluster.bootstrap_servers, topic)]

    async def _check(self) -> None:
        ledger = self.ledger
        assert not ledger.broken, ledger.broken[:5]
        for name, handlers in HANDLERS.items():
            records = await self._read(name)
            letters = {_number(record.value) for record in await self._read(f"{name}.torture.dlt")}
            poison = {event.number for event in self._events[name] if event.poison}
            assert poison <= letters, f"poison of {name} that is nowhere: {sorted(poison - letters)[:5]}"
            for handler in handlers:
                self._check_handler(handler, records)
            sent = {_number(record.value) for record in records}
            assert sent == {event.number for event in self._events[name]}, f"{name}: sent and written differ"
        alive = {event.number for event in self._events["orders"] if not event.poison}
        letters = {_number(record.value) for record in await self._read("orders.torture.dlt")}
        for output in ("published", "sent"):
            written = {_number(record.value) for record in await self._read(output)}
            assert alive - letters <= written, f"{output} lacks {sorted(alive - letters - written)[:5]}"
        await self._check_totals()

    def _check_handler(self, handler: str, records: list[Any]) -> None:
        finished = self.ledger.finished[handler]
        order = {where: number for number, where in enumerate(finished)}
        last: dict[tuple[int, bytes], tuple[int, int]] = {}
        for record in sorted(records, key=lambda record: (record.partition, record.offset)):
            where = (record.topic, record.partition, record.offset)
            assert where in order, f"{handler} never finished {where}"
            before = last.get((record.partition, record.key))
            assert before is None or before[0] < order[where], (
                f"{handler} finished {where} of key {record.key!r} before offset {before and before[1]}"
            )
            last[record.partition, record.key] = order[where], record.offset

    async def _check_totals(self) -> None:
        totals: dict[str, int] = {}
        for instance, _, _ in self._running:
            totals |= dict(instance.totals)
        wrong = {
            key: (totals.get(key, 0), wanted) for key, wanted in self.amounts.items() if totals.get(key, 0) != wanted
        }
        assert not wrong, f"totals that are not what was sold: {wrong}"


def _number(value: bytes | None) -> int:
    return msgspec.json.decode(value or b"", type=Event).number


async def torture(seed: int, seconds: float) -> Torture:
    """A run on a cluster of its own."""
    async with running_cluster() as cluster:
        run = Torture(cluster, seed)
        try:
            await run.run(seconds)
        finally:
            await run.close()
        return run


def main() -> None:
    """Seed after seed, or one."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--seconds", type=float, default=20.0, help="of one seed")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--log-level", default="ERROR")
    given = parser.parse_args()
    logging.basicConfig(level=given.log_level)
    logging.getLogger("busway.app").setLevel("CRITICAL" if given.log_level == "ERROR" else given.log_level)
    logger.setLevel(logging.INFO)
    for seed in range(given.seed, given.seed + given.seeds):
        print("seed", seed, flush=True)
        run = asyncio.run(torture(seed, given.seconds))
        print(dict(run.faults), f"{run.ledger.calls} calls, {run.ledger.commits} commits", flush=True)


if __name__ == "__main__":
    main()
