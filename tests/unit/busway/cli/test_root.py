"""The command itself: its version, and help."""

import sys

import pytest

import busway
from busway.cli import main


def called(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `busway` in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["busway", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("arguments", [("--version",), ("version",), ("--version", "topics")])
def test_the_version(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Print it and end with 0, whatever comes behind."""
    assert called(*arguments, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out == f"{busway.__version__}\n"


def test_no_command_prints_the_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`busway` alone lists the commands and ends with 2, as wrong usage does."""
    assert called(monkeypatch=monkeypatch) == 2
    assert "consume" in capsys.readouterr().out


def test_the_help_of_spark_lists_the_jobs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its first line, and what lists its options; PySpark need not be installed."""
    assert called("spark", "--help", monkeypatch=monkeypatch) == 0
    told = capsys.readouterr().out
    assert "  offload  Any topic into an analytics store" in told
    assert "`busway spark offload --help`" in told
