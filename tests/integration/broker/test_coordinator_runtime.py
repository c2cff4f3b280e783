"""The runtime of coordinators on a real node, with shards that count: nothing here is about groups."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.broker.test_response_before_durable import Gate, held
from tests.support.patience import patient

from busway.net.machine import OS
from busway_bus.coordinator.runtime import Runtime
from busway_bus.handlers.common.topic_creation import create_topic
from busway_bus.kernel.deadlines import Deadlines
from busway_bus.kernel.decision import PARKED, Decision, Unanswered, Waiter
from busway_bus.kernel.limits import RECORDS_PER_OWN_BATCH_MAX
from busway_bus.log.partition_log import PartitionLog
from busway_bus.metadata.image import TopicImage
from busway_bus.scheduling.time_slices import Slices
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.record import decode_records

Count = tuple[str, int | None]
TICK_MAX = 2


class Counters:
    """A shard of numbers by name. Who waits for one to be reached is soft state; the numbers are in the log."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.awaited: dict[str, tuple[int, Waiter]] = {}
        self.deadlines = Deadlines()
        self.ticks: list[int] = []

    @staticmethod
    def encode(record: Count) -> tuple[bytes, bytes | None]:
        name, number = record
        return name.encode(), None if number is None else str(number).encode()

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> Count | None:
        return None if key == b"?" else (key.decode(), None if value is None else int(value))

    def apply(self, record: Count, now: int) -> None:
        name, number = record
        if number is None:
            self.numbers.pop(name, None)
        else:
            self.numbers[name] = number

    def next_deadline(self) -> int | None:
        return self.deadlines.earliest()

    def tick(self, now: int) -> Decision[None]:
        """A caller that waited long enough is answered `too late`."""
        self.ticks.append(now)
        over = [self.awaited.pop(name) for name in self.deadlines.due(now, TICK_MAX)]
        return Decision(reply=None, responses=tuple((waiter, "too late") for _, waiter in over))

    def unloaded(self) -> list[Waiter]:
        return [waiter for _, waiter in self.awaited.values()]

    def add(self, name: str, by: int) -> Decision[int]:
        """Count; its waiters are notified."""
        number = self.numbers.get(name, 0) + by
        due = ()
        if name in self.awaited and number >= self.awaited[name][0]:
            due = ((self.awaited.pop(name)[1], f"reached {number}"),)
            self.deadlines.discard(name)
        return Decision(records=((name, number),), reply=number, responses=due)

    def remove_all(self) -> Decision[int]:
        """Forget every number."""
        return Decision(records=tuple((name, None) for name in self.numbers), reply=len(self.numbers))

    def wait(self, name: str, number: int, until: int, waiter: Waiter) -> Decision[str | Unanswered]:
        """Wait until it is reached."""
        if self.numbers.get(name, 0) >= number:
            return Decision(reply="it is already")
        before = self.awaited.get(name)
        self.awaited[name] = (number, waiter)
        self.deadlines.put(name, until)
        return Decision(reply=PARKED, responses=() if before is None else ((before[1], "another one waits now"),))


class Bench:
    """A node with a topic of counters."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        assert cluster.node is not None
        self.services = cluster.node.services
        self.topic = topic
        self.other_image: TopicImage | None = None
        """What the image is taken for instead, where it is set."""
        self.runtime = self.another()

    def another(self) -> Runtime[Counters]:
        """A runtime that knows nothing yet, as after a start."""

        return Runtime(
            self.topic,
            Counters,
            replicas=self.services.replicas,
            machine=OS,
            image=lambda: self.other_image or self.services.image.topics.get(self.topic),
        )

    async def create(self, partitions: int = 1) -> None:
        await create_topic(self.services, self.topic, partitions=partitions, replication_factor=1)

    @property
    def log(self) -> PartitionLog:
        return self.services.replicas.find(self.topic, 0).log

    def logged(self) -> dict[str, int]:
        """What a reader of the log finds."""
        reader = Counters()
        for batch in self.log.batches():
            for record in decode_records(batch):
                count = Counters.decode(record.key or b"", record.value)
                assert count is not None
                reader.apply(count, 0)
        return reader.numbers

    async def add(self, name: str, by: int = 1, number: int = 0) -> int:
        return await self.runtime.write(number, lambda shard: shard.add(name, by))

    def wait(self, name: str, number: int, *, for_ms: int = 60_000) -> "asyncio.Task[str]":
        until = self.runtime.now() + for_ms
        operation: Callable[[Counters, Waiter], Decision[str | Unanswered]] = lambda shard, waiter: shard.wait(  # noqa: E731
            name, number, until, waiter
        )
        return asyncio.ensure_future(self.runtime.park(0, operation, lambda _: None))

    @contextmanager
    def full(self) -> Iterator[None]:
        """No room on the disk."""

        def refuse(*_: Any, **__: Any) -> Any:
            raise OSError(28, "No space left on device")

        log = self.log
        log.append_own = refuse  # type: ignore[method-assign]
        try:
            yield
        finally:
            del log.append_own

    @contextmanager
    def held(self) -> Iterator[Gate]:
        """The disk holds syncs back."""
        with held(self.services.replicas.find(self.topic, 0)) as gate:
            yield gate

    def lose(self) -> None:
        """What is not durable yet will never be, as where another leader has taken over."""
        partition = self.services.replicas.find(self.topic, 0)
        partition.acknowledgements.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A topic of one partition."""
    async with LocalCluster() as cluster:
        made = Bench(cluster, "counters")
        await made.create()
        yield made
        made.runtime.close()


