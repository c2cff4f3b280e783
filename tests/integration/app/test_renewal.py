"""An app that is exactly once and has to go on with another producer: no record is lost, none counts twice, and it does go on."""

import asyncio
from collections.abc import Mapping

import pytest
from tests.support.patience import patient, patient_ms
from tests.support.proxy import Proxy

from busway import Admin, App, HandlerFailed, TopicPartition
from busway.app.handling.transactor import WAITING_MAX, Transactor
from busway.app.handling.worker import Worker
from busway.errors import ProducerFenced
from busway.testing import TestBus
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey

pytestmark = pytest.mark.slow
EMPTY, FULL = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Copying:
    """A service that copies orders exactly once, and beside that takes notes; `goes_on` is what handlers of orders wait for."""

    def __init__(self, bootstrap_servers: str = "", **options: object) -> None:
        self.app = App("copying", bootstrap_servers, **{"commit_interval_s": 0.02, **options})  # type: ignore[arg-type]
        self.orders = self.app.topic("orders", value=int, format="json", partitions=2)
        self.copies = self.app.topic("copies", value=int, format="json", partitions=1)
        self.notes = self.app.topic("notes", value=int, format="json", partitions=1)
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.noted = asyncio.Event()
        self.begun: list[int] = []
        self.app.subscribe(self.orders, guarantee="exactly_once", concurrency=2)(self.copy)
        self.app.subscribe(self.notes)(self.note)

    async def copy(self, number: int) -> None:
        """An order, once more."""
        self.begun.append(number)
        await self.goes_on.wait()
        await self.copies.send(number)

    async def note(self, number: int) -> None:
        """At least once, so this goes on while nothing can be committed."""
        self.noted.set()

    @property
    def worker(self) -> Worker:
        """What feeds its handlers."""
        assert self.app.worker is not None
        return self.app.worker

    @property
    def transactor(self) -> Transactor:
        """What commits its copies."""
        assert self.worker.transactor is not None
        return self.worker.transactor

    async def fence(self) -> None:
        """Its producer cannot commit any more."""
        name = self.transactor.producer.options.transactional_id
        assert name is not None
        async with Admin(self.app.bootstrap_servers) as admin:
            await admin.abort_transaction(name)

    async def read_on(self) -> None:
        """Returns when whatever was in the topics has been fetched and handed out, unless the consumer holds it back: the broker is asked
        for all partitions at once, and has answered with a note that was written last."""
        self.noted.clear()
        await self.notes.send(1)
        await self.noted.wait()

    def start_producers_after(self, wait: "asyncio.Event", begun: "asyncio.Event") -> None:
        """New producers wait for one event before they start, and tell with the other that they do."""
        make = self.transactor._make_producer

        def make_slow() -> object:
            producer = make()
            start = producer.start

            async def start_later() -> None:
                begun.set()
                await wait.wait()
                await start()

            producer.start = start_later  # type: ignore[method-assign]
            return producer

        self.transactor._make_producer = make_slow  # type: ignore[assignment]

    async def copied(self, bus: TestBus) -> list[int]:
        """What is committed."""
        return sorted(record.value or 0 for record in await bus.records(self.copies))


async def key_of(service: Copying, partition: TopicPartition) -> str:
    """A key whose records go there."""
    for number in range(100):
        if await service.app.producer.choose(partition.topic, f"k{number}".encode(), 1) == partition.partition:
            return f"k{number}"
    raise AssertionError(f"no key for {partition}")


async def test_a_first_record_that_comes_during_a_renewal_is_handled() -> None:
    """Of a partition that never had one, so that nothing is committed that would tell where it goes on; another has many waiting."""
    service = Copying()
    async with service.app.test() as bus, asyncio.timeout(patient(30)):
        empty, full = await key_of(service, EMPTY), await key_of(service, FULL)
        await bus.send(service.orders, 1, key=full)
        await bus.settle()
        starts, waiting = asyncio.Event(), asyncio.Event()
        service.start_producers_after(starts, waiting)
        await service.fence()
        await asyncio.gather(*[bus.send(service.orders, n, key=full) for n in range(2, 1501)])
        await waiting.wait()
        await bus.send(service.orders, 1501, key=empty)
        await service.read_on()
        starts.set()
        await bus.send(service.orders, 1502, key=empty)
        await bus.settle()
        assert await service.copied(bus) == list(range(1, 1503))
        assert service.transactor.outcomes.renewed == 1


