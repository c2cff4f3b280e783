"""Calling the extensions of an app.

Here: which extension overrides which method, so that the others cost nothing.
Not here: the interface (`extension`), when it is called (`application`, `handling`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from busway.app.extending.extension import Call, Extension, Handling
from busway.app.model.topic import Route
from busway.app.service import RunningService
from busway.errors import BuswayError
from busway.types import Headers, TopicPartition

logger: logging.Logger = logging.getLogger("busway.app")


class ExtensionFailed(BuswayError):
    """An extension raised; the app stops, because the extension's state may be wrong."""


class Hooks:
    """The extensions of a running app, in the order of `extend`.

    Exceptions become `ExtensionFailed`, except a `BuswayError`. Ended calls are timed only if `watched`, steps are
    awaited only if `stepped`, headers of sent records are passed on only if it `marks` them: if any extension overrides
    `finished`, `reached` or `sending`.
    """

    def __init__(self, extensions: Sequence[Extension] = ()) -> None:
        self._extensions = tuple(extensions)
        self._assigned = self._overriding("assigned")
        self._revoked = self._overriding("revoked")
        self._around = self._overriding("around")
        self._sending = self._overriding("sending")
        self._finished = self._overriding("finished")
        self._committed = self._overriding("committed")
        self._reached = self._overriding("reached")
        self.watched: bool = bool(self._finished)
        self.stepped: bool = bool(self._reached)
        self.marks: bool = bool(self._sending)

    def _overriding(self, name: str) -> list[tuple[Extension, Callable[..., Any]]]:
        return [
            (extension, getattr(extension, name))
            for extension in self._extensions
            if getattr(type(extension), name) is not getattr(Extension, name)
        ]

    async def start(self, app: RunningService, stack: AsyncExitStack) -> None:
        for extension in self._extensions:
            stack.push_async_callback(self._stop, extension, app)
            try:
                await extension.starting(app)
            except Exception as problem:
                raise _failed(extension, "starting", problem) from problem

    @staticmethod
    async def _stop(extension: Extension, app: RunningService) -> None:
        try:
            await extension.stopped(app)
        except Exception as problem:  # noqa: BLE001 - others' code; the rest must still be stopped
            logger.error("%s", _failed(extension, "stopped", problem))

    async def assigned(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets to start from; the lowest if extensions differ, so that nothing is missed."""
        offsets: dict[TopicPartition, int] = {}
        for extension, call in self._assigned:
            try:
                positions: Mapping[TopicPartition, int] = await call(partitions)
            except Exception as problem:
                raise _failed(extension, "assigned", problem) from problem
            for partition, offset in positions.items():
                if partition in partitions:
                    offsets[partition] = min(offset, offsets.get(partition, offset))
        return offsets

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Notify all of removed partitions, also after one raised."""
        problems = []
        for extension, call in self._revoked:
            try:
                await call(partitions)
            except Exception as problem:  # noqa: BLE001 - others' code; the next one must still be notified
                problems.append(_failed(extension, "revoked", problem))
        if problems:
            raise problems[0]

    def around(self, route: Route, call: Call) -> Call:
        for extension, wrap in reversed(self._around):
            try:
                call = wrap(route, call)
            except Exception as problem:
                raise _failed(extension, "around", problem) from problem
        return call

    def sending(self, topic: str, headers: Headers) -> Headers:
        for extension, call in self._sending:
            try:
                headers = call(topic, headers)
            except Exception as problem:
                raise _failed(extension, "sending", problem) from problem
        return headers

    def finished(self, handling: Handling) -> None:
        for extension, call in self._finished:
            try:
                call(handling)
            except Exception as problem:
                raise _failed(extension, "finished", problem) from problem

    async def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for extension, call in self._committed:
            try:
                await call(offsets)
            except Exception as problem:
                raise _failed(extension, "committed", problem) from problem

    async def reached(self, point: str, partition: TopicPartition, offset: int) -> None:
        for extension, call in self._reached:
            try:
                await call(point, *partition, offset)
            except Exception as problem:
                raise _failed(extension, f"reached({point!r})", problem) from problem

    async def reached_each(self, point: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self.stepped:
            for partition, offset in offsets.items():
                await self.reached(point, partition, offset)


def _failed(extension: Extension, what: str, problem: Exception) -> BuswayError:
    if isinstance(problem, BuswayError):
        return problem
    return ExtensionFailed(f"extension {type(extension).__name__}, {what}: {problem!r}")
