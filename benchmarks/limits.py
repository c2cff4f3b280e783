"""`python -m benchmarks.limits`: Busway and Apache Kafka 4.3.1 where the broker is the limit, in turns.

Here: the loads.
Not here: turns, rounds and the table (`brokers`), what goes over the wire (`frames`, `wire`). No client's codec is in
these figures: the same frames are sent again and again, and what is read is thrown away by the kernel. MB and GB are
powers of ten and count records' values where they are written, batches where they are read.
"""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from uuid import uuid4

from benchmarks import clients, frames
from benchmarks.brokers import command
from benchmarks.report import Metric
from benchmarks.subjects import Durability, Subject
from benchmarks.wire import Client, Producer, Reader, close, drive
from benchmarks.workloads import FETCH_CPU, FETCH_MB, P50, PRODUCE_CPU, PRODUCE_MB, PRODUCE_RECORDS, Figures, Workload

SECONDS = 2.0
QUICK_SECONDS = 0.5
IN_FLIGHT = 5
"""Requests of a connection without an answer, as Java's producer has it."""
BATCH_BYTES = 16_384
"""Java's default of batch.size."""
P99 = Metric(name="p99", unit="ms", higher_is_better=False, target=0.5)
MEMORY = Metric(name="memory for unread responses", unit="MiB", higher_is_better=False)
_OS = (Durability.OS,)
_FLUSH = (Durability.FLUSH,)


class Produce:
    """Write batches as fast as they are acknowledged, to a fresh topic.

    Args:
        connections: how many; each has `IN_FLIGHT` requests on their way.
    """

    def __init__(
        self,
        name: str,
        *,
        connections: int,
        seconds: float,
        partitions: int = 4,
        batch_bytes: int = BATCH_BYTES,
        durabilities: Sequence[Durability] = tuple(Durability),
    ) -> None:
        self.name = name
        self.durabilities = durabilities
        self._connections = connections
        self._partitions = partitions
        self._seconds = seconds
        self._batch = frames.batch(batch_bytes)

    def prepare(self, subject: Subject) -> None:
        """Nothing: each run makes its topic."""

    def measure(self, subject: Subject) -> Figures:
        """Run once."""
        with _fresh_topic(subject, "produce", self._partitions) as topic:
            requests = [frames.produce(topic, at, self._batch.data) for at in range(self._partitions)]
            producers = _producers(subject, topic, requests, self._connections)
            taken, cpu = _work(subject, producers, self._seconds)
        return _produced(producers, self._batch, taken, cpu)


