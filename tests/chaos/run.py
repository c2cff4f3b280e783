"""A run: clients and faults on a cluster of processes, and its report.

Here: the order of events.
Not here: faults (`faults`), clients (`clients`), judging (`ledger`, `replicas`), the table (`report`).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from busway.admin.admin import Admin
from busway.admin.new_topic import NewTopic
from busway.cluster.metadata import TopicInfo
from busway.errors import BuswayError
from tests.chaos import librdkafka_clients, sdk_clients
from tests.chaos.clients import PARTITIONS, PLAIN, TOPICS, TRANSACTIONAL, Clients, writers_with
from tests.chaos.cluster import NodeEnded, NodeProcesses
from tests.chaos.faults import Fault, drawn_faults, inject, target
from tests.chaos.ledger import Ledger
from tests.chaos.replicas import compare
from tests.chaos.report import NO_SPACE, Floors, Report
from tests.chaos.systems import System
from tests.support import waiting
from tests.support.patience import patient, patient_ms

PROGRESS: Final = 40
"""Acknowledged operations between two faults; of each writer at least one, and transactions that are committed."""
COMMITTED: Final = 2
PROGRESS_S: Final = 60.0
SETTLED_S: Final = 60.0


class Stalled(Exception):
    """No progress although no fault is active."""


async def until(what: str, holds: Callable[[], Awaitable[bool]], seconds: float, cluster: NodeProcesses) -> None:
    """Wait for a condition while no fault is active.

    Raises:
        Stalled: it does not hold in time.
        NodeEnded: a node ended by itself.
    """

    async def holds_while_all_run() -> bool:
        cluster.check()
        return await holds()

    try:
        await waiting.until(holds_while_all_run, seconds=seconds, pause_s=0.05)
    except TimeoutError:
        raise Stalled(f"{what}: not within {patient(seconds):.0f} s although all nodes run") from None


class Run:
    """One run.

    Args:
        foreign: programs of `foreign_clients` besides the clients of this process.
        between_s: of load before each fault, after all writers go on.
        notice: called with a line for each fault.
    """

    def __init__(
        self,
        *,
        system: System,
        seed: int,
        faults: int,
        nodes: int,
        kinds: Sequence[str],
        foreign: Sequence[str],
        between_s: float,
        floors: Floors,
        notice: Callable[[str], None],
    ) -> None:
        self.report = Report(system=system, seed=seed, faults=faults)
        self._kinds, self._foreign, self._floors, self._notice = kinds, foreign, floors, notice
        self._between_s = between_s
        self._cluster = NodeProcesses(nodes, system)
        self._ledger = Ledger()
        self._faults = drawn_faults(seed, faults, self._cluster.node_ids, PARTITIONS, kinds)

    async def run(self) -> Report:
        report, cluster, began_s = self.report, self._cluster, time.monotonic()
        report.folder = cluster.folder
        async with cluster:
            try:
                await self._inject_all()
                await self._judge()
            except (Stalled, NodeEnded, TimeoutError, RuntimeError, BuswayError, ExceptionGroup) as problem:
                report.problems.append(f"{type(problem).__name__}: {problem}")
                if isinstance(problem, ExceptionGroup):
                    report.problems += [str(each) for each in problem.exceptions]
            report.counts += self._ledger.counts
            report.counts["packets dropped"] = cluster.network.dropped
            report.starts_s = cluster.starts_s
            report.counts["unsynced bytes dropped"] = cluster.unsynced
            report.counts["tracebacks in the nodes' logs"] = cluster.logged("Traceback (most recent")
            report.counts[NO_SPACE] = cluster.logged(NO_SPACE)
            if report.counts["tracebacks in the nodes' logs"]:
                report.problems.append("a node logged a traceback")
            report.problems += self._floors.missed(
                report.faults, self._kinds, writers_with(self._foreign), report.counts
            )
            cluster.keep = not report.good
        report.seconds = time.monotonic() - began_s
        return report

    async def _inject_all(self) -> None:
        cluster, ledger = self._cluster, self._ledger
        await cluster.start(cluster.node_ids)
        self._notice("the nodes serve")
        servers = cluster.bootstrap_servers
        await until("a topic is created", self._created, SETTLED_S, cluster)
        await until("all replicas are in sync", self._settled, SETTLED_S, cluster)
        before, controller_before = await self._epochs()
        clients = Clients(servers, ledger, self.report.seed, self._foreign)
        clients.start()
        try:
            await self._progress(clients)
            for number, fault in enumerate(self._faults, 1):
                await self._one(number, fault, clients)
        finally:
            await clients.stop()
        await until("all replicas are in sync", self._settled, SETTLED_S, cluster)
        after, controller_after = await self._epochs()
        self.report.counts["leader_changes"] = after - before
        self.report.counts["controller_changes"] = controller_after - controller_before

    async def _one(self, number: int, fault: Fault, clients: Clients) -> None:
        servers = self._cluster.bootstrap_servers
        node_id = await target(fault, servers, PLAIN if number % 2 else TRANSACTIONAL)
        await asyncio.sleep(self._between_s)
        begin = f"{time.strftime('%H:%M:%S')} {number}: {fault}, on node {node_id}"
        self._notice(f"{begin}; {self._ledger.progress} operations so far")
        await inject(fault, self._cluster, node_id)
        self.report.counts[fault.kind] += 1
        ended_s = time.monotonic()
        await self._progress(clients)
        self.report.recoveries_s[fault.kind].append(time.monotonic() - ended_s)
        if fault.settled:
            await until("all replicas are in sync", self._settled, SETTLED_S, self._cluster)

    async def _progress(self, clients: Clients) -> None:
        """Wait for further operations of each writer."""
        before = Counter(self._ledger.counts)

        async def reached() -> bool:
            clients.check()
            return not self._lacking(before)

        try:
            await until("all clients go on", reached, PROGRESS_S, self._cluster)
        except Stalled as stalled:
            raise Stalled(f"{stalled}; too few: {', '.join(self._lacking(before))}") from None

    def _lacking(self, before: "Counter[str]") -> list[str]:
        """Return the operations of which there were too few since `before`."""
        done = Counter(self._ledger.counts)
        done.subtract(before)
        wanted = {"acknowledged": PROGRESS, "committed": COMMITTED}
        lacking = [name for name, count in wanted.items() if done[name] < count]
        ends = ("acknowledged", "committed", "aborted")
        return lacking + [
            writer for writer in writers_with(self._foreign) if not any(done[f"{end} by {writer}"] > 0 for end in ends)
        ]

    async def _created(self) -> bool:
        try:
            async with self._admin() as admin:
                await admin.create_topics([NewTopic(name, partitions=count) for name, count in TOPICS.items()])
        except BuswayError:
            pass  # created by an earlier try whose answer came too late, or there is no controller yet
        topics = await self._topics()
        return set(TOPICS) <= topics.keys()

    def _admin(self) -> Admin:
        return Admin(self._cluster.bootstrap_servers, request_timeout_ms=patient_ms(5_000))

    async def _topics(self) -> dict[str, TopicInfo]:
        """Return all topics, none while no node answers."""
        try:
            async with self._admin() as admin:
                topics: dict[str, TopicInfo] = await admin.describe_topics()
                return topics
        except BuswayError:
            return {}

    async def _settled(self) -> bool:
        topics = await self._topics()
        return set(TOPICS) <= topics.keys() and all(
            partition.leader > 0 and set(partition.isr) == set(partition.replicas)
            for topic in topics.values()
            for partition in topic.partitions
        )

    async def _epochs(self) -> tuple[int, int]:
        """Return the sum of the leader epochs, and the controller's epoch."""
        async with self._admin() as admin:
            topics, quorum = await admin.describe_topics(list(TOPICS)), await admin.describe_quorum()
        return sum(each.leader_epoch for topic in topics.values() for each in topic.partitions), quorum.leader_epoch

    async def _judge(self) -> None:
        """Read everything, stop the nodes, compare."""
        cluster, report = self._cluster, self.report
        servers = cluster.bootstrap_servers
        final = await sdk_clients.read_all(servers, TOPICS)
        other = await asyncio.to_thread(librdkafka_clients.read_all, servers, TOPICS)
        report.counts["records at the end"] = len(final)
        report.anomalies = self._ledger.anomalies(final)
        if final != other:
            report.problems.append(f"librdkafka reads {len(other)} records, the SDK {len(final)}, or others")
        async with self._admin() as admin:
            metadata_high_watermark = (await admin.describe_quorum()).high_watermark
        placed = {
            f"{name}-{partition.number}": partition.replicas
            for name, topic in (await self._topics()).items()
            for partition in topic.partitions
        }
        await cluster.stop(cluster.node_ids)
        nodes = {node_id: cluster.data_of(node_id) for node_id in cluster.node_ids}
        report.replicas = compare(nodes, placed, metadata_high_watermark)
