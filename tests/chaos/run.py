"""A run: clients and faults on a cluster of processes, and its report.

Here: the order of events, floors.
Not here: faults (`faults`), clients (`sdk_clients`, `librdkafka_clients`, `foreign_clients`), judging (`ledger`, `replicas`).
"""

import asyncio
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from busway.admin.admin import Admin, NewTopic
from busway.cluster.metadata import TopicInfo
from busway.errors import BuswayError
from tests.chaos import foreign_clients, librdkafka_clients, sdk_clients
from tests.chaos.cluster import NodeEnded, NodeProcesses
from tests.chaos.faults import DISK_KINDS, NETWORK_KINDS, POWER_KINDS, Fault, drawn_faults, inject, target
from tests.chaos.ledger import SHOWN, Anomalies, Ledger
from tests.chaos.replicas import Comparison, compare
from tests.chaos.systems import System
from tests.support import waiting
from tests.support.patience import patient, patient_ms

PARTITIONS: Final = 3
PLAIN: Final = "plain"
TRANSACTIONAL: Final = "transactions"
TOPICS: Final = {PLAIN: PARTITIONS, TRANSACTIONAL: PARTITIONS}
PYTHON_WRITERS: Final = ("sdk", "librdkafka", "sdk-transactions", "librdkafka-transactions")
"""The writers in this process; the others have a process each (`foreign_clients`)."""
NO_SPACE: Final = "No space left on device"
PROGRESS: Final = 40
"""Acknowledged operations between two faults; of each writer at least one, and transactions that are committed."""
COMMITTED: Final = 2
PROGRESS_S: Final = 60.0
SETTLED_S: Final = 60.0


def writers_with(foreign: Sequence[str]) -> tuple[str, ...]:
    """Return all writers of a run with these programs."""
    return (*PYTHON_WRITERS, *(writer for program in foreign for writer in foreign_clients.WRITERS[program]))


