"""Kafka Streams' own smoke test with `exactly_once_v2`: its application is killed, and so is the broker, or two of three nodes, one after the other; what it has counted, it has counted once."""

import queue
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tools.jars import need, streams_libs

from tests.interop.broker import Broker
from tests.interop.client_report import ClientReport
from tests.interop.judges.history_file import HistoryFile, HistoryProgram
from tests.interop.judges.loops import ONE_BROKER, THREE_NODES
from tests.support.apache_kafka import JDK
from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]
SOURCE = Path(__file__).parent / "java" / "SmokeRun.java"
TOPICS = (
    *("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw", "sws-suppressed", "cnt"),
    *("avg", "tagg", "fk"),
)
PARTITIONS = 2
KEYS, EACH, SECONDS = 6, 300, 8
PATIENCE_SECONDS = patient(150.0)
STARTED = "SMOKE-TEST-CLIENT-STARTED"
TROUBLE = ("SMOKE-TEST-CLIENT-EXCEPTION", "PROCESSED-LESS-THAN-GENERATED", "FAILED", "FAILURE")


def java(*arguments: str) -> list[str]:
    """A JVM with Kafka Streams and its tests."""
    tuned = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    quiet = ("-Dorg.apache.logging.log4j.level=ERROR",)
    return [need("java", JDK), *tuned, *quiet, "-cp", f"{streams_libs()}/*", *arguments]


class Smoke:
    """The driver and its applications; what they print, in order."""

    def __init__(self, bootstrap: str, folder: Path, history: HistoryFile) -> None:
        self._bootstrap, self._folder, self._history = bootstrap, folder, history
        self._printed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.all: list[str] = []
        self.running: list[HistoryProgram] = []

    def _start(self, name: str, command: Sequence[str]) -> HistoryProgram:
        def printed(text: str) -> None:
            self._printed.put(text)

        self.running.append(HistoryProgram(name, command, self._history, translate=printed))
        return self.running[-1]

    def drive(self) -> HistoryProgram:
        """Write the input, then verify."""
        return self._start("driver", java(str(SOURCE), self._bootstrap, str(KEYS), str(EACH), str(SECONDS)))

    def process(self, number: int) -> HistoryProgram:
        """One more application."""
        settings = {
            "bootstrap.servers": self._bootstrap,
            "processing.guarantee": "exactly_once_v2",
            "replication.factor": "-1",
            "num.stream.threads": "1",
            "session.timeout.ms": "3000",
            "heartbeat.interval.ms": "500",
            "producer.transaction.timeout.ms": "6000",
            "state.dir": str(self._folder / f"state-{number}"),
        }
        file = self._folder / f"application-{number}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return self._start(
            f"application {number}", java("org.apache.kafka.streams.tests.StreamsSmokeTest", str(file), "process")
        )

    def wait(self, words: str) -> None:
        """Until a program prints them.

        Raises:
            AssertionError: none does, or one prints that something is wrong.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            left = deadline - time.monotonic()
            assert left > 0, f"nobody printed {words!r}:\n{self.said()}"
            try:
                text = self._printed.get(timeout=min(left, 1))
            except queue.Empty:
                continue
            self.all.append(text)
            assert not any(each in text for each in TROUBLE), self.said()
            if words in text:
                return

    def said(self) -> str:
        """The last of what was printed, and all complaints."""
        return "".join(self.all[-60:]) + "\n".join(f"{client.name}: {client.errors}" for client in self.running)

    def close(self) -> None:
        """No program runs any more."""
        for client in self.running:
            client.kill()


@pytest.mark.parametrize("judged_broker", [ONE_BROKER, THREE_NODES], indirect=True)
def test_the_smoke_test_of_kafka_streams(
    judged_broker: Broker, tmp_path: Path, client_report: ClientReport, request: pytest.FixtureRequest
) -> None:
    """Two applications; one is killed, another comes; the broker is killed; the other is killed. The driver finds each sum right."""
    admin = AdminClient({"bootstrap.servers": judged_broker.bootstrap_servers, "log_level": 0})
    for done in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in TOPICS]).values():
        done.result(patient(20))
    history = HistoryFile(tmp_path / "history.jsonl")
    smoke = Smoke(judged_broker.bootstrap_servers, tmp_path, history)
    try:
        first, second = smoke.process(1), smoke.process(2)
        smoke.wait(STARTED)
        smoke.drive()
        smoke.wait(" 300 records produced")
        first.kill()
        smoke.process(3)
        smoke.wait(" 900 records produced")
        judged_broker.kill()
        judged_broker.start()
        smoke.wait(" 1200 records produced")
        judged_broker.kill()
        judged_broker.start()
        smoke.wait(" 1400 records produced")
        second.kill()
        smoke.process(4)
        smoke.wait("ALL-RECORDS-DELIVERED")
        smoke.wait("SUCCESS")
    finally:
        smoke.close()
        history.close()
    assert not any("PROCESSED-MORE-THAN-GENERATED" in text for text in smoke.all)
    client_report.note_tool(
        f"Kafka Streams' smoke test, exactly_once_v2, {request.node.callspec.params['judged_broker']}",
        f"{KEYS * EACH} records, 4 applications, two kills of brokers",
    )
