"""franz-go's part of the suite (`test_clients`) with three replicas on three nodes; `BUSWAY_INTEROP_BROKER=nodes` runs all of it so."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.interop import test_clients as suite
from tests.interop.broker import Broker, three_nodes
from tests.interop.client_report import ClientReport
from tests.interop.clients import FranzGo
from tests.interop.test_clients import CodecTopics

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]
FRANZ_GO = FranzGo("franz-go")
VERSION = "on three nodes"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Broker]:
    """Three nodes, on which a new topic has three replicas."""
    running = three_nodes()
    try:
        running.start()
        yield running
    finally:
        running.stop()


def admin_of(nodes: Broker) -> AdminClient:
    """Return a new admin client."""
    return AdminClient({"bootstrap.servers": nodes.bootstrap_servers, "log_level": 0})


def test_what_franz_go_does_on_one_node(nodes: Broker, client_report: ClientReport) -> None:
    """It writes and reads each codec, and a group of three of it loses a member; then a node is killed."""
    admin = admin_of(nodes)
    topics = CodecTopics(nodes, admin)
    suite.test_produces_every_codec(FRANZ_GO, VERSION, nodes, topics, client_report)
    suite.test_reads_every_codec_of_every_writer(FRANZ_GO, VERSION, nodes, admin, topics, client_report)
    suite.lose_one_of_three([FRANZ_GO] * 3, "three-franz-go", nodes, admin)
    nodes.kill()
    # librdkafka's admin client waits for the controller that it knew, as long as that is down: the killed node may be it
    suite.lose_one_of_three([FRANZ_GO] * 3, "three-franz-go-of-two", nodes, admin_of(nodes))
    nodes.start()
