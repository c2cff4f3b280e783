"""Any order of group and transaction calls, illegal ones too, gets the error codes, generations and epochs that Apache Kafka gives.

What lives here: running an order on both brokers, and comparing step by step. What does not: the calls, and how they are drawn (`illegal_orders`).

The suites make the same orders each time; `BUSWAY_ORDERS=2000` hunts among that many new ones.
"""

import asyncio
import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from tests.integration.broker.illegal_callers import Call
from tests.integration.broker.illegal_orders import MISTYPED, ORDERS, REPLACED
from tests.integration.broker.illegal_world import Line, World
from tests.support.apache_kafka import ApacheKafka

from busway_bus.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.migration.policy": "bidirectional",
    "group.initial.rebalance.delay.ms": "0",
}
DRAWN = int(os.environ.get("BUSWAY_ORDERS", "0"))
"""So many orders that are drawn anew; 0 for the same ones each time."""


class Brokers:
    """One of each kind, for all examples of the module, on one event loop."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self._runner = asyncio.Runner()
        self._numbers = count()
        self._kafka = kafka
        self._lines: list[Line] = []
        self._cluster = LocalCluster(properties=SETTINGS, prompt=False)

    def __enter__(self) -> "Brokers":
        self._runner.run(self._open())
        return self

    def __exit__(self, *problem: object) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _open(self) -> None:
        await self._cluster.start()
        for servers in (self._cluster.bootstrap_servers, self._kafka.bootstrap_servers):
            line = Line(servers)
            self._lines.append(line)
            await line.open()

    async def _close(self) -> None:
        for line in self._lines:
            line.close()
        await self._cluster.stop()

    def play(self, calls: list[Call]) -> list[str]:
        """The calls on both; what was answered, up to and with the first answer that differs."""
        return self._runner.run(self._play(calls))

    async def _play(self, calls: list[Call]) -> list[str]:
        number = next(self._numbers)
        ours, theirs = (World(line, number) for line in self._lines)
        story: list[str] = []
        for call in calls:
            mine, kafkas = await asyncio.gather(call.make(ours), call.make(theirs))
            if mine != kafkas:
                return [*story, f"{call}\n   ours: {mine}\n kafka: {kafkas}"]
            story.append(f"{call}: {mine}")
        return []


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    """Both, at once for all examples."""
    with ApacheKafka(SETTINGS) as kafka, Brokers(kafka) as running:
        yield running


@given(calls=ORDERS)
@example(calls=REPLACED)
@example(calls=MISTYPED)
@settings(
    max_examples=DRAWN or 300,
    derandomize=not DRAWN,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_order_gets_kafkas_codes(brokers: Brokers, calls: list[Any]) -> None:
    """Step by step, each answer before the next call."""
    differences = brokers.play(calls)
    assert not differences, "\n".join(differences)
