"""Requests to the coordinator of a group or a transactional id.

Here: finding the coordinator, again after it moved or failed.
Not here: the requests. An unreachable broker says nothing about what it coordinates: callers retry.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

from busway.cluster.client import ClusterClient, CoordinatorKind
from busway.errors import BuswayError, ConnectionFailed, RequestTimedOut
from busway.net.connection import Connection
from busway.net.retry import Backoff, RetryTimer
from busway_protocol.errors import ErrorCode, error_for

MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
PASSING: Final = MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""Errors of the broker, not of the group or the transaction."""


async def ask_coordinator(cluster: ClusterClient, group_id: str, message: Any, *, at_most: int | None = None) -> Any:
    """Send a request to a group's coordinator, again while it moves or loads.

    The last response is returned when the request timeout is over, and one with another error at once.

    Args:
        at_most: the highest version of the request.
    """
    timer = RetryTimer(cluster.backoff(), cluster.timeout_s)
    while True:
        connection = await cluster.connection(await cluster.find_coordinator(group_id))
        response = await connection.request(message, at_most=at_most)
        if timer.is_expired or PASSING.isdisjoint(map(error_for, _error_codes(response))):
            return response
        await timer.sleep()


def _error_codes(response: Any) -> Iterator[int]:
    """Return the error codes of a response about groups, and of its groups, topics and partitions."""
    yield getattr(response, "error_code", 0)
    for entries in ("groups", "results", "topics", "responses"):
        for entry in getattr(response, entries, ()):
            yield getattr(entry, "error_code", 0)
            yield from (partition.error_code for partition in getattr(entry, "partitions", ()))


class CoordinatorLink:
    """Link to the coordinator of one group or transactional id, bound to one event loop."""

    def __init__(
        self, cluster: ClusterClient, key: str, kind: CoordinatorKind, log: logging.Logger, level: int = logging.INFO
    ) -> None:
        self._cluster = cluster
        self._key = key
        self._kind = kind
        self._log = log
        self._level = level
        self._node: int | None = None
        self._last: int | None = None

    def backoff(self) -> Backoff:
        return self._cluster.backoff()

    def forget(self) -> None:
        self._node = None

    async def connection(self, purpose: str) -> Connection:
        """Return a connection to the coordinator; `purpose` separates long waits.

        Raise `BrokerError` if the key is refused; `ConnectionFailed`, `RequestTimedOut` if it is unreachable: the next
        call finds it again.
        """
        if self._node is None:
            self._node = await self._cluster.find_coordinator(self._key, self._kind)
            if self._node != self._last:
                host, port = self._cluster.metadata.brokers.get(self._node, ("?", 0))
                self._log.log(
                    self._level,
                    "%s %s: coordinator is broker %d at %s:%d",
                    self._kind,
                    self._key,
                    self._node,
                    host,
                    port,
                )
                self._last = self._node
        node = self._node
        try:
            return await self._cluster.connection(node, purpose)
        except (ConnectionFailed, RequestTimedOut):
            await self._away(node)
            raise

    async def ask(
        self,
        message: Any,
        *,
        purpose: str,
        timeout_s: float | None = None,
        at_most: int | None = None,
        when_lost: Callable[[], None] | None = None,
    ) -> Any:
        """Return the response; `when_lost` is called when the connection ends, also after it."""
        connection = await self.connection(purpose)
        if when_lost is not None:
            connection.when_lost = when_lost
        node = self._node
        try:
            return await connection.request(message, timeout_s=timeout_s, at_most=at_most)
        except (ConnectionFailed, RequestTimedOut):
            await self._away(node)
            raise

    async def _away(self, node: int | None) -> None:
        if self._node == node:
            self._node = None
        with contextlib.suppress(BuswayError):
            await self._cluster.refresh()