class Stalled(Exception):
    """No progress although no fault is active."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """What a run has to reach, for each fault where not said otherwise."""

    acknowledged: float = 40.0
    committed: float = 2.0
    aborted: float = 0.3
    leader_changes: float = 0.3
    read: float = 20.0

    def missed(
        self, faults: int, kinds: Collection[str], writers: Collection[str], counts: "Counter[str]"
    ) -> list[str]:
        missed = [
            f"{name.replace('_', ' ')}: {counts[name]}, the floor is {wanted:.0f}"
            for name in self.__slots__
            if counts[name] < (wanted := getattr(self, name) * faults)
        ]
        wanted_kinds = kinds if faults >= len(kinds) else ()
        missed += [f"no fault of the kind {kind}" for kind in wanted_kinds if not counts[kind]]
        if any(counts[kind] for kind in NETWORK_KINDS) and not counts["packets dropped"]:
            missed.append("no packet was dropped")
        if any(counts[kind] for kind in POWER_KINDS) and not counts["unsynced bytes dropped"]:
            missed.append("no power cut dropped a byte")
        if any(counts[kind] for kind in DISK_KINDS) and not counts[NO_SPACE]:
            missed.append("no node had too little space")
        for writer in writers:
            kind = "committed" if writer.endswith("transactions") else "acknowledged"
            if not counts[f"{kind} by {writer}"]:
                missed.append(f"nothing {kind} by {writer}")
        return missed


@dataclass(slots=True, kw_only=True)
class Report:
    """The outcome of a run.

    Attributes:
        counts: operations, faults by kind, changes of leaders and controllers.
        recoveries_s: by kind of fault, from its end until all writers go on.
        problems: what kept the run from its end, and missed floors.
    """

    system: System
    seed: int
    faults: int
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    recoveries_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    anomalies: Anomalies = field(default_factory=Anomalies)
    replicas: Comparison = field(default_factory=Comparison)
    problems: list[str] = field(default_factory=list)
    folder: Path | None = None

    @property
    def good(self) -> bool:
        return not self.problems and (self.equal or not self.system.durable)

    @property
    def equal(self) -> bool:
        """Whether clients and replicas have what they were promised."""
        return not (self.replicas.differences or any(self.anomalies.counts().values()))

    def table(self) -> str:
        """Return the report as text."""
        rows: list[tuple[str, object]] = [
            ("system", self.system.name),
            ("seed", self.seed),
            ("faults", self.faults),
            ("seconds", f"{self.seconds:.0f}"),
        ]
        rows += [(name.replace("_", " "), count) for name, count in sorted(self.counts.items())]
        rows += [
            (f"seconds until all writers go on after {kind}: most", f"{max(seconds):.1f}")
            for kind, seconds in sorted(self.recoveries_s.items())
        ]
        rows += [("bytes equal on all replicas", self.replicas.compared)]
        rows += [("bytes above a high watermark", self.replicas.above)]
        rows += [(name.replace("_", " ").upper(), count) for name, count in self.anomalies.counts().items()]
        rows += [("DIFFERENT LOGS", len(self.replicas.differences))]
        lines = [f"{name:<72} {value!s:>12}" for name, value in rows]
        for name in self.anomalies.counts():
            lines += [f"{name}: {example}" for example in getattr(self.anomalies, name)[:SHOWN]]
        lines += [*self.replicas.differences[:SHOWN], *self.problems]
        if not self.good:
            lines.append(f"the nodes' logs and data are kept in {self.folder}")
        verdict = "good" if self.equal else f"not durable at the defaults of {self.system.name}"
        return "\n".join([*lines, verdict if self.good else "FAILED"])


class Clients:
    """All clients of a run, from `start` to `stop`.

    Args:
        foreign: programs of `foreign_clients` besides the clients of this process.
    """

    def __init__(self, servers: str, ledger: Ledger, seed: int, foreign: Sequence[str]) -> None:
        self._servers, self._ledger, self._seed = servers, ledger, seed
        self._foreign = foreign
        self._drawn = [random.Random(f"{seed} {writer}") for writer in PYTHON_WRITERS]
        self._over, self._threads_over = asyncio.Event(), threading.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        servers, ledger, over, threads_over = self._servers, self._ledger, self._over, self._threads_over
        of_sdk: list[Awaitable[None]] = [
            sdk_clients.write(servers, PLAIN, PARTITIONS, PYTHON_WRITERS[0], ledger, over),
            sdk_clients.write_in_transactions(
                servers, TRANSACTIONAL, PARTITIONS, PYTHON_WRITERS[2], ledger, over, self._drawn[2]
            ),
            sdk_clients.read(servers, TOPICS, ledger, over),
        ]
        of_librdkafka: list[Awaitable[None]] = [
            asyncio.to_thread(
                librdkafka_clients.write, servers, PLAIN, PARTITIONS, PYTHON_WRITERS[1], ledger, threads_over
            ),
            asyncio.to_thread(
                librdkafka_clients.write_in_transactions,
                servers,
                TRANSACTIONAL,
                PARTITIONS,
                PYTHON_WRITERS[3],
                ledger,
                threads_over,
                self._drawn[3],
            ),
            asyncio.to_thread(librdkafka_clients.read, servers, TOPICS, ledger, threads_over),
        ]
        of_programs: list[Awaitable[None]] = [
            foreign_clients.write(program, servers, (PLAIN, TRANSACTIONAL), PARTITIONS, ledger, self._seed, over)
            for program in self._foreign
        ]
        self._tasks = [asyncio.ensure_future(client) for client in (*of_sdk, *of_librdkafka, *of_programs)]

    def check(self) -> None:
        """Raise what ended a client."""
        for task in self._tasks:
            if task.done():
                task.result()
                raise AssertionError(f"{task} ended before the run")

    async def stop(self) -> None:
        """End all clients once their last operations have an outcome."""
        self._over.set()
        self._threads_over.set()
        await asyncio.gather(*self._tasks)


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
            except (Stalled, NodeEnded, TimeoutError, BuswayError, ExceptionGroup) as problem:
                report.problems.append(f"{type(problem).__name__}: {problem}")
                if isinstance(problem, ExceptionGroup):
                    report.problems += [str(each) for each in problem.exceptions]
            report.counts += self._ledger.counts
            report.counts["packets dropped"] = cluster.network.dropped
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
