"""A case study's service whose process is stopped in the middle of its work: `busway run kit.tests.freezing:app`.

Here: when that is.
Not here: who lets it go on (`test_frozen`). The environment says which service (`FREEZING_CASE`), and, where it is to
be stopped, at which offset of which topic (`FREEZING_AT`, `topic@offset`) and at which step (`FREEZING_STEP`).
`FREEZING_GUARANTEE=at_least_once` shows what exactly once is for.
"""

import dataclasses
import importlib
import os
import signal
from typing import Any, Final

from busway import App, Extension
from busway.app.model.topic import Route

SESSION: Final = {"session_timeout_ms": 1_500, "heartbeat_interval_ms": 100}


class Freezing(Extension):
    """Stops this process once, as `kill -STOP` does.

    Args:
        topic, offset: which record, or a later one, has to be handled.
        step: `returned`, when the handler is done and nothing of its work has left it; or one of `crash_points()`.
    """

    def __init__(self, topic: str, offset: int, step: str) -> None:
        self._topic, self._offset, self._step = topic, offset, step
        self._due = self._done = False

    def around(self, route: Route, call: Any) -> Any:
        """Inside of all others."""

        async def called(given: Any) -> Any:
            result = await call(given)
            last = given[-1] if isinstance(given, list) else given
            self._due |= last.topic == self._topic and last.offset >= self._offset
            self._stop("returned")
            return result

        return called

    async def reached(self, point: str, topic: str, partition: int, offset: int) -> None:
        """A step of the work."""
        self._stop(point)

    def _stop(self, step: str) -> None:
        if self._due and not self._done and step == self._step:
            self._done = True
            print("frozen", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)


app: App = importlib.import_module(f"{os.environ['FREEZING_CASE']}.service").app
app.consumer_options = {**app.consumer_options, **SESSION}
if guarantee := os.environ.get("FREEZING_GUARANTEE"):
    changed: Any = {"guarantee": guarantee}
    app.routes[:] = [dataclasses.replace(route, **changed) for route in app.routes]
if place := os.environ.get("FREEZING_AT"):
    name, _, number = place.partition("@")
    app.extend(Freezing(name, int(number), os.environ["FREEZING_STEP"]))
