"""Faults of a run, drawn from a seed, and their effect on a cluster's processes.

Here: kinds, drawing, injecting and ending one.
Not here: the processes (`cluster`), how many a run has (`run`).
"""

import asyncio
import contextlib
import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from busway.admin.admin import Admin
from busway.errors import BuswayError
from tests.chaos.cluster import NodeProcesses
from tests.support.patience import patient_ms

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
)
_SHORT_S: Final = (0.05, 0.5)
_LONG_S: Final = (3.5, 6.0)
"""Longer than a broker's session and an election."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        kind: one of `KINDS`.
        node, other: drawn nodes, for the kinds that do not look for one.
        partition: whose leader is looked for.
        lasts_s: seconds until killed nodes are started again, or paused ones resumed.
        settled: wait until all replicas are in sync before the next fault, else only for progress.
    """

    kind: str
    node: int
    other: int
    partition: int
    lasts_s: float
    settled: bool

    def __str__(self) -> str:
        return f"{self.kind} (node {self.node}, partition {self.partition}), {self.lasts_s:.2f} s"


def drawn_faults(seed: int, count: int, nodes: Collection[int], partitions: int) -> list[Fault]:
    """Return the faults of a seed. Each kind comes once before one comes again."""
    drawn = random.Random(seed)
    faults: list[Fault] = []
    left: list[str] = []
    for _ in range(count):
        if not left:
            left = drawn.sample(KINDS, len(KINDS))
        node, other = drawn.sample(sorted(nodes), 2)
        faults.append(
            Fault(
                kind=left.pop(),
                node=node,
                other=other,
                partition=drawn.randrange(partitions),
                lasts_s=drawn.uniform(*(_LONG_S if drawn.random() < 0.4 else _SHORT_S)),
                settled=drawn.random() < 0.6,
            )
        )
    return faults


async def target(fault: Fault, servers: str, topic: str) -> int:
    """Return the node that a fault means: the leader, the controller, or the drawn one if there is none."""
    found_node = -1
    with contextlib.suppress(BuswayError, TimeoutError):
        async with Admin(servers, request_timeout_ms=patient_ms(5_000)) as admin:
            if fault.kind.endswith("leader"):
                found_node = (await admin.describe_topics([topic]))[topic].partitions[fault.partition].leader
            elif fault.kind.endswith("controller"):
                found_node = (await admin.describe_quorum()).leader_id
    return found_node if found_node > 0 else fault.node


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
    else:
        victims = {"kill all": cluster.node_ids, "kill two": (fault.node, fault.other)}.get(fault.kind, (node_id,))
        await cluster.kill(victims)
        await asyncio.sleep(fault.lasts_s)
        await cluster.start(victims)