async def turn() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def code(task: "asyncio.Task[Any]") -> ErrorCode:
    """What a task was refused with."""
    problem = task.exception()
    assert isinstance(problem, KafkaError)
    return problem.code


async def test_answers_wait_until_what_they_tell_is_durable(bench: Bench) -> None:
    """The writer's own, those of requests that were parked, and of readers; a second decision sees the first at once."""
    await bench.add("a")
    waiting = bench.wait("a", 3)
    await turn()
    with bench.held() as gate:
        writers = [asyncio.ensure_future(bench.add("a")) for _ in range(2)]
        reader = asyncio.ensure_future(bench.runtime.read(0, lambda shard: dict(shard.numbers)))
        while not gate.reached.is_set():
            await turn()
        assert bench.runtime.shard(0).numbers == {"a": 3} == bench.logged()
        assert bench.runtime.decide(0, lambda shard: Decision(reply=shard.numbers["a"])) == 3, (
            "who may be told at once is"
        )
        assert not any(task.done() for task in (*writers, waiting, reader))
    assert await asyncio.gather(*writers) == [2, 3]
    assert (await waiting, await reader) == ("reached 3", {"a": 3})


async def test_what_finds_no_room_has_not_happened(bench: Bench) -> None:
    """The writer and the waiters look for the coordinator again; the next one finds the state as it was."""
    await bench.add("a")
    waiting = bench.wait("a", 2)
    await turn()
    with bench.full():
        with pytest.raises(KafkaError) as refusal:
            await bench.add("a")
        assert refusal.value.code is ErrorCode.NOT_COORDINATOR
        assert bench.runtime.shard(0).numbers == {"a": 1} == bench.logged()
    await turn()
    assert code(waiting) is ErrorCode.NOT_COORDINATOR
    assert await bench.add("a") == 2


async def test_what_does_not_become_durable_takes_its_shard_along(bench: Bench) -> None:
    """No caller is left waiting; the shard is served again, with what its log has, once all of that is durable."""
    await bench.add("a")
    before = bench.runtime.shard(0)
    waiting = bench.wait("b", 1)
    await turn()
    with bench.held() as gate:
        writer = asyncio.ensure_future(bench.add("a"))
        while not gate.reached.is_set():
            await turn()
        bench.lose()
        await turn()
        assert {code(writer), code(waiting)} == {ErrorCode.NOT_COORDINATOR}
        with pytest.raises(KafkaError) as refusal:
            bench.runtime.shard(0)
        assert refusal.value.code is ErrorCode.NOT_COORDINATOR, "what is not durable is not told"
    partition = bench.services.replicas.find("counters", 0)
    while partition.high_watermark < partition.log.end_offset:
        await turn()
    bench.runtime.retry_failed()
    await bench.runtime.wait_loaded(within_s=patient(10))
    assert bench.runtime.shard(0) is not before
    assert await bench.add("a") == 3


