"""A broker that is killed while a share group works: all is accepted, and nothing that was accepted comes again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from busway import AcknowledgementFailed, Admin, NewTopic, Producer, ShareConsumer
from tests.interop.share_groups.conftest import SETTINGS
from tests.support.busway_process import BuswayProcess
from tests.support.patience import patient
from tests.support.programs import held_ports

pytestmark = [pytest.mark.foreign, pytest.mark.slow]
PATIENCE_S = patient(60.0)
TOTAL, ROUNDS, PARTITIONS = 900, 3, 2
TOPIC, GROUP = "killed", "workers"


@pytest.fixture
async def broker() -> AsyncIterator[BuswayProcess]:
    """A process that comes back where it was."""
    (port,) = held_ports(1)
    running = BuswayProcess({**SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    try:
        await asyncio.to_thread(running.start)
        yield running
    finally:
        await asyncio.to_thread(running.stop)


class Work:
    """What became of each record, by partition and offset.

    Attributes:
        accepted: the broker has said so.
        doubtful: the broker was gone before it said anything, or another member has the record.
        again: came after they were accepted.
        deliveries: how often each came.
        asked: sent to the broker, which has not answered yet.
        progress: set at each answer.
    """

    def __init__(self) -> None:
        self.accepted: Counter[tuple[int, int]] = Counter()
        self.doubtful: set[tuple[int, int]] = set()
        self.released: set[tuple[int, int]] = set()
        self.again: set[tuple[int, int]] = set()
        self.deliveries: Counter[tuple[int, int]] = Counter()
        self.asked: set[tuple[int, int]] = set()
        self.progress = asyncio.Event()

    async def do(self, consumer: ShareConsumer) -> None:
        """Accept what comes, but release every seventh when it comes for the first time."""
        while True:
            for records in (await consumer.getmany(timeout_ms=200, max_records=10)).values():
                for record in records:
                    place = (record.partition, record.offset)
                    self.deliveries[place] += 1
                    if place in self.accepted:
                        self.again.add(place)
                    release = record.offset % 7 == 0 and place not in self.released
                    self.asked.add(place)
                    try:
                        await consumer.acknowledge(record, "release" if release else "accept")
                    except AcknowledgementFailed:
                        self.doubtful.add(place)
                    else:
                        if release:
                            self.released.add(place)
                        else:
                            self.accepted[place] += 1
                    self.asked.discard(place)
                    self.progress.set()

    def has(self, count: int) -> bool:
        """Whether so many are accepted."""
        return len(self.accepted) >= count

    async def until(self, met: Callable[[], bool]) -> None:
        """Returns when something is so."""
        while not met():
            self.progress.clear()
            await self.progress.wait()


async def until_nothing_is_left(bootstrap_servers: str) -> None:
    """Returns when the group is done with all records."""
    async with Admin(bootstrap_servers) as admin:
        while True:
            offsets = await admin.list_share_group_offsets(GROUP)
            if len(offsets) == PARTITIONS and all(at.lag == 0 for at in offsets.values()):
                return


async def test_sigkill_loses_nothing_and_brings_nothing_back(broker: BuswayProcess) -> None:
    """Three members work while the process is killed and comes back on the same data, three times."""
    at = broker.bootstrap_servers
    async with Admin(at) as admin:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        await admin.alter_group_configs(
            GROUP, {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
        )
    async with Producer(at) as producer:
        for number in range(TOTAL):
            await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()
    work = Work()
    consumers = [ShareConsumer(TOPIC, bootstrap_servers=at, group_id=GROUP, fetch_max_wait_ms=100) for _ in range(3)]
    async with asyncio.timeout(PATIENCE_S), consumers[0], consumers[1], consumers[2]:
        working = [asyncio.ensure_future(work.do(consumer)) for consumer in consumers]
        try:
            for number in range(1, ROUNDS + 1):
                count = TOTAL * number // (ROUNDS + 2)
                waiting = asyncio.ensure_future(work.until(partial(work.has, count)))
                done, _ = await asyncio.wait([waiting, *working], return_when=asyncio.FIRST_COMPLETED)
                assert done == {waiting}, done
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            await until_nothing_is_left(at)
            await work.until(lambda: not work.asked)
            assert not any(task.done() for task in working), working
        finally:
            for task in working:
                task.cancel()
            await asyncio.wait(working)
    everything = {(number % PARTITIONS, number // PARTITIONS) for number in range(TOTAL)}
    assert not work.again
    assert set(work.accepted.values()) == {1}
    assert everything == work.accepted.keys() | work.doubtful
    assert all(work.deliveries[place] > 1 for place in work.released)
    assert len(work.accepted) > TOTAL * 9 // 10
