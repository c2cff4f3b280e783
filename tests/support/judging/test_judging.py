"""Histories made by hand, at least three for each row of the list of anomalies: what is wrong is found, and named, and what is right is left alone."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.judging import __main__ as program
from tests.support.judging.lines import BadLine, line, read, whole_lines
from tests.support.judging.report import COUNTED, judge

FILE = Path(__file__).with_name("cases.jsonl")
ROWS = (1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 26, 28, 29)
"""Those that clients' histories can show. Rows 8, 10 and 13 are allowed by Kafka's model; 23 to 25 and 27 are about disks, Raft and the registry; 28 and 29 are about
share groups."""


def cases() -> Iterator[tuple[int, str, str, list[str]]]:
    """Row, anomaly, story and lines of each."""
    title, lines = "", []
    for text in [*FILE.read_text().splitlines(keepends=True)[1:], "# 0: end: \n"]:
        if not text.startswith("#"):
            lines.append(text)
            continue
        if title:
            row, anomaly, story = title.strip("# \n").split(": ", 2)
            yield int(row), anomaly, story, lines
        title, lines = text, []


CASES = list(cases())


@pytest.mark.parametrize(
    ("anomaly", "lines"), [pytest.param(case[1], case[3], id=f"{case[0]} {case[1]}: {case[2]}") for case in CASES]
)
def test_a_history_made_by_hand(anomaly: str, lines: list[str]) -> None:
    """It has the one anomaly, or none."""
    anomaly_names = {each.name for each in judge(read(lines)).anomalies}
    assert anomaly in anomaly_names if anomaly != "right" else not anomaly_names, anomaly_names


def test_each_row_has_three() -> None:
    """One of them is right."""
    counts = Counter(row for row, *_ in CASES)
    assert {row for row in ROWS if counts[row] < 3} == set()
    assert {row for row, anomaly, *_ in CASES if anomaly == "right"} == set(ROWS)


def test_every_anomaly_that_is_shown_counts_as_one_verdict() -> None:
    """And none as two."""
    names = [name for names in COUNTED.values() for name in names]
    assert len(names) == len(set(names))
    assert {anomaly for _, anomaly, *_ in CASES} - {"right"} <= set(names)


def test_the_program_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 for a right history, 1 for a wrong one, 2 for none; the verdict on a line of its own."""
    right, wrong, none = tmp_path / "right", tmp_path / "wrong", tmp_path / "none"
    right.write_text(line("stable_offset", "c", partition="a-0", stable=2, high=2, last=True) + '{"f":"send","proc')
    wrong.write_text(line("stable_offset", "c", partition="a-0", stable=1, high=2, last=True))
    none.write_text('{"f":"sned","process":"p"}\n')
    assert program.main([str(right)]) == 0
    assert "0 lost, 0 duplicated, 0 aborted-visible, 0 torn, 0 reordered, 0 double-owned" in capsys.readouterr().out
    assert program.main([str(wrong)]) == 1
    assert "1 lost" in capsys.readouterr().out
    assert program.main([str(none)]) == 2
    assert "line 1: ValueError: there is no operation 'sned'" in capsys.readouterr().err
    assert program.main([]) == 2
    assert program.main([str(tmp_path / "missing")]) == 2


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"f":"send"}',
        '{"f":"send","process":"p"}',
        '{"f":"send","process":"p","partition":"nothing","value":"x"}',
        '{"f":"send","process":"p","partition":"a-0","value":"x","colour":"red"}',
        '{"process":"p","id":1,"event":"ok"}',
        '{"f":"send","process":"p","partition":"a-0","value":"x","at":"noon"}',
        '{"f":"send","process":"p","partition":"a-0","value":"x","outcome":"well"}',
    ],
)
def test_a_line_that_is_none(text: str) -> None:
    """It is named by its number."""
    with pytest.raises(BadLine, match="line 2"):
        read(["\n", text + "\n"])


def test_half_a_line_of_a_killed_program_is_left_out() -> None:
    """It was never reported."""
    assert list(whole_lines("one\ntwo\nthr")) == ["one\n", "two\n"]
