"""`python -m benchmarks.transactions`: transactions on Busway and on Apache Kafka 4.3.1, in turns.

Here: the loads.
Not here: turns, rounds and the table (`brokers`). The client is Busway's own on both sides, in this process, by the
protocol of transaction.version 2: where transactions have many records it is a good part of what is measured. Each
record has a value of 100 bytes; each transaction writes to four partitions, or to as many as it has records, is
committed, and answered, before its producer begins the next one.
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from uuid import uuid4

from benchmarks import clients
from benchmarks.brokers import command
from benchmarks.report import Metric
from benchmarks.subjects import Subject
from benchmarks.workloads import P50, PRODUCE_RECORDS, Figures, Workload
from busway import Producer

PARTITIONS = 4
RECORD_BYTES = 100
SECONDS = 3.0
QUICK_SECONDS = 0.5
WARM_UP = 5
"""Transactions of each producer that are not counted."""
RATE = Metric(name="committed", unit="transactions/s", higher_is_better=True, target=1.0)
P99 = Metric(name="p99", unit="ms", higher_is_better=False, target=1.0)
CPU = Metric(name="broker CPU", unit="ms/transaction", higher_is_better=False, target=1.0)


class Transactions:
    """Producers that commit one transaction after the other.

    Args:
        records: in each transaction.
        producers: beside each other, each with a transactional id of its own.
    """

    def __init__(self, *, records: int, producers: int, seconds: float) -> None:
        self.name = f"transactions-of-{records}-by-{producers}"
        self._records = records
        self._producers = producers
        self._seconds = seconds

    def prepare(self, subject: Subject) -> None:
        """Nothing: each run makes its topic."""

    def measure(self, subject: Subject) -> Figures:
        """Run once."""
        topic = f"transactions-{uuid4()}"
        clients.create_topic(subject.bootstrap_servers, topic, PARTITIONS)
        taken_s, seconds, cpu = asyncio.run(self._run(subject, topic))
        clients.delete_topic(subject.bootstrap_servers, topic)
        rate, ordered = len(taken_s) / seconds, sorted(taken_s)
        return {
            RATE: rate,
            PRODUCE_RECORDS: rate * self._records / 1000,
            CPU: 1000 * cpu / len(taken_s),
            P50: 1000 * ordered[len(ordered) // 2],
            P99: 1000 * ordered[len(ordered) * 99 // 100],
        }

    async def _run(self, subject: Subject, topic: str) -> tuple[list[float], float, float]:
        producers = [
            Producer(subject.bootstrap_servers, transactional_id=f"{topic}-{number}", linger_ms=0)
            for number in range(self._producers)
        ]
        value = os.urandom(RECORD_BYTES)
        taken_s: list[float] = []
        try:
            await asyncio.gather(*(producer.start() for producer in producers))
            for _ in range(WARM_UP):
                await asyncio.gather(*(self._transaction(producer, topic, value) for producer in producers))
            before, begun = subject.cpu_seconds(), time.perf_counter()
            runs = [self._until(producer, topic, value, begun + self._seconds) for producer in producers]
            for run_s in await asyncio.gather(*runs):
                taken_s += run_s
            return taken_s, time.perf_counter() - begun, subject.cpu_seconds() - before
        finally:
            await asyncio.gather(*(producer.stop() for producer in producers))

    async def _until(self, producer: Producer, topic: str, value: bytes, end: float) -> Sequence[float]:
        taken_s, begun = [], time.perf_counter()
        while begun < end:
            await self._transaction(producer, topic, value)
            begun, before = time.perf_counter(), begun
            taken_s.append(begun - before)
        return taken_s

    async def _transaction(self, producer: Producer, topic: str, value: bytes) -> None:
        async with producer.transaction():
            for number in range(self._records):
                await producer.send(topic, value, partition=number % PARTITIONS)


def loads(*, quick: bool) -> list[Workload]:
    """Every load."""
    seconds = QUICK_SECONDS if quick else SECONDS
    return [
        Transactions(records=records, producers=producers, seconds=seconds)
        for producers in (1, 8)
        for records in (1, 10, 100, 1_000)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the JSON."""
    assert __doc__ is not None
    return command("transactions", __doc__.split("\n\n")[0], loads, arguments, starts=False)


if __name__ == "__main__":
    sys.exit(main())
