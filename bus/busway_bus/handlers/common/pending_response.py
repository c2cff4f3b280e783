"""A response that is completed later.

Here: a handler's `PendingResponse`.
Not here: the order of responses (`server.connection`), handlers with several waits (coroutines).
"""

from collections.abc import Callable
from typing import Any


class PendingResponse:
    """A response without a task, completed once.

    Attributes:
        response: None if none is due.
        needs_request: the request's bytes are still in use, and take memory.
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
        """Call on completion, at once if complete."""
        if self.done:
            call()
        else:
            self._when_done = call

    def when_free(self, call: Callable[[], None]) -> None:
        assert self.needs_request
        self._when_free = call

    def release_request(self) -> None:
        self.needs_request = False
        if self._when_free is not None:
            self._when_free()
            self._when_free = None

    def complete(self, response: Any) -> None:
        self.response = response
        self._end()

    def fail(self, problem: Exception) -> None:
        self.problem = problem
        self._end()

    def _end(self) -> None:
        assert not self.done, "an answer is completed once"
        self.done = True
        if self._when_done is not None:
            self._when_done()