async def test_a_shard_goes_with_its_leader_and_comes_back_with_it(bench: Bench) -> None:
    """Another broker leads the partition: who waits looks for it, and so does everyone who comes; then it is this one again."""
    await bench.add("a")
    waiting = bench.wait("a", 2)
    await turn()
    partition = bench.services.replicas.find("counters", 0)
    image = bench.services.image.topics["counters"].partitions[0]
    elsewhere = replace(image, leader=image.leader + 1, leader_epoch=image.leader_epoch + 1)
    partition.registered(elsewhere, 0)
    bench.other_image = replace(bench.services.image.topics["counters"], partitions=(elsewhere,))
    bench.runtime.follow()
    await turn()
    assert code(waiting) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError) as refusal:
        await bench.add("a")
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    partition.registered(replace(image, leader_epoch=image.leader_epoch + 2), 0)
    bench.other_image = None
    bench.runtime.load()
    await bench.runtime.wait_loaded(within_s=patient(10))
    assert await bench.add("a") == 2


async def test_only_partitions_that_changed_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: changes of other topics cost nothing, one of this topic its own partitions."""
    async with LocalCluster() as cluster:
        bench = Bench(cluster, "counters")
        await bench.create(partitions=3)
        bench.runtime.load()
        await bench.runtime.wait_loaded(within_s=patient(10))
        looked: list[int] = []
        monkeypatch.setattr(bench.runtime, "_follow", looked.append)
        await create_topic(bench.services, "another", partitions=1, replication_factor=1)
        bench.runtime.follow()
        assert looked == []
        image = bench.services.image.topics["counters"]
        first, second, third = image.partitions
        bench.other_image = replace(
            image, partitions=(first, replace(second, leader=7), replace(third, leader_epoch=9))
        )
        bench.runtime.follow()
        assert looked == [1, 2]
        bench.runtime.close()


@pytest.mark.slow
@pytest.mark.parametrize("back", [False, True])
async def test_a_leader_may_change_while_its_log_is_read(monkeypatch: pytest.MonkeyPatch, back: bool) -> None:
    """What was read before another broker led is not served; where this one leads again it is read once more."""
    gate, run, runs = asyncio.Event(), Slices.run, 0

    async def held_back(self: Slices, steps: Any) -> Any:
        nonlocal runs
        runs += 1
        answer = await run(self, steps)
        await gate.wait()
        return answer

    async with LocalCluster() as cluster:
        bench = Bench(cluster, "counters")
        await bench.create()
        await bench.add("a")
        bench.runtime.close()
        monkeypatch.setattr(Slices, "run", held_back)
        bench.runtime = bench.another()
        bench.runtime.load()
        await turn()
        partition = bench.services.replicas.find("counters", 0)
        image = bench.services.image.topics["counters"].partitions[0]
        partition.registered(replace(image, leader=image.leader + 1, leader_epoch=image.leader_epoch + 1), 0)
        if back:
            partition.registered(replace(image, leader_epoch=image.leader_epoch + 2), 0)
        gate.set()
        while runs < 1 + back:
            await turn()
        await bench.runtime.wait_loaded(within_s=patient(10))
        await turn()
        await bench.runtime.wait_loaded(within_s=patient(10))
        assert list(bench.runtime.shards()) == ([0] if back else [])
        assert runs == 1 + back
        bench.runtime.close()


@pytest.mark.slow
async def test_a_shard_is_loaded_beside_what_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is read says so, others are served meanwhile; records of types that are not known are gone past."""
    gate, run = asyncio.Event(), Slices.run

    async def held_back(self: Slices, steps: Any) -> Any:
        await gate.wait()
        return await run(self, steps)

    async with LocalCluster() as cluster:
        bench = Bench(cluster, "counters")
        await bench.create(partitions=2)
        for name in ("a", "b", "?", "b"):
            await bench.add(name)
        bench.runtime.close()
        monkeypatch.setattr(Slices, "run", held_back)
        bench.runtime = bench.another()
        assert await bench.add("c", number=1) == 1
        for ask in (lambda: bench.runtime.shard(0), bench.runtime.all_shards):
            with pytest.raises(KafkaError) as refusal:
                ask()
            assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        gate.set()
        await bench.runtime.wait_loaded(within_s=patient(10))
        assert [shard.numbers for shard in bench.runtime.all_shards().values()] == [{"a": 1, "b": 2}, {"c": 1}]
        bench.runtime.close()


async def test_one_decision_may_have_very_many_records(bench: Bench) -> None:
    """They are appended as batches that anybody can fetch."""
    count = 2 * RECORDS_PER_OWN_BATCH_MAX + 1
    names = tuple((f"n{number}", number) for number in range(count))
    await bench.runtime.write(0, lambda shard: Decision(records=names, reply=None))
    assert await bench.runtime.write(0, Counters.remove_all) == count
    assert bench.logged() == {}
    assert len(list(bench.log.batches())) == 6


