"""One broker for all hostile deeds, as small as its default settings allow, and a canary beside each."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary, KafkaQuestion

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    # The tests answer for what a disk costs elsewhere.
    "log.cleaner.enable": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is hostile."""
    folder = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.hostile)


@pytest.fixture(scope="session")
def hostile_broker() -> Iterator[BuswayProcess]:
    """A broker in its own process that all tests share: what one deed leaves behind is the next one's burden."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    broker = BuswayProcess(SETTINGS)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def canary(hostile_broker: BuswayProcess) -> Iterator[Canary]:
    """Asks the broker for as long as the test runs; at the end it says whether anybody was stalled or memory was taken."""
    Path(f"/proc/{hostile_broker.pid}/clear_refs").write_text("5")  # the peak is counted from here
    ask = KafkaQuestion(hostile_broker.bootstrap_servers)
    with Canary(hostile_broker.pid, ask) as singing:
        yield singing
    singing.check()
