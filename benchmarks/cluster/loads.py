"""The loads of three nodes: replication, failover, catch-up, many topics.

Here: what is done and which figure it gives.
Not here: produce, fetch and single records (`benchmarks.workloads`), turns and rounds (`benchmarks.brokers`).
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by its stubs

from benchmarks import clients
from benchmarks.clients import LoadFailed
from benchmarks.cluster.subjects import NODES
from benchmarks.machine import cpu_seconds
from benchmarks.report import Metric
from benchmarks.subjects import Broker, Durability, Subject
from benchmarks.workloads import Client, Figures, LoneProduce, Produce, Size, Workload

FOLLOWER_CPU: Final = Metric(name="followers' CPU", unit="s/GB replicated", higher_is_better=False, target=1.0)
FAILOVER: Final = Metric(name="kill to next record, median", unit="s", higher_is_better=False, target=1.0)
LONGEST: Final = Metric(name="kill to next record, longest", unit="s", higher_is_better=False, target=1.0)
CATCH_UP: Final = Metric(name="start to in sync", unit="s", higher_is_better=False, target=1.0)
CREATED: Final = Metric(name="until all have leaders", unit="s", higher_is_better=False, target=1.0)

RECORD: Final = Size(label="1KiB", record_bytes=1024, records=250_000)
QUICK_RECORD: Final = Size(label="1KiB", record_bytes=1024, records=30_000)
_OS: Final = (Durability.OS,)
"""These loads do not wait for the disk."""
SETTLED_S: Final = 120.0
_BETWEEN_S: Final = 0.005
_STEADY: Final = 50
"""Records acknowledged before a kill."""


class Replication:
    """Write to one partition of three replicas; the CPU time of the two followers."""

    name = "replication"

    def __init__(self, size: Size) -> None:
        self._size = size

    def prepare(self, subject: Subject) -> None:
        """Nothing: each run makes its topic."""

    def measure(self, subject: Subject) -> Figures:
        """Produce once."""
        topic, at, size = f"replication-{uuid4()}", subject.bootstrap_servers, self._size
        clients.create_topic(at, topic, 1)
        leader = leader_of(subject, topic)
        followers = [broker for broker in subject.brokers if broker is not leader]
        before = sum(cpu_seconds(broker.pid) for broker in followers)
        clients.librdkafka_produce(at, topic, size.records, size.record_bytes)
        in_sync(subject, [topic])
        cpu = sum(cpu_seconds(broker.pid) for broker in followers) - before
        clients.delete_topic(at, topic)
        return {FOLLOWER_CPU: cpu / (len(followers) * size.gigabytes)}


class Failover:
    """Kill the leader of a partition under a steady writer, until the next record is acknowledged.

    The clock runs from SIGKILL to the acknowledgement of a record that was handed over after it. The killed node is started again and
    is in sync before the next kill.

    Args:
        kills: of one measurement.
    """

    name = "failover"
    durabilities = _OS
    warms_up = False

    def __init__(self, kills: int) -> None:
        self._kills = kills

    def prepare(self, subject: Subject) -> None:
        """Make the topic."""
        clients.create_topic(subject.bootstrap_servers, self.name, 1)

    def measure(self, subject: Subject) -> Figures:
        """Kill so many times."""
        taken = sorted(self._kill(subject) for _ in range(self._kills))
        return {FAILOVER: taken[len(taken) // 2], LONGEST: taken[-1]}

    def _kill(self, subject: Subject) -> float:
        in_sync(subject, [self.name])
        with _writing(subject.bootstrap_servers, self.name) as writer:
            _wait(lambda: len(writer.acknowledged) >= _STEADY, "the writer does not get on")
            leader = leader_of(subject, self.name)
            killed = time.monotonic()
            leader.kill()
            _wait(lambda: writer.first_after(killed) is not None, "no record was acknowledged after the kill")
            answered = writer.first_after(killed)
            assert answered is not None
            leader.start()
        in_sync(subject, [self.name])
        return answered - killed


class CatchUp:
    """Start a node that missed the records of a topic, until it is in sync in all partitions.

    Args:
        size: what it missed.
    """

    name = "catch-up"
    partitions: Final = 4
    durabilities = _OS
    warms_up = False

    def __init__(self, size: Size) -> None:
        self._size = size

    def prepare(self, subject: Subject) -> None:
        """Nothing: each run makes its topic."""

    def measure(self, subject: Subject) -> Figures:
        """Kill, write, start."""
        topic, at = f"catch-up-{uuid4()}", subject.bootstrap_servers
        clients.create_topic(at, topic, self.partitions)
        in_sync(subject, [topic])
        node = subject.brokers[-1]
        node.kill()
        in_sync(subject, [topic], replicas=NODES - 1)
        clients.librdkafka_produce(at, topic, self._size.records, self._size.record_bytes)
        begun = time.monotonic()
        node.start()
        in_sync(subject, [topic])
        taken = time.monotonic() - begun
        clients.delete_topic(at, topic)
        return {CATCH_UP: taken}


class Topics:
    """Create many topics of one partition and three replicas, in one request."""

    name = "topics"
    durabilities = _OS
    warms_up = False

    def __init__(self, count: int) -> None:
        self._count = count

    def prepare(self, subject: Subject) -> None:
        """Nothing: each run makes its topics."""

    def measure(self, subject: Subject) -> Figures:
        """Create them, and wait for their leaders; then delete them."""
        admin = _admin(subject)
        prefix = f"topic-{uuid4()}"
        names = [f"{prefix}-{number}" for number in range(self._count)]
        topics = [NewTopic(name, num_partitions=1, config={"file.delete.delay.ms": "1000"}) for name in names]
        begun = time.monotonic()
        for future in admin.create_topics(topics, operation_timeout=SETTLED_S, request_timeout=SETTLED_S).values():
            future.result(SETTLED_S)
        in_sync(subject, names)
        taken = time.monotonic() - begun
        for future in admin.delete_topics(names, request_timeout=SETTLED_S).values():
            future.result(SETTLED_S)
        return {CREATED: taken}


class _Writer:
    """A thread that sends one record every 5 ms with acks=all and notes each acknowledgement."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.acknowledged: list[tuple[float, float]] = []
        """`time.monotonic()` when a record was handed over and when it was acknowledged."""
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "acks": "all", "log_level": 0}
        )
        self._topic = topic
        self._over = threading.Event()
        self.thread = threading.Thread(target=self._write)

    def first_after(self, moment: float) -> float | None:
        """Return when the first record that was handed over after a moment was acknowledged."""
        return next((done for sent, done in tuple(self.acknowledged) if sent > moment), None)

    def _write(self) -> None:
        while not self._over.is_set():
            sent = time.monotonic()
            self._producer.produce(self._topic, b"r" * 100, on_delivery=self._delivered(sent))
            self._producer.poll(_BETWEEN_S)
        self._producer.flush(SETTLED_S)

    def _delivered(self, sent: float) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.append((sent, time.monotonic()))

        return note

    def end(self) -> None:
        """Stop the thread."""
        self._over.set()
        self.thread.join()


