"""A real node on real sockets: Busway's for each test, and Apache Kafka's for all that do not restart theirs."""

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from tests.support.apache_kafka import ApacheKafka

from busway_bus.testing.local_cluster import LocalCluster

SHORT_SESSIONS = {"group.min.session.timeout.ms": "100"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a broker is."""

    bootstrap_servers: str


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    """One Apache Kafka for the whole session."""
    with ApacheKafka(SHORT_SESSIONS, heap="512m") as kafka:
        yield kafka


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


@pytest.fixture
def topic() -> str:
    """A topic of the test's own."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """A group of the test's own."""
    return f"g-{uuid.uuid4().hex[:12]}"
