"""`python -m benchmarks.groups`: rebalances of many members, and many groups and partitions, on Busway and on Apache Kafka 4.3.1, in turns.

Here: the loads.
Not here: turns, rounds and the table (`brokers`), what a member says (`members`). Members heartbeat every 100 ms
instead of every few seconds, so that the broker's part of a rebalance is measured rather than the members' patience.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from uuid import uuid4

from tests.support.raw_client import RawClient, frame

from benchmarks import clients
from benchmarks.brokers import command
from benchmarks.clients import LoadFailed
from benchmarks.members import KINDS, Share, coordinated
from benchmarks.report import Metric
from benchmarks.subjects import Durability, Subject
from benchmarks.workloads import P50, Figures, Workload
from busway_protocol.messages.groups_classic import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from busway_protocol.messages.metadata import MetadataRequest

MEMBERS = 100
PARTITIONS = 200
WITHIN_S = 60.0
TAKEN = Metric(name="until all have their shares", unit="ms", higher_is_better=False, target=1.0)
CPU = Metric(name="broker CPU", unit="ms", higher_is_better=False, target=1.0)
RESIDENT = Metric(name="resident memory", unit="MiB", higher_is_better=False, target=1.0)
IDLE = Metric(name="idle CPU", unit="ms/s", higher_is_better=False, target=1.0)
P99 = Metric(name="p99 of Metadata for all topics", unit="ms", higher_is_better=False, target=1.0)
RESTART = Metric(name="from its start after a kill until all are served", unit="s", higher_is_better=False, target=1.0)
_AGAIN_S = 0.01


class Rebalance:
    """One more member joins a settled group.

    Args:
        protocol: `classic`, with the assignor range and eager rebalances, or `consumer` (KIP-848).
    """

    durabilities = (Durability.FLUSH,)

    def __init__(self, protocol: str, *, members: int) -> None:
        self.name = f"rebalance-{protocol}-{members}-members"
        self._kind = KINDS[protocol]
        self._members = members

    def prepare(self, subject: Subject) -> None:
        """Make the topic."""
        clients.create_topic(subject.bootstrap_servers, self.name, PARTITIONS)

    def measure(self, subject: Subject) -> Figures:
        """Run once, in a group of its own."""
        return asyncio.run(self._run(subject))

    async def _run(self, subject: Subject) -> Figures:
        async with RawClient(subject.bootstrap_servers) as client:
            group = f"rebalance-{uuid4()}"
            await coordinated(client, group)
            share = await Share.of(client, self.name, PARTITIONS)
        members = [self._kind(subject.bootstrap_servers, group, share) for _ in range(self._members + 1)]
        tasks = [asyncio.create_task(member.run()) for member in members[:-1]]
        try:
            await self._settled(share, self._members, tasks)
            before, begun = subject.cpu_seconds(), time.perf_counter()
            tasks.append(asyncio.create_task(members[-1].run()))
            await self._settled(share, self._members + 1, tasks)
            return {TAKEN: 1000 * (time.perf_counter() - begun), CPU: 1000 * (subject.cpu_seconds() - before)}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _settled(self, share: Share, members: int, tasks: Sequence["asyncio.Task[None]"]) -> None:
        settled = asyncio.create_task(share.settled(members))
        done, _ = await asyncio.wait([settled, *tasks], timeout=WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        for task in done:
            task.result()
        if not done:
            raise LoadFailed(f"{self.name}: {share.says()} after {WITHIN_S:.0f} s")


class Many:
    """Very many groups and partitions, of which clients want only the list now and then.

    Args:
        groups: each has committed offsets for ten partitions.
        topics: of a hundred partitions each.
    """

    durabilities = (Durability.FLUSH,)

    def __init__(self, *, groups: int, topics: int, seconds: float) -> None:
        self.name = f"{groups}-groups-{topics * 100}-partitions"
        self._groups = groups
        self._topics = topics
        self._seconds = seconds

    def prepare(self, subject: Subject) -> None:
        """Make them."""
        for number in range(self._topics):
            clients.create_topic(subject.bootstrap_servers, f"many-{number}", 100)
        asyncio.run(self._commit(subject))

    async def _commit(self, subject: Subject) -> None:
        async with RawClient(subject.bootstrap_servers) as client:
            for number in range(self._groups):
                await coordinated(client, f"many-{number}")
                partitions = [
                    OffsetCommitRequestPartition(partition_index=at, committed_offset=at, committed_metadata="")
                    for at in range(10)
                ]
                topic = OffsetCommitRequestTopic(name=f"many-{number % self._topics}", partitions=partitions)
                request = OffsetCommitRequest(group_id=f"many-{number}", member_id="", topics=[topic])
                answer = await client.ask(request, 8)
                codes = {partition.error_code for topic in answer.topics for partition in topic.partitions}
                if codes != {0}:
                    raise LoadFailed(f"{self.name}: a commit was answered with {codes}")

    def measure(self, subject: Subject) -> Figures:
        """Wait for a while, then ask for all topics many times."""
        before = subject.cpu_seconds()
        time.sleep(self._seconds)
        idle = subject.cpu_seconds() - before
        taken = sorted(asyncio.run(self._asked(subject)))
        return {
            RESIDENT: subject.resident_mib(),
            IDLE: 1000 * idle / self._seconds,
            P50: 1000 * taken[len(taken) // 2],
            P99: 1000 * taken[len(taken) * 99 // 100],
            RESTART: self._restart(subject),
        }

    def _restart(self, subject: Subject) -> float:
        subject.broker.kill()
        begun = time.monotonic()
        subject.broker.start()
        asyncio.run(self._served(subject))
        return time.monotonic() - begun

    async def _served(self, subject: Subject) -> None:
        """Return when every partition has a leader and every group's offsets are there."""
        groups = [OffsetFetchRequestGroup(group_id=f"many-{number}", topics=None) for number in range(self._groups)]
        deadline = time.monotonic() + WITHIN_S
        async with RawClient(subject.bootstrap_servers) as client:
            while time.monotonic() < deadline:
                topics = (await client.ask(MetadataRequest(topics=None), 12)).topics
                led = [
                    part.error_code == 0
                    for topic in topics
                    if topic.name.startswith("many-")
                    for part in topic.partitions
                ]
                groups_served = (await client.ask(OffsetFetchRequest(groups=groups), 8)).groups
                there = [group.error_code == 0 and len(group.topics) == 1 for group in groups_served]
                if led.count(True) == self._topics * 100 and there.count(True) == self._groups:
                    return
                await asyncio.sleep(_AGAIN_S)
        raise LoadFailed(f"{self.name}: {led.count(True)} partitions and {there.count(True)} groups are served")

    async def _asked(self, subject: Subject) -> list[float]:
        taken, request = [], frame(MetadataRequest(topics=None), 12)
        async with RawClient(subject.bootstrap_servers) as client:
            for _ in range(200):
                begun = time.perf_counter()
                client.send(request)
                await client.frame()
                taken.append(time.perf_counter() - begun)
        return taken


def loads(*, quick: bool) -> list[Workload]:
    """Every load, that with much set up last."""
    members = 10 if quick else MEMBERS
    return [
        Rebalance("classic", members=members),
        Rebalance("consumer", members=members),
        Many(groups=50 if quick else 1_000, topics=3 if quick else 100, seconds=1.0 if quick else 5.0),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the JSON."""
    assert __doc__ is not None
    return command("groups", __doc__.split("\n\n")[0], loads, arguments, starts=False)


if __name__ == "__main__":
    sys.exit(main())
