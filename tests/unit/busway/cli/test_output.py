"""What commands print: tables on a terminal, and what a program reads in a pipe."""

import json
import math
import re
import sys

import pytest

from busway.cli.output import note, show_rows, write_json

TOPIC = "shop.orders.with-a-name-that-is-long.and-a-group-of-its-own.dlt"
ROWS = [
    {
        "topic": TOPIC,
        "handler": "shop.service.a_handler_with_a_long_name",
        "error": "ValueError",
        "open": 12,
        "host": None,
    },
    {"topic": "t", "handler": None, "error": None, "open": None, "host": None},
]


def test_a_name_is_folded_and_never_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it can be read, in the lines of its column; a column that is empty in all rows is left out."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    show_rows(ROWS, as_json=False, title="dead letters")
    out = capsys.readouterr().out
    assert "…" not in out
    cells = [re.split("[│|]", line) for line in out.splitlines() if line.startswith(("│", "|"))]
    assert "".join(line[1].strip() for line in cells) == TOPIC + "t"
    assert "".join(line[4].strip() for line in cells) == "12-"
    assert "host" not in out
    assert {len(line) for line in out.splitlines() if line.startswith("│")} == {80}


def test_a_pipe_gets_a_header_and_the_table_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Where there are no rows, too; what else is said goes to standard error."""
    show_rows(ROWS, as_json=False, title="dead letters")
    note("and more")
    show_rows([], as_json=False, title="topics", columns=("topic", "partitions"))
    out, err = capsys.readouterr()
    assert [line.split("\t") for line in out.splitlines()] == [
        list(ROWS[0]),
        [TOPIC, "shop.service.a_handler_with_a_long_name", "ValueError", "12", "-"],
        ["t", "-", "-", "-", "-"],
        ["topic", "partitions"],
    ]
    assert err == "and more\nno topics\n"


def test_json_has_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Empty columns, too."""
    show_rows(ROWS, as_json=True, title="dead letters")
    assert json.loads(capsys.readouterr().out) == ROWS


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def test_json_is_what_any_parser_reads(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither NaN nor Python's way to write bytes, however deep."""
    write_json({"value": {"mean": math.nan, "most": [math.inf, -math.inf], "raw": b"\x00\xff", b"k": (1, None)}})
    answer = json.loads(capsys.readouterr().out, parse_constant=_refuse)
    assert answer["value"] == {
        "mean": "NaN",
        "most": ["Infinity", "-Infinity"],
        "raw": "base64:AP8=",
        "base64:aw==": [1, None],
    }