async def test_timers_fire_when_they_are_due_and_a_part_at_a_time(bench: Bench) -> None:
    """A shard that does a bounded part is asked again at once; one whose moment was put off costs one look."""
    waiting = [bench.wait(f"n{number}", 1, for_ms=20) for number in range(2 * TICK_MAX + 1)]
    assert await asyncio.wait_for(asyncio.gather(*waiting), patient(10)) == ["too late"] * len(waiting)
    assert len(bench.runtime.shard(0).ticks) == 3
    assert bench.runtime.shard(0).next_deadline() is None


async def test_a_wait_may_be_given_up_and_a_topic_may_go(bench: Bench) -> None:
    """Who gave up is not answered and hinders no other; when the topic is deleted who waits looks for the coordinator again."""
    parked: list[asyncio.Future[Any]] = []
    until = bench.runtime.now() + 60_000
    gave_up = asyncio.ensure_future(
        bench.runtime.park(0, lambda shard, waiter: shard.wait("a", 1, until, waiter), parked.append)
    )
    await turn()
    parked[0].set_exception(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await gave_up
    await bench.add("a")
    waiting = bench.wait("b", 1)
    await turn()
    bench.topic = "elsewhere"
    bench.runtime.follow()
    await turn()
    assert code(waiting) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError) as refusal:
        bench.runtime.partition_of("a")
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR


OPERATIONS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.sampled_from("abc"), st.integers(1, 9)),
    st.tuples(st.sampled_from(["remove", "full", "lose", "read"])),
)


@pytest.mark.slow
def test_a_shard_is_at_any_moment_what_its_log_says() -> None:
    """After any sequence of operations, full disks, lost acknowledgements and reloads; everyone who asked is answered."""
    with asyncio.Runner() as runner:
        cluster = LocalCluster()
        runner.run(cluster.start())
        numbers = iter(range(1_000_000))

        @settings(max_examples=40)
        @given(st.lists(OPERATIONS, max_size=25))
        def check(operations: list[tuple[Any, ...]]) -> None:
            runner.run(live_as_replayed(Bench(cluster, f"counters-{next(numbers)}"), operations))

        try:
            check()
        finally:
            runner.run(cluster.stop())


async def live_as_replayed(bench: Bench, operations: list[tuple[Any, ...]]) -> None:
    """Carry the operations out, and look at the log after each."""
    await bench.create()
    asked: list[asyncio.Task[Any]] = []
    for operation, *values in operations:
        if operation == "add":
            asked.append(asyncio.ensure_future(bench.add(*values)))
        elif operation == "wait":
            asked.append(bench.wait(*values))
        elif operation == "remove":
            asked.append(asyncio.ensure_future(bench.runtime.write(0, Counters.remove_all)))
        elif operation == "read":
            numbers = await bench.runtime.read(0, lambda shard: dict(shard.numbers))
            assert numbers == bench.logged()
            assert bench.services.replicas.find(bench.topic, 0).high_watermark == bench.log.end_offset
        elif operation == "full":
            with bench.full():
                asked.append(asyncio.ensure_future(bench.add("a")))
                await asyncio.sleep(0)
        else:
            await lose_all(bench)
        await asyncio.sleep(0)
        assert bench.runtime.shard(0).numbers == bench.logged()
    await lose_all(bench)
    fresh = bench.another()
    fresh.load()
    await fresh.wait_loaded(within_s=patient(10))
    assert fresh.shard(0).numbers == bench.logged()
    fresh.close()
    bench.topic = "elsewhere"
    bench.runtime.follow()
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        refused = isinstance(answer, KafkaError) and answer.code is ErrorCode.NOT_COORDINATOR
        assert refused or isinstance(answer, (int, str)), answer


async def lose_all(bench: Bench) -> None:
    """Everything that is not durable is taken back from those who wait; the shard is loaded again when it may be."""
    bench.lose()
    await turn()
    partition = bench.services.replicas.find(bench.topic, 0)
    while partition.high_watermark < partition.log.end_offset:
        await asyncio.sleep(0)
    bench.runtime.retry_failed()
    await bench.runtime.wait_loaded(within_s=patient(10))
