"""Clients of others read, write and commit in transactions, while they and the broker are killed: every record is passed on once."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.interop.broker import Broker
from tests.interop.judges.course import Course
from tests.interop.judges.loops import AIOKAFKA, FRANZ_GO, JAVA_COPIER, LIBRDKAFKA, Loop
from tests.interop.judges.telling import Telling
from tests.interop.ledger import Ledger
from tests.support.judging.lines import read
from tests.support.judging.report import judge

pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(600)]
RECORDS = int(os.environ.get("BUSWAY_JUDGED_RECORDS", "0"))
"""How many records franz-go passes on; by hand, 500,000."""


def coming_and_going(course: Course) -> Sequence[tuple[Callable[[int], None], int]]:
    """Members are killed and replaced, one for good, one leaves, one more comes; the broker is killed twice."""
    grouped = course.loop.in_group
    return [
        (course.replace, 0),
        (course.kill_broker, 0),
        (course.start, 3) if grouped else (course.replace, 1),
        (course.leave, 1) if grouped else (course.replace, 2),
        (course.kill, 2) if grouped else (course.replace, 0),
        (course.start, 1) if grouped else (course.replace, 1),
        (course.kill_broker, 0),
        (course.replace, 0),
    ]


@pytest.mark.parametrize(
    ("loop", "protocol", "records"),
    [
        pytest.param(loop, protocol, records, id=f"{loop.name}-{protocol}", marks=marks)
        for loop, counts, marks in (
            (FRANZ_GO, (RECORDS or 100_000, RECORDS or 40_000), []),
            (LIBRDKAFKA, (20_000, 12_000), []),
            (AIOKAFKA, (12_000,), []),
            (JAVA_COPIER, (12_000,), [pytest.mark.java]),
        )
        for protocol, records in zip(loop.protocols, counts, strict=True)
    ],
)
def test_every_record_is_passed_on_once(
    loop: Loop, protocol: str, records: int, judged_broker: Broker, tmp_path: Path, ledger: Ledger
) -> None:
    """Nothing lost, duplicated, aborted and visible, torn, reordered or owned twice."""
    history = Telling(tmp_path / "history.jsonl")
    course = Course("judged", judged_broker, loop, history, records, protocol)
    try:
        course.run(coming_and_going(course))
    finally:
        history.close()
    with history.file.open() as lines:
        report = judge(read(lines))
    assert not report.anomalies, f"{history.file}\n{report.text()}"
    summary = f"{records} records, {course.begun} members, {report.committed} committed, {report.aborted} aborted"
    ledger.note_tool(f"{loop.name}, exactly once, {protocol}", summary)
