"""What is wrong with a history, counted.

Here: which anomaly counts as what, and the text.
Not here: the checks.
"""

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Final

from tests.simulation.checks import Anomaly, check
from tests.simulation.history import History, Poll, Send
from tests.simulation.transaction_history import CommittedPoll, CommittedRead, Transaction
from tests.support.judging.checks import CHECKS
from tests.support.judging.queues import QUEUE_CHECKS

COUNTED: Final[dict[str, tuple[str, ...]]] = {
    "lost": (
        "lost write",
        "lost commit",
        "read and lost",
        "committed read and lost",
        "hidden record",
        "not copied",
        "not passed on",
        "undelivered",
        "left in the queue",
        "passed over",
        "poll skip",
        "committed poll skip",
        "skipped after loss",
        "lost offset",
        "committed offset",
        "records removed",
        "end offset regress",
        "stable offset regress",
        "hanging transaction",
        "disagreeing readers",
        "disagreeing committed reads",
    ),
    "duplicated": (
        "duplicate",
        "repeated record",
        "copied twice",
        "passed on twice",
        "passed on without its offset",
        "inconsistent offsets",
        "from nowhere",
        "handed out again",
        "acknowledged twice",
        "handed out wrong",
        "misrouted or damaged",
    ),
    "aborted-visible": ("aborted read", "read before commit", "uncommitted offset", "circular information"),
    "torn": ("torn transaction",),
    "reordered": (
        "disordered transaction",
        "copied out of order",
        "non-monotonic send",
        "non-monotonic poll",
        "non-monotonic committed poll",
        "offset regress",
        "lost track",
    ),
    "double-owned": (
        "double ownership",
        "poll after revoke",
        "zombie commit",
        "zombie offsets",
        "fenced commit",
    ),
}
"""Verdict → the anomalies that count as it."""
_VERDICT: Final = {anomaly: verdict for verdict, names in COUNTED.items() for anomaly in names}
STORIES_MAX: Final = 20
MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The verdict on a history."""

    operations: int
    records: int
    committed: int
    aborted: int
    unknown: int
    silence_s: float
    anomalies: tuple[Anomaly, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many of each verdict; what has none of its own is under its own name."""
        counts = Counter(_VERDICT.get(anomaly.name, anomaly.name) for anomaly in self.anomalies)
        return {**dict.fromkeys(COUNTED, 0), **counts}

    @property
    def line(self) -> str:
        """All counts on one line."""
        return ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())

    def text(self) -> str:
        """Counts, what was judged, and the first stories."""
        judged = f"{self.operations:,} operations, {self.records:,} records read at the end"
        ended = f"transactions: {self.committed:,} committed, {self.aborted:,} aborted, {self.unknown:,} unknown"
        stories = [f"  {anomaly}" for anomaly in self.anomalies[:STORIES_MAX]]
        more = [f"  … {len(self.anomalies) - STORIES_MAX} more"] if len(self.anomalies) > STORIES_MAX else []
        silence = f"longest time without a commit: {self.silence_s:.1f} s"
        return "\n".join([judged, ended, silence, self.line, *stories, *more])


def judge(history: History) -> Report:
    """Everything that is wrong with a history of plain topics."""
    anomalies = check(history, {})
    for find_anomalies in (*CHECKS, *QUEUE_CHECKS):
        anomalies += find_anomalies(history, {})
    transactions = list(history.of(Transaction))
    ended = sorted(each.returned_ms or 0.0 for each in transactions if each.ok)
    gaps = [later - earlier for earlier, later in itertools.pairwise(ended)]
    return Report(
        operations=sum(
            1 for operation in history.operations if isinstance(operation, Send | Poll | CommittedPoll | Transaction)
        ),
        records=sum(len(read.records) for read in history.of(CommittedRead)),
        committed=len(ended),
        aborted=sum(1 for each in transactions if not each.ok and not each.may_count),
        unknown=sum(1 for each in transactions if not each.ok and each.may_count),
        silence_s=max(gaps, default=0.0) / MILLISECONDS,
        anomalies=tuple(anomalies),
    )
