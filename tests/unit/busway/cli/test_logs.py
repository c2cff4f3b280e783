"""Logs of long-running commands: a JSON object on each line, and levels."""

import json
import logging
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from busway.cli import build
from busway.cli.logs import JsonFormatter, log_to_stderr


def formatted(record: logging.LogRecord, worker: str | None = None) -> dict[str, object]:
    """The fields of a line."""
    line = JsonFormatter(worker).format(record)
    assert "\n" not in line
    fields = json.loads(line)
    assert isinstance(fields, dict)
    return fields


def test_a_record_is_an_object_on_one_line() -> None:
    """With the time in UTC, and what was given as extra; values that JSON lacks are text."""
    record = logging.LogRecord("busway.app", logging.WARNING, "f.py", 1, "%s waits\nat %d", ("t-0", 7), None)
    record.created = 1_767_225_600.5
    record.order, record.path = "o1", Path("x")
    assert formatted(record, "3") == {
        "time": "2026-01-01T00:00:00.500+00:00",
        "level": "warning",
        "logger": "busway.app",
        "message": "t-0 waits\nat 7",
        "worker": 3,
        "order": "o1",
        "path": "x",
    }


def test_an_exception_is_a_field() -> None:
    """With its traceback."""
    try:
        raise ValueError("no such zone")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f.py", 1, "failed", (), sys.exc_info())
    fields = formatted(record)
    assert str(fields["exception"]).startswith("Traceback (most recent call last):\n")
    assert str(fields["exception"]).endswith("ValueError: no such zone")


def test_what_was_given_as_extra_replaces_no_field() -> None:
    """A field called level, such as that of water, is left out."""
    record = logging.LogRecord("a", logging.INFO, "f.py", 1, "m", (), None)
    record.level = "high"
    assert formatted(record)["level"] == "info"


@pytest.mark.parametrize(
    ("level", "style", "text"),
    [
        ("loud", "text", "--log-level loud: give debug, info, warning or error"),
        ("info", "xml", "--log-format xml: give text or json"),
    ],
)
def test_other_values_are_refused(level: str, style: str, text: str) -> None:
    """By the option, with the values that there are."""
    with pytest.raises(ValueError, match=text):
        log_to_stderr(level, style)


@pytest.mark.parametrize("command", [("up",), ("broker",), ("registry",), ("connect",), ("run",), ("outbox", "relay")])
def test_every_long_running_command_has_both_options(command: tuple[str, ...]) -> None:
    """Under the same names."""
    shown = CliRunner().invoke(build(command[0]), [*command, "--help"], env={"COLUMNS": "200"})
    assert "--log-level" in shown.output
    assert "--log-format" in shown.output
