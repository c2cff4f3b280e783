"""What is measured: each workload loads one broker once and answers its figures.

Here: which client moves how much, and the broker's CPU time and memory meanwhile.
Not here: turns and rounds (`brokers`), the clients themselves (`clients`). MB and GB are powers of ten and count the
records' values, nothing around them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol
from uuid import uuid4

from benchmarks import clients
from benchmarks.clients import Moved
from benchmarks.report import Metric
from benchmarks.subjects import Subject

PARTITIONS = 4

PRODUCE_MB = Metric(name="produced", unit="MB/s", higher_is_better=True, target=1.5)
PRODUCE_RECORDS = Metric(name="produced", unit="1,000 records/s", higher_is_better=True)
PRODUCE_CPU = Metric(name="broker CPU", unit="s/GB produced", higher_is_better=False, target=0.5)
FETCH_MB = Metric(name="fetched", unit="MB/s", higher_is_better=True, target=1.5)
FETCH_CPU = Metric(name="broker CPU", unit="s/GB fetched", higher_is_better=False, target=0.5)
P50 = Metric(name="p50", unit="ms", higher_is_better=False)
P99 = Metric(name="p99", unit="ms", higher_is_better=False)
START = Metric(name="to first record acknowledged", unit="s", higher_is_better=False, target=0.5, absolute=True)
IDLE = Metric(name="resident memory idle", unit="MiB", higher_is_better=False, target=80, absolute=True)
LOADED = Metric(name="resident memory after the load", unit="MiB", higher_is_better=False)

Figures = Mapping[Metric, float]


class Client(Enum):
    """Who loads the broker."""

    LIBRDKAFKA = "librdkafka"
    JAVA = "Java"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much one run moves."""

    label: str
    record_bytes: int
    records: int

    @property
    def gigabytes(self) -> float:
        """All values together."""
        return self.record_bytes * self.records / 1e9


SMALL = Size(label="100B", record_bytes=100, records=1_000_000)
LARGE = Size(label="1KiB", record_bytes=1024, records=250_000)
QUICK_SMALL = Size(label="100B", record_bytes=100, records=100_000)
QUICK_LARGE = Size(label="1KiB", record_bytes=1024, records=30_000)


class Workload(Protocol):
    """One kind of load."""

    @property
    def name(self) -> str:
        """Its name, as `--only` takes it."""

    def prepare(self, subject: Subject) -> None:
        """Make what every run needs; not measured."""

    def measure(self, subject: Subject) -> Figures:
        """Run once."""


class Produce:
    """Write to a fresh topic of four partitions, then remove it."""

    def __init__(self, client: Client, size: Size) -> None:
        self._client = client
        self._size = size
        self.name = f"produce-{client.value.lower()}-{size.label}"

    def prepare(self, subject: Subject) -> None:
        """Nothing: each run makes its topic."""

    def measure(self, subject: Subject) -> Figures:
        """Produce once."""
        topic, size, at = f"produce-{uuid4()}", self._size, subject.bootstrap_servers
        clients.create_topic(at, topic, PARTITIONS)
        produce = clients.java_produce if self._client is Client.JAVA else clients.librdkafka_produce
        moved, cpu = _with_cpu(subject, lambda: produce(at, topic, size.records, size.record_bytes))
        clients.delete_topic(at, topic)
        rate = moved.records / moved.seconds
        return {
            PRODUCE_MB: rate * size.record_bytes / 1e6,
            PRODUCE_RECORDS: rate / 1000,
            PRODUCE_CPU: cpu / size.gigabytes,
        }


class Fetch:
    """Read a topic of four partitions from its beginning, out of the page cache."""

    def __init__(self, client: Client, size: Size) -> None:
        self._client = client
        self._size = size
        self.name = f"fetch-{client.value.lower()}-{size.label}"

    def prepare(self, subject: Subject) -> None:
        """Fill the topic with librdkafka."""
        clients.create_topic(subject.bootstrap_servers, self.name, PARTITIONS)
        clients.librdkafka_produce(subject.bootstrap_servers, self.name, self._size.records, self._size.record_bytes)

    def measure(self, subject: Subject) -> Figures:
        """Read it once."""
        at, records = subject.bootstrap_servers, self._size.records
        moved, cpu = _with_cpu(
            subject,
            lambda: (
                clients.java_fetch(at, self.name, records)
                if self._client is Client.JAVA
                else clients.librdkafka_fetch(at, self.name, PARTITIONS, records)
            ),
        )
        return {
            FETCH_MB: moved.records / moved.seconds * self._size.record_bytes / 1e6,
            FETCH_CPU: cpu / self._size.gigabytes,
        }


class LoneProduce:
    """One record of 1 KiB at a time with acks=all, on one partition."""

    name = "lone-produce"

    def __init__(self, count: int) -> None:
        self._count = count

    def prepare(self, subject: Subject) -> None:
        """Make the topic."""
        clients.create_topic(subject.bootstrap_servers, self.name, 1)

    def measure(self, subject: Subject) -> Figures:
        """Produce so many times, each after the other's answer; the first tenth warms the connection and is not counted."""
        taken = clients.lone_produces(subject.bootstrap_servers, self.name, self._count + self._count // 10, 1024)
        counted = sorted(taken[self._count // 10 :])
        return {P50: 1000 * counted[len(counted) // 2], P99: 1000 * counted[len(counted) * 99 // 100]}


def _with_cpu(subject: Subject, load: Callable[[], Moved]) -> tuple[Moved, float]:
    before = subject.cpu_seconds()
    moved = load()
    return moved, subject.cpu_seconds() - before


def started(subject: Subject, idle_seconds: float) -> Figures:
    """How soon brokers that were just started took their first record, and their memory when nothing happens after that.

    The aims in seconds and MiB are for one broker. The aim of a cluster is the figure of the other one.
    """
    clients.first_acknowledged(subject.bootstrap_servers)
    start = time.monotonic() - subject.begun
    time.sleep(idle_seconds)
    figures = {START: start, IDLE: subject.resident_mib()}
    if len(subject.brokers) == 1:
        return figures
    return {replace(metric, target=1.0, absolute=False): figure for metric, figure in figures.items()}


def loads(*, quick: bool) -> list[Workload]:
    """Every workload on a running broker."""
    small, large = (QUICK_SMALL, QUICK_LARGE) if quick else (SMALL, LARGE)
    workloads: list[Workload] = []
    for client in Client:
        for size in (large,) if quick and client is Client.JAVA else (small, large):
            workloads += [Produce(client, size), Fetch(client, size)]
    return [*workloads, LoneProduce(200 if quick else 2_000)]
