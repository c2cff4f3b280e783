"""An answer that is not there yet.

What lives here: `Pending`, which a handler returns instead of a response. What does not: the order of answers (`server.connection`), and
handlers that wait for several things in turn, which are coroutines.
"""

from collections.abc import Callable
from typing import Any


class Pending:
    """An answer for which no task runs: whoever has what it waits for completes it, once.

    Attributes:
        done: whether it is complete.
        response: the answer, None where none is owed.
        problem: what the request failed on, None where it did not.
    """

    __slots__ = ("_when_done", "done", "problem", "response")

    def __init__(self) -> None:
        self._when_done: Callable[[], None] | None = None
        self.done = False
        self.response: Any = None
        self.problem: Exception | None = None

    def when_done(self, call: Callable[[], None]) -> None:
        """Call `call` when it is complete, which is now where it is already."""
        if self.done:
            call()
        else:
            self._when_done = call

    def complete(self, response: Any) -> None:
        """This is the answer."""
        self.response = response
        self._end()

    def fail(self, problem: Exception) -> None:
        """There is no answer, but this."""
        self.problem = problem
        self._end()

    def _end(self) -> None:
        assert not self.done, "an answer is completed once"
        self.done = True
        if self._when_done is not None:
            self._when_done()
