"""A broker that may be killed, or three nodes, of which one after the other is."""

from collections.abc import Iterator

import pytest

from tests.interop.broker import Broker, chosen_broker, three_nodes
from tests.interop.judges.loops import THREE_NODES

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # Of groups that the coordinator balances; classic members choose theirs.
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
}


@pytest.fixture
def judged_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of the test's own; three nodes where a test is parametrized so."""
    running = three_nodes(SETTINGS) if getattr(request, "param", "") == THREE_NODES else chosen_broker(SETTINGS)
    try:
        running.start()
        yield running
    finally:
        running.stop()
