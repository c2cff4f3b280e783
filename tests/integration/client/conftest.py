"""A real node on real sockets: Busway's for each test, and Apache Kafka's for all that do not restart theirs."""

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from tests.support.apache_kafka import ApacheKafka

from busway_bus.testing.local_cluster import LocalCluster

SHORT_SESSIONS = {"group.min.session.timeout.ms": "100"}
SHORT_HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
}
"""For groups that the coordinator balances, whose sessions are not the client's to choose."""
QUICK_TRANSACTIONS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
"""Kafka looks for transactions that are over their time every ten seconds, and makes fifty partitions for each kind of coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a broker is, whether its transactions are those of KIP-890, and whether it has a process of its own."""

    bootstrap_servers: str
    implicit: bool = True
    is_apart: bool = False


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    """One Apache Kafka for the whole session."""
    with ApacheKafka({**SHORT_SESSIONS, **SHORT_HEARTBEATS, **QUICK_TRANSACTIONS}, heap="512m") as kafka:
        yield kafka


@pytest.fixture(scope="session")
def apache_before_890() -> Iterator[ApacheKafka]:
    """One whose transactions are those before KIP-890: clients add to them, and epochs stay."""
    properties = {**SHORT_SESSIONS, **QUICK_TRANSACTIONS}
    with ApacheKafka(properties, heap="512m", features={"transaction.version": 1}) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def unverified() -> Iterator[Cluster]:
    """One that believes every record to be part of a transaction, as those before KIP-890 did."""
    properties = {**QUICK_TRANSACTIONS, "transaction.partition.verification.enable": "false"}
    with ApacheKafka(properties, heap="512m") as kafka:
        yield Cluster(bootstrap_servers=kafka.bootstrap_servers)


@pytest.fixture(
    params=["busway", *(pytest.param(name, marks=pytest.mark.java) for name in ("apache", "apache_before_890"))]
)
async def transactional(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Both brokers, and Apache Kafka with each of the two protocols of transactions."""
    if request.param == "busway":
        async with LocalCluster(properties={**SHORT_SESSIONS, **QUICK_TRANSACTIONS}) as running:
            yield Cluster(bootstrap_servers=running.bootstrap_servers)
        return
    kafka: ApacheKafka = request.getfixturevalue(request.param)
    yield Cluster(bootstrap_servers=kafka.bootstrap_servers, implicit=request.param == "apache")


@pytest.fixture
async def node() -> AsyncIterator[LocalCluster]:
    """One fresh node of Busway, which a test may stop and start."""
    async with LocalCluster(properties=SHORT_SESSIONS) as running:
        yield running


@pytest.fixture(params=["busway", pytest.param("apache", marks=pytest.mark.java)])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Each of the two brokers."""
    if request.param == "apache":
        kafka: ApacheKafka = request.getfixturevalue("apache")
        yield Cluster(bootstrap_servers=kafka.bootstrap_servers)
        return
    async with LocalCluster(properties=SHORT_SESSIONS) as running:
        yield Cluster(bootstrap_servers=running.bootstrap_servers)


@pytest.fixture(params=["busway", pytest.param("apache", marks=pytest.mark.java)])
async def balancing(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Each of the two brokers, as far as it balances groups itself."""
    if request.param == "apache":
        kafka: ApacheKafka = request.getfixturevalue("apache")
        yield Cluster(bootstrap_servers=kafka.bootstrap_servers, is_apart=True)
        return
    async with LocalCluster(properties={**SHORT_SESSIONS, **SHORT_HEARTBEATS, **QUICK_TRANSACTIONS}) as running:
        yield Cluster(bootstrap_servers=running.bootstrap_servers)


@pytest.fixture
def topic() -> str:
    """A topic of the test's own."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """A group of the test's own."""
    return f"g-{uuid.uuid4().hex[:12]}"
