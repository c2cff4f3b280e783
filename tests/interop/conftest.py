"""One broker for the whole suite."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.interop.broker import Broker, chosen_broker
from tests.interop.client_report import CLIENT_REPORT, ClientReport


@pytest.fixture(scope="session")
def client_report(pytestconfig: pytest.Config) -> ClientReport:
    """Where the tests write down what a client did."""
    return pytestconfig.stash[CLIENT_REPORT]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The broker under test, with whatever the tests have written so far."""
    running = chosen_broker()
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def admin(broker: Broker) -> AdminClient:
    """The tests' own view of the broker."""
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
