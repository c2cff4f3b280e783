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
        needs_request: whether what came with the request is still to be worked on, and takes memory.
    """

    __slots__ = ("_when_done", "_when_free", "done", "needs_request", "problem", "response")

    def __init__(self) -> None:
        self._when_done: Callable[[], None] | None = None
        self._when_free: Callable[[], None] | None = None
        self.done = False
        self.needs_request = False
        self.response: Any = None
        self.problem: Exception | None = None

    def when_done(self, call: Callable[[], None]) -> None:
        """Call `call` when it is complete, which is now where it is already."""
        if self.done:
            call()
        else:
            self._when_done = call

    def when_free(self, call: Callable[[], None]) -> None:
        """Call `call` when what came with the request is not needed any more."""
        assert self.needs_request
        self._when_free = call

    def let_go(self) -> None:
        """What came with the request is not needed any more."""
        self.needs_request = False
        if self._when_free is not None:
            self._when_free()
            self._when_free = None

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
