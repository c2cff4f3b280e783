"""`app.test()`: an app on a fresh broker and registry, on real sockets, in this process.

Here: starting and stopping them, and a test's operations.
Not here: the app's time (`clock`), killing the app at a step (`crash`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator, Mapping
from typing import Any, Final, TypeVar

from busway.admin.admin import Admin
from busway.admin.missing import create_missing
from busway.admin.new_topic import NewTopic
from busway.app.application import Application
from busway.app.declaring.declared_topics import read_only_topics
from busway.app.extending.extension import Extension
from busway.app.model.retry import dead_letter_topic
from busway.app.model.topic import BadDeclaration, ConsumerRecord, Topic
from busway.consumer.consumer import Consumer
from busway.consumer.snapshot import read_to_end
from busway.errors import BuswayError, NotRunning
from busway.producer.producer import Producer
from busway.security.options import PLAINTEXT
from busway.testing.clock import Clock, ClockName, ManualTime, SkippedTime
from busway.testing.cluster import Broker, Cluster, running_cluster
from busway.testing.crash import Probe, first_of
from busway.testing.dead_letter import DeadLetter, dead_letter_of
from busway.testing.frozen_time import frozen_time
from busway.testing.queues import left_in_queue
from busway.types import Headers, Record, RecordMetadata, TopicPartition

K = TypeVar("K")
V = TypeVar("V")
SETTLE_S: Final = 20.0
NODE_S: Final = 3.0
"""Wait for a node of several before another is asked."""
_LOOK_S: Final = 0.005
"""Interval of polling whether records have reached the app."""
_EARLIEST, _LATEST = -2, -1


class Crash:
    """An armed crash. Awaiting it returns once the app was killed and runs again."""

    def __init__(self, bus: "TestBus") -> None:
        self._bus = bus

    def __await__(self) -> Generator[Any, None, None]:
        return self._bus._come_back().__await__()


class TestBus:
    """A test's handle on a running app; made by `App.test`."""

    __test__ = False  # no test class for pytest

    def __init__(
        self,
        app: Application,
        *,
        cluster: Cluster | None = None,
        clock: Clock | None = None,
        probe: Probe | None = None,
    ) -> None:
        self.app = app
        self._cluster = cluster
        self._clock = clock or SkippedTime()
        self._probe = probe
        self._writer: Producer | None = None
        self._preparing = asyncio.Lock()
        self._serdes = app.new_serdes()

    @property
    def waited_s(self) -> list[float]:
        """Waits between attempts, in order."""
        return self._clock.waited_s

    async def send(
        self, topic: Topic[K, V], value: V | None, key: K | None = None, *, headers: Headers = ()
    ) -> RecordMetadata:
        """Write a record from outside the app, which may be stopped or killed.

        Raises:
            Unencodable: the value or the key is of another type.
            BadDeclaration: the topic is of another app, or read_only.
        """
        if topic.app is not self.app:
            raise BadDeclaration(
                f"topic {topic.name} is of app {topic.app.name}; this bus sends those of {self.app.name}"
            )
        async with self._preparing:  # a test may send concurrently
            if not self._serdes.knows(topic):
                await self._serdes.prepare([topic])
            if self._writer is None:
                options = {"linger_ms": 0, "security": PLAINTEXT, **self._patience(), **self.app.producer_options}
                writer = Producer(self.app.bootstrap_servers, **options)
                await writer.start()
                self._writer = writer
        value_bytes, key_bytes = self._serdes.encode(topic, "value", value), self._serdes.encode(topic, "key", key)
        return await (await self._writer.send(topic.name, value_bytes, key_bytes, headers=headers))

    def _patience(self) -> Mapping[str, int]:
        """Return the writer's wait for a node, shorter where another can replace it."""
        several = self._cluster is not None and len(self._cluster.node_ids) > 1
        return {"request_timeout_ms": int(NODE_S * 1000)} if several else {}

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer.stop()
        await self._serdes.close()

    async def settle(self, timeout_s: float = SETTLE_S) -> None:
        """Wait until subscribed topics are handled and extensions done: an `Outbox` has then published.

        Includes records that the app or its handlers sent.

        Raises:
            AssertionError: not settled in time; the text lists what is left.
            HandlerFailed: the app stopped by itself.
        """
        if self._probe is not None:
            await self._probe.ready()
        async with asyncio.timeout(None) as deadline, Admin(self.app.bootstrap_servers, security=PLAINTEXT) as admin:
            end = asyncio.get_running_loop().time() + timeout_s
            deadline.reschedule(end + 5)
            busy = True
            while busy:
                if self.app.is_running:
                    await self.app.producer.flush()  # `send_soon` may not have reached the topic yet
                await self._handle_all(admin, end, timeout_s)
                busy = False
                for extension in self.app.extensions:
                    busy |= await self._settled(extension, end, timeout_s)

    async def _handle_all(self, admin: Admin, end: float, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        while left := await self._left(admin):
            workers = [worker for worker in (self.app.worker, *self.app.queue_workers) if worker is not None]
            for worker in workers:
                worker.progress.clear()
            if left != await self._left(admin):
                continue
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self.app.wait())]
            waits += [asyncio.ensure_future(worker.progress.wait()) for worker in workers]
            await asyncio.wait(waits, timeout=max(end - loop.time(), 0), return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if waits[0].done() and not waits[0].cancelled():
                await waits[0]
            assert loop.time() < end, (
                f"not settled after {timeout_s} s; records not handled yet: {left}{self._clock.standing()}"
            )

    async def _settled(self, extension: Extension, end: float, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout_at(end):
                return await extension.settle()
        except TimeoutError:
            what = f"{type(extension).__name__} is not done{self._clock.standing()}"
            raise AssertionError(f"not settled after {timeout_s} s; {what}") from None

    async def _left(self, admin: Admin) -> dict[str, int]:
        left = await self._left_in_partitions(admin)
        for worker in self.app.queue_workers:
            left.update(await left_in_queue(admin, worker))
        return left

    async def _left_in_partitions(self, admin: Admin) -> dict[str, int]:
        worker = self.app.worker
        if worker is None:
            return {}
        names = {topic.name for route in self.app.routes for topic in route.topics}
        described = await admin.describe_topics(sorted(names))
        partitions = [TopicPartition(name, info.number) for name in names for info in described[name].partitions]
        ends = await admin.list_offsets(dict.fromkeys(partitions, _LATEST))
        committed = await admin.list_group_offsets(self.app.group_id)
        done = worker.positions()
        left = {}
        for partition, end in ends.items():
            at = done.get(partition)
            if at is None:
                committed_offset = committed.get(partition)
                at = committed_offset.offset if committed_offset is not None else 0
            if at < end:
                left[f"{partition.topic}-{partition.partition}"] = end - at
        return left

    async def records(self, topic: Topic[K, V]) -> list[ConsumerRecord[K, V]]:
        """Return all records of a topic, decoded, by partition and offset."""
        records = [record async for record in self.app.read(topic)]
        return sorted(records, key=lambda record: (record.partition, record.offset))

    async def dead_letters(self, topic: Topic[K, V], *, group: str | None = None) -> list[DeadLetter[K, V]]:
        """Return the app's dead letters of a topic, decoded. `group`: those of a queue."""
        name, serdes = dead_letter_topic(topic.name, group or self.app.group_id), self.app.serdes
        return [await dead_letter_of(record, topic, serdes) for record in await self._read(name)]

    # Restarts and crashes

    async def restart(self) -> None:
        """Stop the app, draining, and start it from its committed offsets; return once it has partitions."""
        with self._clock.passing():
            await self.app.stop()
        await self._start()

    def crash(self, *, at: str) -> Crash:
        """Kill the app at a step (`crash_points`), then restart it. Arm, cause the step, await.

            crash = bus.crash(at="after-handler")
            await bus.send(rides, Ride("r1"))
            await crash
            await bus.settle()

        Connections drop at once; nothing is drained, flushed or committed. Handlers are cancelled where they wait,
        extensions lose their state, the lifespan is left; the service's variables stay. The dead member is removed from
        the group (`Admin.remove_members`), which saves the session timeout.

        Raises:
            ValueError: no such step.
            AssertionError: when awaited, the step was not reached in time.
        """
        assert self._probe is not None, "this bus was not made by app.test()"
        self._probe.arm(at)
        self._step()
        return Crash(self)

    async def _come_back(self) -> None:
        probe = self._probe
        assert probe is not None
        if probe.killing is None:
            await first_of(
                probe.fallen, self.app, f"{probe.point} was not reached; send a record before you await the crash"
            )
        assert probe.killing is not None
        with self._clock.passing():
            await probe.killing
        await self._start()

    async def restart_broker(self) -> None:
        """Restart the broker cleanly under the running app; port and data stay."""
        broker = self._broker()
        await broker.stop()
        await broker.start()

    async def crash_broker(self) -> None:
        """Kill the broker and start it again under the running app; it recovers its data."""
        broker = self._broker()
        await broker.crash()
        await broker.start()

    @property
    def cluster(self) -> Cluster:
        """Addresses and nodes, to kill and restart single ones: `app.test(nodes=3)`."""
        assert self._cluster is not None, "this bus was not made by app.test()"
        return self._cluster

    def _broker(self) -> Broker:
        return self.cluster.broker

    async def advance(self, seconds: float) -> None:
        """Advance the app's time: `app.test(clock="manual")`. Records already sent reach the app first.

        Waits end in order, each after everything due before it is done. The app's time covers waits between attempts,
        the commit interval, windows of batches, an `Outbox`'s waits, and each `asyncio.sleep`, `asyncio.timeout` and
        `loop.call_later` of handlers, dependencies, extensions, the lifespan and their tasks.

        Real time drives clients, broker and registry with their timers (linger, sessions, requests, retention), reading
        of tables, the drain of a stopping app, the test's waits, `time`, `datetime` and record timestamps and, while
        the bus starts or stops the app, the app's time. Calls in an executor of the event loop are waited for; other
        threads and processes are not.

        Raises:
            ValueError: waits are skipped on this bus.
            AssertionError: records did not reach the app, or due work was not done, within 20 s.
        """
        if not isinstance(self._clock, ManualTime):
            raise ValueError('waits are skipped on this bus; app.test(clock="manual") lets the test move its clock')
        await self._given()
        await self._clock.advance(seconds)

    async def _given(self) -> None:
        """Wait until the app has received all records, at most `SETTLE_S`; a full, stopped or killed app takes none."""
        if self.app.worker is None:
            return
        consumer = self.app.worker.consumer
        try:
            async with asyncio.timeout(SETTLE_S):
                with contextlib.suppress(BuswayError, ValueError):  # the consumer ended, or a partition was revoked
                    ends = await consumer.end_offsets(consumer.assignment())
                    while self._is_fed() and await _is_behind(consumer, ends):  # noqa: ASYNC110 - positions are no event
                        await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise AssertionError(f"time cannot pass on: records did not reach the app within {SETTLE_S:g} s") from None

    def _is_fed(self) -> bool:
        return (
            self.app.worker is not None and self.app.problem is None and (self._probe is None or self._probe.at is None)
        )

    async def resting(self, timeout_s: float = SETTLE_S) -> None:
        """Wait until the app waits between two attempts: `app.test(clock="manual")`.

        Raises:
            ValueError: waits are skipped on this bus.
            TimeoutError: not in time.
        """
        if not isinstance(self._clock, ManualTime):
            raise ValueError('waits are skipped on this bus; app.test(clock="manual") lets the test move its clock')
        async with asyncio.timeout(timeout_s):
            while not self._clock.due_s:
                self._clock.stirred.clear()
                await self._clock.stirred.wait()

    async def _start(self) -> None:
        with self._clock.starting():
            await self.app.start()
        self._step()
        if self._probe is not None:
            with self._clock.passing():
                await self._probe.ready()

    def _step(self) -> None:
        """Report steps only where needed: each costs a wait for each record."""
        if self._probe is not None and self.app.worker is not None:
            others = [extension for extension in self.app.extensions if extension is not self._probe]
            watched = any(type(extension).reached is not Extension.reached for extension in others)
            self.app.worker.hooks.stepped = watched or self._probe.point is not None

    async def _read(self, topic: str) -> list[Record]:
        async with Admin(self.app.bootstrap_servers, security=PLAINTEXT) as admin:
            if topic not in await admin.list_topics():
                return []
        where = self.app.bootstrap_servers
        contents = read_to_end(where, topic, isolation_level="read_committed", security=PLAINTEXT)
        return sorted([record async for record in contents], key=lambda record: (record.partition, record.offset))


async def _is_behind(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> bool:
    for partition in consumer.assignment() - consumer.paused():
        if await consumer.position(partition) < ends.get(partition, 0):
            return True
    return False


@contextlib.asynccontextmanager
async def running_test_bus(app: Application, *, clock: ClockName = "skip", nodes: int = 1) -> AsyncIterator[TestBus]:
    """Run the app on fresh brokers and a registry within the block; arguments and errors as in `App.test`."""
    _refuse_running(app)
    async with running_cluster(nodes) as cluster, bus_on(cluster, app, clock=clock) as bus:
        yield bus


@contextlib.asynccontextmanager
async def bus_on(cluster: Cluster, app: Application, *, clock: ClockName = "skip") -> AsyncIterator[TestBus]:
    _refuse_running(app)
    with frozen_time() if clock == "manual" else contextlib.nullcontext() as frozen:
        async with _bus_in(cluster, app, SkippedTime() if frozen is None else ManualTime(frozen)) as bus:
            yield bus


@contextlib.asynccontextmanager
async def _bus_in(cluster: Cluster, app: Application, time: Clock) -> AsyncIterator[TestBus]:
    probe = Probe(time, app)
    before = (app.bootstrap_servers, app.security, app.schema_registry, app.sleep, list(app.extensions))
    app.bootstrap_servers, app.schema_registry = cluster.bootstrap_servers, cluster.schema_registry
    app.security, app.sleep = PLAINTEXT, time.sleep
    app.extend(probe)
    bus = TestBus(app, cluster=cluster, clock=time, probe=probe)
    try:
        # The test replaces their writers.
        await create_missing(app, [NewTopic(name) for name in read_only_topics(app)])
        with time.starting():
            await app.start()
        bus._step()
        with time.passing():
            await probe.assigned_or_stopped()
        time.begin()
        yield bus
        assert probe.point is None, f"the app was to be killed at {probe.point}; await what bus.crash(…) returned"
    finally:
        await cluster.heal()
        with time.passing():
            if probe.killing is not None:
                await probe.killing
            await app.stop()
        await bus.close()
        app.bootstrap_servers, app.security, app.schema_registry, app.sleep, app.extensions = before


def _refuse_running(app: Application) -> None:
    if app.is_running:
        raise NotRunning(f"app {app.name} is running already; end that first, or test another App")
