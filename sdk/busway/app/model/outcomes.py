"""Outcomes of an app's transactions.

Here: `Outcomes`.
Not here: making transactions (`handling.transactor`).
"""

from dataclasses import dataclass

from busway.errors import BuswayError
from busway.net.clock import REAL_TIME


@dataclass(slots=True)
class Outcomes:
    """Outcomes of transactions since the app started.

    Attributes:
        renewed: replacements of a producer that failed for good.
        problem: the last failure, if no transaction has committed since.
        failing_s: monotonic seconds of the first failure since the last commit.
    """

    committed: int = 0
    aborted: int = 0
    renewed: int = 0
    problem: BuswayError | None = None
    failing_s: float = 0.0

    def failed(self, problem: BuswayError) -> None:
        if self.problem is None:
            self.failing_s = REAL_TIME.monotonic_s()
        self.problem = problem
