"""A service that reads and writes in transactions is killed, and stopped and woken as a zombie: every record is passed on once."""

import asyncio
import random
import signal
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.integration.client.committed import committed
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient
from tests.support.programs import spawn_async
from tests.support.seeds import seed

from busway import Admin, NewTopic, Producer, TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.hostile, pytest.mark.timeout(240)]
PROGRAM = Path(__file__).with_name("passing_on.py")
RECORDS = 800
T = TypeVar("T")
KILLS = 4
ZOMBIES = 2


async def start(*arguments: str) -> asyncio.subprocess.Process:
    """Another instance of the service."""
    return await spawn_async(
        sys.executable, str(PROGRAM), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def passed_on(cluster: Cluster, group: str) -> int:
    """How many records the group has committed."""
    async with Admin(cluster.bootstrap_servers) as admin:
        try:
            return sum(committed_offset.offset for committed_offset in (await admin.list_group_offsets(group)).values())
        except Exception:
            return 0


class Source:
    """What there is to pass on: numbers from 0 on, in turn for each partition."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self.count = 0

    async def add(self, count: int) -> None:
        """So many more."""
        for _ in range(count):
            await self._producer.send(self._topic, b"%d" % self.count, partition=self.count % 2)
            self.count += 1
        await self._producer.flush()


async def busy(source: Source, until: Awaitable[T]) -> T:
    """What comes `until` then; meanwhile there is always something left to do."""
    end = asyncio.ensure_future(until)
    async with asyncio.timeout(patient(60)):
        while not end.done():
            await source.add(2)
            await asyncio.wait([end], timeout=0.1)
    return end.result()


async def commits(instance: asyncio.subprocess.Process, source: Source) -> None:
    """Return when this instance has committed: an earlier one's last transaction says nothing of it, and one that is stopped before it has
    its producer id wakes up as the youngest, which fences its heir."""
    assert instance.stdout is not None
    assert instance.stderr is not None
    if not await busy(source, instance.stdout.readline()):
        raise AssertionError(f"it ended: {(await instance.stderr.read()).decode()}")


async def said_at_its_end(zombie: asyncio.subprocess.Process, source: Source) -> str:
    """Why it has ended; who finds nothing to do that it may not need not end."""
    _, said = await busy(source, zombie.communicate())
    return said.decode()


async def test_every_record_is_passed_on_once(transactional: Cluster, topic: str, group: str) -> None:
    """Killed at any moment, a service goes on where it was; one that was taken for dead and wakes up does nothing more, and says why."""
    chance = random.Random(seed(1))
    source, target = topic, f"{topic}-out"
    async with Admin(transactional.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(source, 2), NewTopic(target, 2)])
    async with Producer(transactional.bootstrap_servers) as producer:
        numbers = Source(producer, source)
        await numbers.add(RECORDS)
        await under_fates(transactional, group, chance, numbers, (source, target))
    values = await committed(transactional.bootstrap_servers, target, 2)
    assert sorted(int(value or b"-1") for value in values) == list(range(numbers.count))
    async with Admin(transactional.bootstrap_servers) as admin:
        offsets = await admin.list_group_offsets(group)
    assert set(offsets) == {TopicPartition(source, 0), TopicPartition(source, 1)}


async def under_fates(
    cluster: Cluster, group: str, chance: random.Random, numbers: Source, topics: tuple[str, str]
) -> None:
    """One instance after the other, until everything is passed on."""
    arguments = (cluster.bootstrap_servers, *topics, group)
    running = await start(*arguments)
    processes = [running]
    try:
        fates = ["kill"] * KILLS + ["zombie"] * ZOMBIES
        chance.shuffle(fates)
        for fate in fates:
            if fate == "zombie" or chance.random() < 0.5:
                await commits(running, numbers)
            await asyncio.sleep(chance.random() * (0.1 if fate == "zombie" else 0.5))
            running.send_signal(signal.SIGKILL if fate == "kill" else signal.SIGSTOP)
            zombie, running = running, await start(*arguments)
            processes.append(running)
            if fate == "zombie":
                await commits(running, numbers)
                zombie.send_signal(signal.SIGCONT)
                said = await said_at_its_end(zombie, numbers)
                assert zombie.returncode == 1
                # The last: it woke up while its heir was taking over.
                assert any(words in said for words in ("Fenced", "moved on", "aborted already")), said
            else:
                await zombie.communicate()
        async with asyncio.timeout(patient(120)):
            while await passed_on(cluster, group) < numbers.count:
                if running.returncode is not None:
                    raise AssertionError(f"the last instance ended: {(await running.communicate())[1].decode()}")
                await asyncio.sleep(0.2)
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.communicate()
