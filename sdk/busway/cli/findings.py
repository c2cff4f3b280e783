"""Findings of `busway doctor` and `busway check`.

Here: their levels, their lines, the exit code; comparing clocks.
Not here: the checks (`cluster_checks`, `registry_checks`, `data_checks`, `check`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

import typer

from busway.cli.output import harmless, write_json

Level = Literal["ok", "warning", "problem"]
CLOCK_SKEW_MAX_S: Final = 5.0
"""Difference of clocks that is a problem; machines with NTP differ by milliseconds."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check: what was looked at, and the cause with its remedy."""

    level: Level
    subject: str
    text: str


def ok(subject: str, text: str) -> Finding:
    return Finding("ok", subject, text)


def warning(subject: str, text: str) -> Finding:
    return Finding("warning", subject, text)


def problem(subject: str, text: str) -> Finding:
    return Finding("problem", subject, text)


def report(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print a line for each finding; exit with 1 if one is a problem."""
    if as_json:
        write_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            typer.echo(harmless(f"{finding.level:8} {finding.subject}: {finding.text}").replace("\n", " "))
    if any(finding.level == "problem" for finding in findings):
        raise typer.Exit(1)


def compare_clocks(subject: str, theirs_ms: float, before_ms: float, after_ms: float) -> Finding:
    """Compare a server's clock with this machine's.

    Args:
        theirs_ms: its time, of a response.
        before_ms, after_ms: this machine's time before the request and after the response.
    """
    if before_ms <= theirs_ms <= after_ms:
        skew_s = 0.0
    else:
        skew_s = (theirs_ms - (after_ms if theirs_ms > after_ms else before_ms)) / 1000
    if abs(skew_s) <= CLOCK_SKEW_MAX_S:
        return ok(subject, "its clock agrees with this machine's")
    return problem(
        subject,
        f"its clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's; synchronise both "
        "(chrony, systemd-timesyncd), as timestamps, retention, certificates and tokens depend on them",
    )
