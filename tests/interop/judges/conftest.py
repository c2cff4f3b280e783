"""A broker that may be killed."""

from collections.abc import Iterator

import pytest

from tests.interop.broker import Broker, chosen_broker

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


@pytest.fixture
def judged_broker() -> Iterator[Broker]:
    """A broker of the test's own."""
    running = chosen_broker(SETTINGS)
    try:
        running.start()
        yield running
    finally:
        running.stop()