async def test_a_second_renewal_right_behind_the_first_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that were handed out before the first one have not come again yet, and nothing of their partition is committed."""
    service = Copying()
    async with service.app.test() as bus, asyncio.timeout(patient(30)):
        starts, waiting = asyncio.Event(), asyncio.Event()
        service.start_producers_after(starts, waiting)
        worker, transactor = service.worker, service.transactor
        restart_partitions = worker.restart_partitions

        async def restart_partitions_twice(firsts: Mapping[TopicPartition, int]) -> None:
            monkeypatch.undo()
            await restart_partitions(firsts)
            starts.clear()
            waiting.clear()
            await transactor._restart_partitions(ProducerFenced("another producer has taken over"))

        monkeypatch.setattr(worker, "restart_partitions", restart_partitions_twice)
        await service.fence()
        await bus.send(service.orders, 1)
        await waiting.wait()
        starts.set()
        while transactor.outcomes.renewed < 2 or not waiting.is_set():
            await asyncio.sleep(0.01)
        await service.read_on()
        starts.set()
        await bus.send(service.orders, 2)
        await bus.settle()
        assert await service.copied(bus) == [1, 2]


async def test_a_partition_that_was_full_goes_on_after_a_renewal() -> None:
    """Its consumer has paused it, and resumes it."""
    service = Copying()
    async with service.app.test() as bus, asyncio.timeout(patient(30)):
        key = await key_of(service, FULL)
        first, others = asyncio.Event(), asyncio.Event()
        service.goes_on = first
        await asyncio.gather(*[bus.send(service.orders, n, key=key) for n in range(1, 601)])
        while FULL not in service.worker.consumer.paused():
            await asyncio.sleep(0.01)
        await service.fence()
        service.goes_on = others
        first.set()
        while not service.transactor.outcomes.renewed:
            await asyncio.sleep(0.01)
        others.set()
        await bus.settle()
        assert await service.copied(bus) == list(range(1, 601))
        assert service.transactor.outcomes.renewed == 1


async def test_an_app_goes_on_behind_a_record_that_brokers_refuse() -> None:
    """More records wait than it takes in at once, so that its partition is paused when the record is found."""
    app = App("refusing", commit_interval_s=0.02)
    orders = app.topic("orders", value=int, format="json", partitions=1)
    texts = app.topic("texts", value=str, format="json", partitions=1, configs={"max.message.bytes": "2000"})

    full, renewed = asyncio.Event(), asyncio.Event()

    @app.publish(texts)
    @app.subscribe(orders, guarantee="exactly_once")
    async def write(number: int) -> str:
        if number >= 7:
            await (full if number == 7 else renewed).wait()
        return "x" * (5000 if number == 7 else 0) + str(number)

    async with app.test() as bus, asyncio.timeout(patient(30)):
        await asyncio.gather(*[bus.send(orders, n, key=f"k{n % 20}") for n in range(1500)])
        assert app.worker is not None
        assert app.worker.transactor is not None
        while not app.worker.consumer.paused():
            await asyncio.sleep(0.01)
        full.set()
        while not app.worker.transactor.outcomes.renewed:
            await asyncio.sleep(0.01)
        renewed.set()
        await bus.settle()
        assert sorted(int(record.value or "") for record in await bus.records(texts)) == [
            n for n in range(1500) if n != 7
        ]
        assert [letter.value for letter in await bus.dead_letters(orders)] == [7]


async def test_partitions_go_at_once_although_their_producer_is_renewed() -> None:
    """What was handled of them cannot be committed any more, and is not waited for; who has them next handles it."""
    async with LocalCluster() as node, Proxy(node.bootstrap_servers) as proxy:
        service = Copying(
            proxy.address,
            drain_timeout_s=600,
            consumer={
                "heartbeat_interval_ms": 20,
                "session_timeout_ms": patient_ms(10_000),
                "partition_assignment_strategy": ("range",),  # gives up even what comes back
            },
        )
        first, second = asyncio.Event(), asyncio.Event()
        async with service.app, asyncio.timeout(patient(20)):
            empty, full = await key_of(service, EMPTY), await key_of(service, FULL)
            while len(await service.worker.consumer.committed_of([EMPTY, FULL])) < 2:
                await asyncio.sleep(0.01)  # where the group begins; the next commit finds the producer fenced
            await service.fence()
            service.goes_on = first
            await service.orders.send(1, key=empty)
            while service.begun != [1]:
                await asyncio.sleep(0.01)
            service.goes_on = second
            await service.orders.send(2, key=full)
            while service.begun != [1, 2]:
                await asyncio.sleep(0.01)
            joins = proxy.requests.count(ApiKey.JOIN_GROUP)
            member = service.worker.consumer._group
            assert member is not None
            member.subscribe(["orders", "notes"])
            while not service.worker._closing.locked():
                await asyncio.sleep(0.01)
            first.set()
            while not service.transactor.outcomes.renewed:
                await asyncio.sleep(0.01)
            second.set()
            await proxy.asked(ApiKey.JOIN_GROUP, joins + 1)
            while sum(service.worker.positions().get(partition, 0) for partition in (EMPTY, FULL)) < 2:
                await asyncio.sleep(0.01)
            assert sorted([record.value or 0 async for record in service.app.read(service.copies)]) == [1, 2]


@pytest.mark.parametrize("event", ["on_partitions_lost", "on_partitions_revoked"])
async def test_a_partition_that_goes_while_it_waits_to_be_begun_anew_is_not_begun(event: str) -> None:
    """Another one is being begun with, which takes its time; the app goes on with what it has."""
    service = Copying()
    async with service.app.test() as bus, asyncio.timeout(patient(30)):
        await bus.send(service.orders, 1, key=await key_of(service, EMPTY))
        await bus.settle()
        worker = service.worker
        firsts = await worker.release_partitions()
        async with worker._opening:
            beginning = asyncio.ensure_future(worker.restart_partitions(firsts))
            await asyncio.sleep(0)
            await getattr(worker, event)([EMPTY])
            worker.consumer._drop([EMPTY])
        await beginning
        assert EMPTY not in worker._assigned
        await bus.send(service.orders, 2, key=await key_of(service, FULL))
        while FULL not in worker.positions():
            await asyncio.sleep(0.01)


async def test_nobody_waits_for_room_among_what_can_never_be_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once transactions have failed for good; else the app would wait for its handlers before it reported the error."""
    service = Copying(drain_timeout_s=600)

    async def fail(*_: object) -> None:
        raise HandlerFailed("for good")

    async with service.app.test() as bus, asyncio.timeout(patient(20)):
        transactor = service.transactor
        monkeypatch.setattr(transactor, "_transact", fail)
        transactor._waiting = WAITING_MAX
        await bus.send(service.orders, 1)
        with pytest.raises(HandlerFailed, match="for good"):
            await service.app.wait()
