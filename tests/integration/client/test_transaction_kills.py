"""A service that reads and writes in transactions is killed, and stopped and woken as a zombie: every record is passed on once."""

import asyncio
import random
import signal
import sys
from pathlib import Path

import pytest
from tests.integration.client.committed import committed
from tests.integration.client.conftest import Cluster

from busway import Admin, NewTopic, Producer, TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.hostile, pytest.mark.timeout(240)]
PROGRAM = Path(__file__).with_name("passing_on.py")
RECORDS = 800
KILLS = 4
ZOMBIES = 2


async def start(*arguments: str) -> asyncio.subprocess.Process:
    """Another instance of the service."""
    return await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), *arguments, stderr=asyncio.subprocess.PIPE
    )


async def passed_on(cluster: Cluster, group: str) -> int:
    """How many records the group has committed."""
    async with Admin(cluster.bootstrap_servers) as admin:
        try:
            return sum(found.offset for found in (await admin.list_group_offsets(group)).values())
        except Exception:
            return 0


async def get_on(cluster: Cluster, group: str, chance: random.Random) -> None:
    """Return at some moment while records are being passed on, or after all of them."""
    before = await passed_on(cluster, group)
    async with asyncio.timeout(60):
        while await passed_on(cluster, group) == before < RECORDS:
            await asyncio.sleep(0.02)
    await asyncio.sleep(chance.random() * 0.1)


async def test_every_record_is_passed_on_once(transactional: Cluster, topic: str, group: str) -> None:
    """Killed at any moment, a service goes on where it was; one that was taken for dead and wakes up does nothing more, and says why."""
    chance = random.Random(topic)
    source, target = topic, f"{topic}-out"
    async with Admin(transactional.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(source, 2), NewTopic(target, 2)])
    async with Producer(transactional.bootstrap_servers) as plain:
        for number in range(RECORDS):
            await plain.send(source, b"%d" % number, partition=number % 2)
    arguments = (transactional.bootstrap_servers, source, target, group)
    running = await start(*arguments)
    processes = [running]
    try:
        fates = ["kill"] * KILLS + ["zombie"] * ZOMBIES
        chance.shuffle(fates)
        for fate in fates:
            await get_on(transactional, group, chance)
            running.send_signal(signal.SIGKILL if fate == "kill" else signal.SIGSTOP)
            zombie, running = running, await start(*arguments)
            processes.append(running)
            if fate == "zombie":
                await get_on(transactional, group, chance)
                zombie.send_signal(signal.SIGCONT)
                _, said = await asyncio.wait_for(zombie.communicate(), 60)
                assert zombie.returncode == 1
                # The last: it woke up while its heir was taking over.
                assert any(words in said for words in (b"Fenced", b"moved on", b"aborted already")), said.decode()
            else:
                await zombie.communicate()
        async with asyncio.timeout(120):
            while await passed_on(transactional, group) < RECORDS:
                assert running.returncode is None, "the last instance has ended"
                await asyncio.sleep(0.2)
    finally:
        for one in processes:
            if one.returncode is None:
                one.kill()
                await one.communicate()
    values = await committed(transactional.bootstrap_servers, target, 2)
    assert sorted(int(value or b"-1") for value in values) == list(range(RECORDS))
    async with Admin(transactional.bootstrap_servers) as admin:
        offsets = await admin.list_group_offsets(group)
    assert set(offsets) == {TopicPartition(source, 0), TopicPartition(source, 1)}
