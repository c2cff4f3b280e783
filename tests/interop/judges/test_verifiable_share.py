"""Kafka's `VerifiableShareConsumer`, the client of its own system tests of share groups, is killed, and so is the broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.broker import Broker, is_apache_chosen
from tests.interop.client_report import ClientReport
from tests.interop.judges.history_file import HistoryFile, HistoryProgram
from tests.interop.judges.scenario import Feeder
from tests.interop.judges.verifiable import ShareConsumerLines, share_consumer_command
from tests.support.apache_kafka import ApacheKafka
from tests.support.busway_process import BuswayProcess
from tests.support.judging.lines import read
from tests.support.judging.report import judge
from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]
PARTITIONS = 4
FED = 3000
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "3000",
}


@pytest.fixture
def sharing_broker() -> Iterator[Broker]:
    """A broker of the test's own that serves share groups."""
    running: Broker
    if is_apache_chosen():
        running = ApacheKafka(SETTINGS, heap="512m", features={"share.version": 1})
    else:
        running = BuswayProcess(SETTINGS)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def test_verifiable_share_consumers_are_handed_all(
    sharing_broker: Broker, tmp_path: Path, client_report: ClientReport
) -> None:
    """Three; one is killed, the broker is killed, one leaves, one comes: nothing left behind, and nothing again once it is acknowledged."""
    history = HistoryFile(tmp_path / "history.jsonl")
    bootstrap = sharing_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("queued", PARTITIONS, 1)])["queued"].result(patient(20))
    feeder = Feeder(bootstrap, "queued", PARTITIONS, history)
    values: set[str] = set()
    tellers: list[HistoryProgram] = []

    def start(number: int) -> None:
        lines = ShareConsumerLines(f"member-{number}", "sharing", values)
        command = share_consumer_command(bootstrap, "queued", "sharing")
        tellers.append(HistoryProgram(f"member-{number}", command, history, translate=lines))

    def said() -> str:
        return "\n".join(
            [f"{len(values)} handed out", *(f"{teller.name}, {teller.code}: {teller.errors}" for teller in tellers)]
        )

    def all_handed(count: int) -> None:
        history.until(lambda: len(values) >= count, said)

    try:
        for number in range(3):
            start(number)
        feeder.feed(FED)
        all_handed(FED // 2)
        tellers[0].kill()
        feeder.feed(FED)
        all_handed(FED * 2)
        feeder.feed(FED)
        sharing_broker.kill()
        sharing_broker.start()
        all_handed(FED * 3)
        start(3)
        feeder.feed(FED)
        assert tellers[1].leave() in (0, 143)
        all_handed(FED * 4)
        feeder.finish()
        for teller in tellers[2:]:
            assert teller.leave() in (0, 143)
        history.record("queue_done", "test", group="sharing", topic="queued")
    finally:
        for teller in tellers:
            teller.kill()
        history.close()
    with history.file.open() as lines:
        report = judge(read(lines))
    assert not report.anomalies, f"{history.file}\n{report.text()}"
    client_report.note_tool("VerifiableShareConsumer", f"{FED * 4} records, four members, one killed, broker killed")
