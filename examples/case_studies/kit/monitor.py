"""The bus beside an application: topics, groups, nodes, as a page shows them.

Here: reading them again and again, rates, why a group rebalanced, how long a failover took.
Not here: the page (`cockpit`), killing (`kills`).
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from busway.admin.admin import Admin
from busway.admin.explanations import Rebalance, RebalanceReason
from busway.cli.progress import read_ends, read_groups
from busway.cli.top import Reading, group_rates, topic_rates
from busway.cluster.metadata import TopicInfo
from busway.errors import BuswayError
from busway.types import TopicPartition

INTERVAL_S: Final = 1.0
FAILOVER_POLL_S: Final = 0.04
FAILOVER_MAX_S: Final = 60.0
_TIMEOUT_S: Final = 5.0
"""A broker that was killed in the middle of a request answers nothing; the next read asks others."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    topic: str
    partitions: int
    records: int
    records_per_s: float


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A consumer group.

    Attributes:
        lag: records that it has not committed.
        rebalance: its last one and why, in a sentence; None if unknown.
    """

    group: str
    state: str
    members: int
    lag: int
    records_per_s: float
    rebalanced_at_ms: int | None
    rebalance: str | None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A broker; `leads` counts partitions."""

    node: int
    serves: bool
    leads: int
    controller: bool


@dataclass(slots=True)
class BusState:
    """The last reading.

    Attributes:
        reachable: it succeeded.
        leaders: of the topics' partitions that have a leader.
    """

    reachable: bool = False
    topics: list[TopicRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    under_replicated: int = 0


class Monitor:
    """Reads a bus every second while `run` runs.

    Args:
        bootstrap_servers: of the bus.
        groups: shown, in this order.
        nodes: how many brokers there are.
        changed: called after each reading.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        groups: Sequence[str],
        *,
        nodes: int = 1,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._groups = groups
        self._nodes = nodes
        self._changed = changed
        self._before: Reading | None = None
        self._rebalances: dict[str, Rebalance] = {}
        """The last of each group: a coordinator that starts again knows of none."""
        self.state = BusState()

    async def run(self) -> None:
        """Read until cancelled."""
        async with self.admin() as admin:
            while True:
                try:
                    async with asyncio.timeout(_TIMEOUT_S):
                        await self._read(admin)
                    self.state.reachable = True
                except (BuswayError, TimeoutError):
                    self.state.reachable = False
                self._changed()
                await asyncio.sleep(INTERVAL_S)

    def admin(self) -> Admin:
        """A client of this bus; not started."""
        return Admin(self._bootstrap_servers, client_id="demo-monitor")

    async def _read(self, admin: Admin) -> None:
        described = list((await admin.describe_topics()).values())
        ends = await read_ends(admin, [topic for topic in described if not topic.internal])
        groups = await read_groups(admin, ends)
        now = Reading(time.monotonic(), ends, groups)
        before, self._before = self._before or now, now
        self.state.topics = sorted(
            (
                TopicRow(rate.topic, rate.partitions, rate.end_offsets, rate.records_per_s)
                for rate in topic_rates(before, now)
            ),
            key=lambda row: row.topic,
        )
        rates = group_rates(before, now)
        rows = []
        for name in self._groups:
            group = [rate for rate in rates if rate.group == name]
            lag, records_per_s = sum(rate.lag for rate in group), sum(rate.records_per_s for rate in group)
            try:
                rows.append(await self._group(admin, name, lag, records_per_s))
            except BuswayError:  # its coordinator loads; what was known of it stays
                rows += [row for row in self.state.groups if row.group == name]
        self.state.groups = rows
        self.state.leaders = leaders(described)
        self.state.under_replicated = sum(
            len(partition.isr) < len(partition.replicas) for topic in described for partition in topic.partitions
        )
        if self._nodes > 1:
            self.state.nodes = await self._node_rows(admin, described)

    async def _group(self, admin: Admin, name: str, lag: int, records_per_s: float) -> GroupRow:
        description = await admin.describe_group(name)
        with contextlib.suppress(BuswayError):
            for rebalance in await admin.explain_group(name):
                self._rebalances[name] = rebalance
        last = self._rebalances.get(name)
        at_ms, why = (None, None) if last is None else (last.at_ms, sentence(last))
        return GroupRow(name, description.state, len(description.members), lag, records_per_s, at_ms, why)

    async def _node_rows(self, admin: Admin, described: Sequence[TopicInfo]) -> list[NodeRow]:
        cluster = await admin.describe_cluster()
        controller = (await admin.describe_quorum()).leader_id
        led = [partition.leader for topic in described for partition in topic.partitions]
        return [
            NodeRow(node, node in cluster.brokers, led.count(node), node == controller)
            for node in range(1, self._nodes + 1)
        ]

    async def failover_s(self, dead: int, led: Collection[TopicPartition], begun: float) -> float | None:
        """Wait until other brokers lead the partitions; return the seconds since `begun`, None if that takes too long.

        Args:
            dead: the killed broker.
            led: what it led.
            begun: of the kill, on the monotonic clock.
        """
        async with self.admin() as admin:
            while time.monotonic() - begun < FAILOVER_MAX_S:
                with contextlib.suppress(BuswayError, TimeoutError):
                    async with asyncio.timeout(1.0):
                        now = leaders((await admin.describe_topics()).values())
                    if all(now.get(partition, dead) != dead for partition in led):
                        return time.monotonic() - begun
                await asyncio.sleep(FAILOVER_POLL_S)
        return None


def leaders(topics: Any) -> dict[TopicPartition, int]:
    """Return the leader of each partition that has one."""
    return {
        TopicPartition(topic.name, partition.number): partition.leader
        for topic in topics
        for partition in topic.partitions
        if partition.leader >= 0
    }


def sentence(rebalance: Rebalance) -> str:
    """Describe a rebalance in a line: why, who, how long."""
    why = "; ".join(_reason(reason) for reason in rebalance.reasons[:2]) or "no reason given"
    took = "" if rebalance.took_ms is None else f", took {rebalance.took_ms} ms"
    return f"{why}{took}"


def _reason(reason: RebalanceReason) -> str:
    static = f"static member {reason.instance_id}" if reason.instance_id else ""
    member = static or reason.client_id or "the group"
    return f"{member} {reason.what}" + (f": {reason.reason}" if reason.reason else "")
