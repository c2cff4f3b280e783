"""Faults between clients and a cluster, and of its nodes.

Here: what each does, and for how long.
Not here: when it comes (`run`), the relays (`relay`) and the processes (`systems`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway_protocol.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from tests.interop.client_faults.relay import Mode
from tests.interop.client_faults.systems import Nodes
from tests.support.waiting import until

OFFSETS: Final = "__consumer_offsets"
SHORT_S: Final = 4.0
LONG_S: Final = 8.0
"""Longer than a broker's session and a client's request timeout."""
_TIMES: Final = 5


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster and the topics of the clients; the victim of a fault is the groups' coordinator."""

    nodes: Nodes
    topics: Sequence[str]

    async def cluster(self) -> ClusterClient:
        cluster = ClusterClient(self.nodes.bootstrap_servers, client_id="faults", request_timeout_s=5.0)
        cluster.topics |= {OFFSETS, *self.topics}
        await cluster.refresh()
        return cluster

    async def coordinator(self) -> int:
        cluster = await self.cluster()
        try:
            leader = cluster.metadata.leader(OFFSETS, 0)
            assert leader is not None
            return leader
        finally:
            await cluster.close()

    async def settled(self) -> None:
        """Wait until all partitions have a leader and all replicas in sync."""

        async def is_settled() -> bool:
            cluster = await self.cluster()
            try:
                topics = cluster.metadata.topics
                return topics.keys() >= {OFFSETS, *self.topics} and all(
                    partition.leader >= 0 and len(partition.isr) == len(partition.replicas)
                    for topic in topics.values()
                    for partition in topic.partitions
                )
            finally:
                await cluster.close()

        await until(is_settled, seconds=60, pause_s=0.2)

    async def move_leaders(self, topics: Sequence[str]) -> None:
        """Make the next replica of each partition its preferred leader, and elect it."""
        cluster = await self.cluster()
        try:
            known = {topic: cluster.metadata.topics[topic].partitions for topic in topics}
            moves = [
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(
                            partition_index=partition.number,
                            replicas=[replica for replica in partition.replicas if replica != partition.leader]
                            + [partition.leader],
                        )
                        for partition in partitions
                    ],
                )
                for topic, partitions in known.items()
            ]
            answer: Any = await cluster.ask_controller(AlterPartitionReassignmentsRequest(topics=moves))
            assert not any(row.error_code for topic in answer.responses for row in topic.partitions), answer
            election = ElectLeadersRequest(
                election_type=0,
                topic_partitions=[
                    TopicPartitions(topic=topic, partitions=[partition.number for partition in partitions])
                    for topic, partitions in known.items()
                ],
            )

            async def moved() -> bool:
                await cluster.ask_controller(election)
                await cluster.refresh()
                return all(
                    cluster.metadata.leader(topic, partition.number) not in {None, partition.leader}
                    for topic, partitions in known.items()
                    for partition in partitions
                )

            await until(moved, seconds=60, pause_s=0.2)
        finally:
            await cluster.close()


async def _cut(scene: Scene, victim: int) -> None:
    for _ in range(_TIMES):
        scene.nodes.relays[victim].cut()
        await asyncio.sleep(SHORT_S / _TIMES)


def _relayed(mode: Mode, duration_s: float) -> Callable[[Scene, int], Awaitable[None]]:
    async def fault(scene: Scene, victim: int) -> None:
        scene.nodes.relays[victim].set_mode(mode)
        try:
            await asyncio.sleep(duration_s)
        finally:
            scene.nodes.relays[victim].set_mode(Mode.FORWARD)

    return fault


async def _stopped(scene: Scene, victim: int) -> None:
    await scene.nodes.stop(victim)
    await asyncio.sleep(SHORT_S)
    await scene.nodes.start([victim])


async def _killed(scene: Scene, victim: int) -> None:
    await scene.nodes.kill(victim)
    await asyncio.sleep(SHORT_S)
    await scene.nodes.start([victim])


async def _frozen(scene: Scene, victim: int) -> None:
    scene.nodes.pause(victim)
    await asyncio.sleep(LONG_S)
    scene.nodes.resume(victim)


async def _leaders_moved(scene: Scene, _: int) -> None:
    await scene.move_leaders(scene.topics)


async def _coordinator_moved(scene: Scene, _: int) -> None:
    await scene.move_leaders([OFFSETS])


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault; `apply` returns when it is over.

    Attributes:
        needs_nodes: it makes sense with several nodes only.
    """

    name: str
    apply: Callable[[Scene, int], Awaitable[None]]
    needs_nodes: bool = False


FAULTS: Final = (
    Fault("connections cut", _cut),
    Fault("delayed 0.3 s", _relayed(Mode.DELAY, SHORT_S)),
    Fault("black-holed 8 s", _relayed(Mode.SILENCE, LONG_S)),
    Fault("half responses", _relayed(Mode.HALF_ANSWER, SHORT_S)),
    Fault("reset in a request", _relayed(Mode.HALF_REQUEST, SHORT_S)),
    Fault("broker stopped", _stopped),
    Fault("broker killed", _killed),
    Fault("broker frozen 8 s", _frozen),
    Fault("leaders moved", _leaders_moved, needs_nodes=True),
    Fault("coordinator moved", _coordinator_moved, needs_nodes=True),
)
