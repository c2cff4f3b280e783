"""Brokers that serve share groups, and topics of a test's own.

Here: the brokers that the tests of this folder run on.
"""

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from busway import Admin, NewTopic, Producer
from tests.support.apache_kafka import ApacheKafka
from tests.support.busway_process import BuswayProcess
from tests.support.patience import patient_ms

LOCK_MS: Final = patient_ms(4_000)
SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "3000",
    "transaction.state.log.num.partitions": "1",
}
SERVERS: Final = ("busway", "apache-kafka")


@pytest.fixture(scope="session", params=SERVERS)
def share_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a broker is that serves share groups."""
    if request.param == "busway":
        broker = BuswayProcess(SETTINGS)
        try:
            broker.start()
            yield broker.bootstrap_servers
        finally:
            broker.stop()
        return
    with ApacheKafka(SETTINGS, heap="512m", features={"share.version": 1}) as kafka:
        yield kafka.bootstrap_servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A topic, and a share group that begins at its first record."""

    bootstrap_servers: str
    topic: str
    group: str
    partitions: int

    async def send(self, *values: bytes) -> None:
        """Write records, to one partition after the other."""
        async with Producer(self.bootstrap_servers) as producer:
            for number, value in enumerate(values):
                await (await producer.send(self.topic, value, partition=number % self.partitions))


@contextlib.asynccontextmanager
async def _made(bootstrap_servers: str, partitions: int) -> AsyncIterator[Work]:
    name = f"work-{uuid.uuid4().hex[:8]}"
    work = Work(bootstrap_servers=bootstrap_servers, topic=name, group=f"{name}.group", partitions=partitions)
    async with Admin(bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1)])
        await admin.alter_group_configs(work.group, {"share.auto.offset.reset": "earliest"})
        yield work
        await admin.delete_topics([name])


@pytest.fixture
async def work(share_server: str) -> AsyncIterator[Work]:
    """A topic with two partitions and a group of the test's own."""
    async with _made(share_server, 2) as made:
        yield made


@pytest.fixture
async def narrow_work(share_server: str) -> AsyncIterator[Work]:
    """A topic with one partition, which all members of its group share."""
    async with _made(share_server, 1) as made:
        yield made