class FetchBatches:
    """Read batches of one size from the page cache, over and over."""

    durabilities = _OS

    def __init__(self, name: str, *, batch_bytes: int, stored_bytes: int, seconds: float, connections: int = 1) -> None:
        self.name = name
        self._seconds = seconds
        self._connections = connections
        self._batch = frames.batch(batch_bytes)
        self._count = max(1, stored_bytes // len(self._batch.data))

    def prepare(self, subject: Subject) -> None:
        """Store them."""
        _store(subject, self.name, self._batch, self._count)

    def measure(self, subject: Subject) -> Figures:
        """Read for a while."""
        readers = _readers(subject, self.name, self._batch, self._connections, end=self._count * self._batch.records)
        return _fetched(readers, *_work(subject, readers, self._seconds))


class Tail:
    """Many consumers follow one partition that is written to."""

    durabilities = _OS

    def __init__(self, *, consumers: int, per_s: float, seconds: float) -> None:
        self.name = f"tail-{consumers}-consumers"
        self._consumers = consumers
        self._per_s = per_s
        self._seconds = seconds
        self._batch = frames.batch(BATCH_BYTES)

    def prepare(self, subject: Subject) -> None:
        """Nothing: each run makes its topic."""

    def measure(self, subject: Subject) -> Figures:
        """As many batches a second as it says; all of them reach all consumers, or fewer where the broker cannot."""
        with _fresh_topic(subject, "tail", 1) as topic:
            request = frames.produce(topic, 0, self._batch.data)
            producer = Producer(subject.bootstrap_servers, [request], topic, in_flight=0)
            readers = _readers(subject, topic, self._batch, self._consumers, end=-1)
            taken, cpu = _work(subject, [*readers, producer], self._seconds, paced=[producer], per_s=self._per_s)
        return {**_fetched(readers, taken, cpu), **_latencies([producer])}


class CatchUp:
    """Consumers read old batches while new ones are written."""

    durabilities = _OS
    name = "catch-up-beside-writes"

    def __init__(self, *, stored_bytes: int, seconds: float) -> None:
        self._seconds = seconds
        self._batch = frames.batch(BATCH_BYTES)
        self._count = stored_bytes // len(self._batch.data)

    def prepare(self, subject: Subject) -> None:
        """Store the old ones."""
        _store(subject, self.name, self._batch, self._count)

    def measure(self, subject: Subject) -> Figures:
        """Four readers and one writer, each as fast as it can."""
        with _fresh_topic(subject, "beside", 1) as topic:
            producers = _producers(subject, topic, [frames.produce(topic, 0, self._batch.data)], 1)
            readers = _readers(subject, self.name, self._batch, 4, end=self._count * self._batch.records)
            taken, cpu = _work(subject, [*readers, *producers], self._seconds)
        return {
            PRODUCE_MB: _produced(producers, self._batch, taken, cpu)[PRODUCE_MB],
            FETCH_MB: _fetched(readers, taken, cpu)[FETCH_MB],
        }


class Latency:
    """Durable produces of one record, each after the other's answer; or batches at half of what so many connections can write.

    Args:
        half_of: how many; 0 for the lone one.
    """

    durabilities = _FLUSH

    def __init__(self, *, half_of: int, seconds: float) -> None:
        self.name = f"half-load-{half_of}-connections" if half_of else "lone-durable-produce"
        self._half_of = half_of
        self._seconds = seconds
        self._batch = frames.batch(BATCH_BYTES if half_of else 100)

    def prepare(self, subject: Subject) -> None:
        """Nothing: each run makes its topic."""

    def measure(self, subject: Subject) -> Figures:
        """Run once; where the half is asked for, find the whole first."""
        partitions = 4 if self._half_of else 1
        figures: dict[Metric, float] = {}
        with _fresh_topic(subject, "latency", partitions) as topic:
            requests = [frames.produce(topic, at, self._batch.data) for at in range(partitions)]
            in_flight = IN_FLIGHT if self._half_of else 1
            producers = _producers(subject, topic, requests, self._half_of or 1, in_flight=in_flight)
            taken, _ = _work(subject, producers, self._seconds)
            if self._half_of:
                per_s = sum(producer.answered for producer in producers) / taken / 2
                producers = _producers(subject, topic, requests, self._half_of, in_flight=0)
                _work(subject, producers, self._seconds, paced=producers, per_s=per_s)
                figures[PRODUCE_RECORDS] = per_s * self._batch.records / 1000
        return {**figures, **_latencies(producers)}


class ResponseMemory:
    """What a broker holds for clients that ask for 50 MB each and read nothing."""

    durabilities = _OS
    name = "response-memory"
    _clients = 20
    _bytes = 50_000_000

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._batch = frames.batch(1_000_000)

    def prepare(self, subject: Subject) -> None:
        """Store as much as they ask for."""
        _store(subject, self.name, self._batch, self._bytes // len(self._batch.data) + 2)

    def measure(self, subject: Subject) -> Figures:
        """How much more is resident when all have asked."""
        before = subject.resident_mib()
        fetch = frames.Fetch(self.name, 0, max_bytes=self._bytes, wait_ms=0)
        readers = [Reader(subject.bootstrap_servers, fetch, self._batch) for _ in range(self._clients)]
        try:
            for reader in readers:
                reader.begin()
            time.sleep(self._seconds)
            return {MEMORY: max(subject.resident_mib() - before, 0.0)}
        finally:
            close(readers)


class Partitions:
    """Batches of 1 kB to very many partitions in turn, which stay from round to round."""

    durabilities = _OS

    def __init__(self, count: int, *, seconds: float) -> None:
        self.name = f"produce-{count}-partitions"
        self._count = count
        self._seconds = seconds
        self._batch = frames.batch(1_000)

    def prepare(self, subject: Subject) -> None:
        """Make them."""
        clients.create_topic(subject.bootstrap_servers, self.name, self._count)

    def measure(self, subject: Subject) -> Figures:
        """Eight connections, each in another part of them."""
        requests = [frames.produce(self.name, at, self._batch.data) for at in range(self._count)]
        producers = _producers(subject, self.name, requests, 8)
        return _produced(producers, self._batch, *_work(subject, producers, self._seconds))


@contextlib.contextmanager
def _fresh_topic(subject: Subject, name: str, partitions: int) -> Iterator[str]:
    """A topic for one run."""
    topic = f"{name}-{uuid4()}"
    clients.create_topic(subject.bootstrap_servers, topic, partitions)
    yield topic
    clients.delete_topic(subject.bootstrap_servers, topic)


def _work(
    subject: Subject,
    connections: Sequence[Client],
    seconds: float,
    *,
    paced: Sequence[Producer] = (),
    per_s: float = 0.0,
) -> tuple[float, float]:
    """Drive connections and close them: how long that took, and how many of the broker's processor seconds."""
    before = subject.cpu_seconds()
    try:
        taken = drive(connections, seconds, paced=paced, per_s=per_s)
    finally:
        close(connections)
    return taken, subject.cpu_seconds() - before


def _producers(
    subject: Subject, topic: str, requests: Sequence[bytes], connections: int, *, in_flight: int = IN_FLIGHT
) -> list[Producer]:
    """Producers, each of which begins at another partition."""
    step = max(1, len(requests) // connections)
    return [
        Producer(
            subject.bootstrap_servers,
            [*requests[at * step % len(requests) :], *requests[: at * step % len(requests)]],
            topic,
            in_flight=in_flight,
        )
        for at in range(connections)
    ]


def _readers(subject: Subject, topic: str, batch: frames.Batch, count: int, *, end: int) -> list[Reader]:
    fetch = partial(frames.Fetch, topic, 0, max_bytes=1024 * 1024, wait_ms=500)
    return [Reader(subject.bootstrap_servers, fetch(), batch, end=end) for _ in range(count)]


def _store(subject: Subject, topic: str, batch: frames.Batch, count: int) -> None:
    """A topic of one partition that holds a batch so many times."""
    clients.create_topic(subject.bootstrap_servers, topic, 1)
    producer = Stored(subject.bootstrap_servers, [frames.produce(topic, 0, batch.data)], topic, count)
    try:
        drive([producer], 0.0)
    finally:
        close([producer])


class Stored(Producer):
    """Sends a frame so many times, and is done."""

    def __init__(self, bootstrap_servers: str, requests: Sequence[bytes], topic: str, count: int) -> None:
        super().__init__(bootstrap_servers, requests, topic, in_flight=min(count, 50))
        self._to_send = count

    @property
    def busy(self) -> bool:
        """Until all are acknowledged."""
        return super().busy or self._to_send > 0

    def send(self, due: float) -> None:
        """Send one more, if there are more to send."""
        if self._to_send:
            self._to_send -= 1
            super().send(due)

    def readable(self) -> None:
        """Take in acknowledgements; for each one more goes out."""
        self.stopping = False
        super().readable()


def _produced(producers: Sequence[Producer], batch: frames.Batch, taken: float, cpu: float) -> Figures:
    answered = sum(producer.answered for producer in producers)
    value_bytes = answered * batch.value_bytes
    return {
        PRODUCE_MB: value_bytes / taken / 1e6,
        PRODUCE_RECORDS: answered * batch.records / taken / 1000,
        PRODUCE_CPU: cpu / value_bytes * 1e9,
    }


def _fetched(readers: Sequence[Reader], taken: float, cpu: float) -> Figures:
    read = sum(reader.bytes_read for reader in readers)
    return {FETCH_MB: read / taken / 1e6, FETCH_CPU: cpu / read * 1e9}


def _latencies(producers: Sequence[Producer]) -> Figures:
    counted = sorted(taken for producer in producers for taken in producer.taken_s[len(producer.taken_s) // 10 :])
    return {P50: 1000 * counted[len(counted) // 2], P99: 1000 * counted[len(counted) * 99 // 100]}


def loads(*, quick: bool) -> list[Workload]:
    """Every load, those that need much set up last."""
    seconds = QUICK_SECONDS if quick else SECONDS
    stored = 16_000_000 if quick else 128_000_000
    partitions = 500 if quick else 10_000
    return [
        *(Produce(f"produce-{count}-connections", connections=count, seconds=seconds) for count in (1, 8, 64)),
        Produce(
            "produce-50-partitions-1kB-batches",
            connections=8,
            seconds=seconds,
            partitions=50,
            batch_bytes=1_000,
            durabilities=_FLUSH,
        ),
        *(Latency(half_of=count, seconds=seconds) for count in (0, 1, 64)),
        FetchBatches("fetch-200B-batches", batch_bytes=200, stored_bytes=stored // 16, seconds=seconds),
        FetchBatches("fetch-16kB-batches", batch_bytes=BATCH_BYTES, stored_bytes=stored, seconds=seconds),
        FetchBatches("fetch-1MB-batches", batch_bytes=1_000_000, stored_bytes=stored, seconds=seconds),
        FetchBatches(
            "fetch-16kB-batches-64-connections",
            batch_bytes=BATCH_BYTES,
            stored_bytes=stored,
            seconds=seconds,
            connections=64,
        ),
        Tail(consumers=64, per_s=200.0, seconds=seconds),
        CatchUp(stored_bytes=stored, seconds=seconds),
        ResponseMemory(seconds=seconds),
        Partitions(partitions, seconds=seconds),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the JSON."""
    assert __doc__ is not None
    return command("limits", __doc__.split("\n\n")[0], loads, arguments, starts=False)


if __name__ == "__main__":
    sys.exit(main())
