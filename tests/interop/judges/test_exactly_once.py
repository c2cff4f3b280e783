"""Clients of others read, write and commit in transactions, while they and the broker are killed: every record is passed on once."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.interop.broker import Broker
from tests.interop.client_report import ClientReport
from tests.interop.judges.history_file import HistoryFile
from tests.interop.judges.loops import AIOKAFKA, FRANZ_GO, JAVA_COPIER, LIBRDKAFKA, ONE_BROKER, THREE_NODES, Loop
from tests.interop.judges.scenario import Scenario
from tests.support.judging.lines import read
from tests.support.judging.report import judge

pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(600)]
RECORDS = int(os.environ.get("BUSWAY_JUDGED_RECORDS", "0"))
"""How many records franz-go passes on; by hand, 500,000."""


def coming_and_going(scenario: Scenario) -> Sequence[tuple[Callable[[int], None], int]]:
    """Members are killed and replaced, one for good, one leaves, one more comes; the broker is killed twice, or two of three nodes once each."""
    grouped = scenario.loop.in_group
    return [
        (scenario.replace, 0),
        (scenario.kill_broker, 0),
        (scenario.start, 3) if grouped else (scenario.replace, 1),
        (scenario.leave, 1) if grouped else (scenario.replace, 2),
        (scenario.kill, 2) if grouped else (scenario.replace, 0),
        (scenario.start, 1) if grouped else (scenario.replace, 1),
        (scenario.kill_broker, 0),
        (scenario.replace, 0),
    ]


@pytest.mark.parametrize(
    ("loop", "protocol", "records", "judged_broker"),
    [
        pytest.param(loop, protocol, records, nodes, id=f"{loop.name}-{protocol}-{nodes}", marks=marks)
        for loop, counts, nodes, marks in (
            (FRANZ_GO, (RECORDS or 100_000, RECORDS or 40_000), ONE_BROKER, []),
            (FRANZ_GO, (20_000, 12_000), THREE_NODES, []),
            (LIBRDKAFKA, (20_000, 12_000), ONE_BROKER, []),
            (AIOKAFKA, (12_000,), ONE_BROKER, []),
            (JAVA_COPIER, (12_000,), ONE_BROKER, [pytest.mark.java]),
        )
        for protocol, records in zip(loop.protocols, counts, strict=True)
    ],
    indirect=["judged_broker"],
)
def test_every_record_is_passed_on_once(
    loop: Loop,
    protocol: str,
    records: int,
    judged_broker: Broker,
    tmp_path: Path,
    client_report: ClientReport,
    request: pytest.FixtureRequest,
) -> None:
    """Nothing lost, duplicated, aborted and visible, torn, reordered or owned twice."""
    history = HistoryFile(tmp_path / "history.jsonl")
    scenario = Scenario("judged", judged_broker, loop, history, records, protocol)
    try:
        scenario.run(coming_and_going(scenario))
    finally:
        history.close()
    with history.file.open() as lines:
        report = judge(read(lines))
    assert not report.anomalies, f"{history.file}\n{report.text()}"
    summary = f"{records} records, {scenario.begun} members, {report.committed} committed, {report.aborted} aborted"
    nodes = request.node.callspec.params["judged_broker"]
    client_report.note_tool(f"{loop.name}, exactly once, {protocol}, {nodes}", summary)
