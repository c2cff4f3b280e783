"""Faults of a run, drawn from a seed, and their effect on a cluster's processes.

Here: kinds, drawing, injecting and ending one.
Not here: the processes (`cluster`), their links (`network`), how many a run has (`run`).
"""

import asyncio
import contextlib
import random
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from busway.admin.admin import Admin
from busway.errors import BuswayError
from tests.chaos.cluster import NodeProcesses
from tests.chaos.network import LOSSY, SLOW
from tests.support.patience import patient_ms

NETWORK_KINDS: Final = (
    "cut off leader",
    "cut off controller",
    "cut off random",
    "cut what leader sends",
    "cut what controller receives",
    "cut all but a ring",
    "unplug leader",
    "slow link of leader",
    "lossy link of leader",
)
"""Of the links between nodes; clients reach each node, unless it is unplugged, or its link is slow or lossy."""
POWER_KINDS: Final = ("power loss leader", "power loss two", "power loss all")
DISK_KINDS: Final = ("disk full leader", "disk full controller", "disk full random")
KINDS: Final = (
    "kill leader",
    "kill controller",
    "kill random",
    "kill two",
    "kill all",
    "pause leader",
    "pause controller",
    "pause random",
    "restart",
    *NETWORK_KINDS,
    *POWER_KINDS,
    *DISK_KINDS,
)
LASTING_KINDS: Final = (*NETWORK_KINDS, *DISK_KINDS)
"""Of little effect when they are short."""
_SHORT_S: Final = (0.05, 0.5)
_LONG_S: Final = (3.5, 6.0)
"""Longer than a broker's session and an election."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        kind: one of `KINDS`.
        ring: all nodes in a drawn order; the first is meant by kinds that do not look for one.
        partition: whose leader is looked for.
        lasts_s: seconds until killed nodes are started again, or paused ones resumed.
        settled: wait until all replicas are in sync before the next fault, else only for progress.
    """

    kind: str
    ring: tuple[int, ...]
    partition: int
    lasts_s: float
    settled: bool

    def __str__(self) -> str:
        return f"{self.kind} (node {self.ring[0]}, partition {self.partition}), {self.lasts_s:.2f} s"


def drawn_faults(
    seed: int, count: int, nodes: Collection[int], partitions: int, kinds: Sequence[str] = KINDS
) -> list[Fault]:
    """Return the faults of a seed. Each kind comes once before one comes again."""
    drawn = random.Random(seed)
    faults: list[Fault] = []
    left: list[str] = []
    for _ in range(count):
        if not left:
            left = drawn.sample(kinds, len(kinds))
        ring = tuple(drawn.sample(sorted(nodes), len(nodes)))
        kind = left.pop()
        faults.append(
            Fault(
                kind=kind,
                ring=ring,
                partition=drawn.randrange(partitions),
                lasts_s=drawn.uniform(
                    *(_LONG_S if drawn.random() < (0.7 if kind in LASTING_KINDS else 0.4) else _SHORT_S)
                ),
                settled=drawn.random() < 0.6,
            )
        )
    return faults


async def target(fault: Fault, servers: str, topic: str) -> int:
    """Return the node that a fault means: the leader, the controller, or the drawn one if there is none."""
    found_node = -1
    with contextlib.suppress(BuswayError, TimeoutError):
        async with Admin(servers, request_timeout_ms=patient_ms(5_000)) as admin:
            if "leader" in fault.kind:
                found_node = (await admin.describe_topics([topic]))[topic].partitions[fault.partition].leader
            elif "controller" in fault.kind:
                found_node = (await admin.describe_quorum()).leader_id
    return found_node if found_node > 0 else fault.ring[0]


def cut_pairs(fault: Fault, node_id: int) -> list[tuple[int, int]]:
    """Return the pairs of sender and receiver between which nothing arrives.

    A ring leaves each node its two neighbours; of three nodes, it leaves a row: the ends do not reach each other.
    """
    others = [other for other in fault.ring if other != node_id]
    outwards, inwards = [(node_id, other) for other in others], [(other, node_id) for other in others]
    if "sends" in fault.kind:
        return outwards
    if "receives" in fault.kind:
        return inwards
    if "ring" in fault.kind:
        count = len(fault.ring)
        near = (1,) if count == 3 else (1, count - 1)
        return [
            (fault.ring[first], fault.ring[second])
            for first in range(count)
            for second in range(count)
            if first != second and abs(first - second) not in near
        ]
    return outwards + inwards


def _damaged(fault: Fault, cluster: NodeProcesses, node_id: int) -> AbstractAsyncContextManager[None]:
    """Return the network with this fault, for the time of a context."""
    network = cluster.network
    if fault.kind.startswith("unplug"):
        return network.unplugged(node_id)
    if "link" in fault.kind:
        return network.congested(node_id, LOSSY if "lossy" in fault.kind else SLOW)
    return network.cut(cut_pairs(fault, node_id))


async def inject(fault: Fault, cluster: NodeProcesses, node_id: int) -> None:
    """Let a fault happen and end: all nodes run and serve afterwards."""
    if fault.kind == "restart":
        await cluster.stop([node_id])
        await asyncio.sleep(fault.lasts_s)
        await cluster.start([node_id])
    elif fault.kind.startswith("pause"):
        cluster.pause(node_id)
        await asyncio.sleep(fault.lasts_s)
        cluster.resume(node_id)
    elif fault.kind in NETWORK_KINDS:
        async with _damaged(fault, cluster, node_id):
            await asyncio.sleep(fault.lasts_s)
    elif fault.kind in DISK_KINDS:
        cluster.fill_disk(node_id)
        await asyncio.sleep(fault.lasts_s)
        cluster.free_disk(node_id)
        if cluster.ended(node_id):  # a node may end without space for its own files, as any node without its disk
            await cluster.start([node_id])
    else:
        wanted = fault.kind.split()[-1]
        victims = {"all": cluster.node_ids, "two": fault.ring[:2]}.get(wanted, (node_id,))
        await (cluster.lose_power if fault.kind in POWER_KINDS else cluster.kill)(victims)
        await asyncio.sleep(fault.lasts_s)
        await cluster.start(victims)
