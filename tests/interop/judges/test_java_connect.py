"""Java Kafka Connect with an exactly-once source (KIP-618): its worker is killed, and so is the broker; each line is written once."""

import json
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.broker import Broker
from tests.interop.client_report import ClientReport
from tests.interop.judges import final_state
from tests.interop.judges.history_file import HistoryFile
from tests.interop.judges.scenario import Watcher
from tests.simulation.history import Partition, value_of
from tests.support.judging.lines import read
from tests.support.judging.report import judge
from tests.support.kafka_connect import KafkaConnect
from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]
TOPIC = "connected"
LINES = 4000
WORKER = {
    "exactly.once.source.support": "enabled",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "producer.transaction.timeout.ms": "25000",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


def put(worker: KafkaConnect, name: str, config: dict[str, str]) -> None:
    """Configure a connector."""
    request = urllib.request.Request(
        f"{worker.url}/connectors/{name}/config",
        data=json.dumps(config).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=patient(60)) as answer:
        assert answer.status in (200, 201)


class File:
    """What the connector reads: one more line each time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []

    def grow(self, count: int) -> None:
        """So many lines more."""
        more = [value_of("file", len(self.lines) + n, Partition(TOPIC, 0)).decode() for n in range(count)]
        self.lines += more
        with self.path.open("a") as out:
            out.write("".join(f"{value}\n" for value in more))


def test_each_line_of_a_file_is_written_once(
    judged_broker: Broker, tmp_path: Path, client_report: ClientReport
) -> None:
    """Its offsets are in the transactions that its records are in."""
    bootstrap = judged_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(patient(20))
    history = HistoryFile(tmp_path / "history.jsonl")
    file = File(tmp_path / "lines")
    file.grow(LINES)
    watcher = Watcher(bootstrap, TOPIC, 1, history)
    settings = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file.path),
        "topic": TOPIC,
        "batch.size": "50",
        "exactly.once.support": "required",
    }
    try:
        with KafkaConnect(bootstrap, WORKER) as worker:
            put(worker, "lines", settings)
            watcher.wait(LINES // 2)
            worker.kill()
            worker.start()
            file.grow(LINES)
            watcher.wait(LINES + LINES // 2)
            judged_broker.kill()
            judged_broker.start()
            file.grow(LINES)
            watcher.wait(LINES * 3)
        final_state.read_all(bootstrap, TOPIC, 1, history)
        history.record("copy", "test", source="file", target=TOPIC)
        for reading in final_state.READERS:
            records = [["file-0", at, value] for at, value in enumerate(file.lines)]
            history.record("committed_read", f"final {reading}", reading=reading, partition="file-0", records=records)
    finally:
        watcher.close()
        history.close()
    with history.file.open() as lines:
        report = judge(read(lines))
    assert not report.anomalies, f"{history.file}\n{report.text()}"
    client_report.note_tool("Kafka Connect, exactly-once source", f"{len(file.lines)} lines, worker and broker killed")
