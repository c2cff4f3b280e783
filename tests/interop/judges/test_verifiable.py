"""Kafka's `VerifiableProducer` and `VerifiableConsumer`, the clients of its own system tests, are killed, and so is the broker."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.broker import Broker
from tests.interop.client_report import ClientReport
from tests.interop.judges import final_state
from tests.interop.judges.history_file import HistoryFile, HistoryProgram
from tests.interop.judges.scenario import Feeder
from tests.interop.judges.verifiable import ConsumerLines, ProducerLines, consumer_command, producer_command
from tests.support.judging.lines import read
from tests.support.judging.report import judge
from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]
PARTITIONS = 4
FIRST, SECOND = 4000, 2000
FED = 3000


def peer_warnings(tellers: Iterable[HistoryProgram]) -> str:
    """Of all, and what they ended with."""
    return "\n".join(f"{teller.name}, {teller.code}: {teller.errors}" for teller in tellers)


def made(broker: Broker, topic: str) -> None:
    """A topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for done in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        done.result(patient(20))


def test_what_verifiable_producers_were_acknowledged_is_there(
    judged_broker: Broker, tmp_path: Path, client_report: ClientReport
) -> None:
    """One writes through a kill of the broker, another is killed; each record once, where it was said to be. They
    do not try again: what was under way when the broker was killed may be missing."""
    history = HistoryFile(tmp_path / "history.jsonl")
    made(judged_broker, "verified")
    bootstrap = judged_broker.bootstrap_servers
    first, second = ProducerLines("first"), ProducerLines("second")
    tellers = [
        HistoryProgram("first", producer_command(bootstrap, "verified", FIRST, 1), history, translate=first),
        HistoryProgram("second", producer_command(bootstrap, "verified", 1_000_000, 2), history, translate=second),
    ]

    def said() -> str:
        return peer_warnings(tellers)

    try:
        history.until(lambda: first.count > FIRST // 4, said)
        judged_broker.kill()
        judged_broker.start()
        history.until(lambda: second.count > SECOND, said)
        tellers[1].kill()
        history.until(lambda: tellers[0].code == 0, said)
        count = final_state.read_all(bootstrap, "verified", PARTITIONS, history)
    finally:
        for teller in tellers:
            teller.kill()
        history.close()
    assert count >= first.count + second.count > FIRST // 4 + SECOND
    with history.file.open() as lines:
        report = judge(read(lines))
    assert not report.anomalies, f"{history.file}\n{report.text()}"
    client_report.note_tool("VerifiableProducer", f"{count} records, one of two killed, broker killed")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_consumers_read_all(
    protocol: str, judged_broker: Broker, tmp_path: Path, client_report: ClientReport
) -> None:
    """Three; one is killed, the broker is killed, one leaves, one comes: nothing passed over, and what is committed is what was committed last."""
    history = HistoryFile(tmp_path / "history.jsonl")
    made(judged_broker, "consumed")
    bootstrap = judged_broker.bootstrap_servers
    feeder = Feeder(bootstrap, "consumed", PARTITIONS, history)
    values: set[str] = set()
    tellers: list[HistoryProgram] = []

    def start(number: int) -> None:
        lines = ConsumerLines(f"member-{number}", "verified", values)
        command = consumer_command(bootstrap, "consumed", "verified", protocol)
        tellers.append(HistoryProgram(f"member-{number}", command, history, translate=lines))

    def all_read(count: int) -> None:
        history.until(lambda: len(values) >= count, lambda: peer_warnings(tellers))

    try:
        for number in range(3):
            start(number)
        feeder.feed(FED)
        all_read(FED // 2)
        tellers[0].kill()
        feeder.feed(FED)
        all_read(FED * 2)
        feeder.feed(FED)
        judged_broker.kill()
        judged_broker.start()
        all_read(FED * 3)
        start(3)
        feeder.feed(FED)
        assert tellers[1].leave() in (0, 143)
        all_read(FED * 4)
        feeder.finish()
        for teller in tellers[2:]:
            assert teller.leave() in (0, 143)
        final_state.read_input(bootstrap, "consumed", PARTITIONS, history)
    finally:
        for teller in tellers:
            teller.kill()
        history.close()
    with history.file.open() as lines:
        report = judge(read(lines))
    assert not report.anomalies, f"{history.file}\n{report.text()}"
    client_report.note_tool(
        f"VerifiableConsumer, {protocol}", f"{FED * 4} records, four members, one killed, broker killed"
    )