@contextmanager
def _writing(bootstrap_servers: str, topic: str) -> Iterator[_Writer]:
    writer = _Writer(bootstrap_servers, topic)
    writer.thread.start()
    try:
        yield writer
    finally:
        writer.end()


def _admin(subject: Subject) -> Any:
    return AdminClient({"bootstrap.servers": subject.bootstrap_servers, "log_level": 0})


def leader_of(subject: Subject, topic: str) -> Broker:
    """Return the process that leads the topic's partition 0."""
    metadata = _admin(subject).list_topics(topic, timeout=SETTLED_S)
    return subject.brokers[metadata.topics[topic].partitions[0].leader - 1]


def in_sync(subject: Subject, topics: Sequence[str], replicas: int = NODES) -> None:
    """Wait until every partition of these topics has a leader and so many replicas in sync.

    Raises:
        LoadFailed: they have not in time.
    """
    admin, wanted = _admin(subject), frozenset(topics)

    def settled() -> bool:
        described = admin.list_topics(timeout=SETTLED_S).topics
        return all(
            name in described
            and described[name].partitions
            and all(state.leader > 0 and len(state.isrs) == replicas for state in described[name].partitions.values())
            for name in wanted
        )

    _wait(settled, f"the replicas of {topics[0]} are not in sync")


def _wait(condition: Callable[[], bool], problem: str) -> None:
    until = time.monotonic() + SETTLED_S
    while not condition():
        if time.monotonic() > until:
            raise LoadFailed(problem)
        time.sleep(0.01)


def loads(*, quick: bool) -> list[Workload]:
    """Every load of a running cluster."""
    size = QUICK_RECORD if quick else RECORD
    gibibyte = QUICK_RECORD if quick else Size(label="1KiB", record_bytes=1024, records=2**20)
    return [
        Produce(Client.LIBRDKAFKA, size),
        Produce(Client.JAVA, size),
        LoneProduce(200 if quick else 2_000),
        Replication(size),
        CatchUp(gibibyte),
        Topics(50 if quick else 1_000),
        Failover(2 if quick else 10),
    ]
