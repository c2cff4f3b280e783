"""Where the coordinator of a group or of a transactional id is, and asking it.

What lives here: looking the coordinator up, and again after it has moved or was away. What does not: what is asked (`busway.consumer`,
`busway.producer`). A broker that cannot be reached is no news about what it coordinates: whoever asks looks it up and asks again.
"""

import contextlib
import logging
from typing import Any, Final

from busway.cluster.client import ClusterClient, CoordinatorKind
from busway.cluster.retry import Backoff
from busway.errors import BuswayError, ConnectionFailed, RequestTimedOut
from busway.net.connection import Connection
from busway_protocol.errors import ErrorCode

MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
PASSING: Final = MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""What says nothing about the group or the transaction, only about the broker that was asked."""


class CoordinatorLink:
    """The broker that coordinates one group or one transactional id.

    Args:
        cluster: its connections; they belong to one event loop, and so does this.
        key: the group, or the transactional id.
        log, level: where it is told, and how loudly, that the coordinator is another one than before.
    """

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
        """A fresh row of waits."""
        return self._cluster.backoff()

    def forget(self) -> None:
        """It is somewhere else: look it up before the next question."""
        self._node = None

    async def connection(self, purpose: str) -> Connection:
        """A connection to it; what waits long has one of its own, by `purpose`.

        Raises:
            BrokerError: the group or the transactional id is refused.
            ConnectionFailed, RequestTimedOut: it cannot be reached; the next call looks it up.
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
        self, message: Any, *, purpose: str, timeout_s: float | None = None, at_most: int | None = None
    ) -> Any:
        """Its answer.

        Raises:
            BrokerError, ConnectionFailed, RequestTimedOut: as `connection`.
        """
        connection = await self.connection(purpose)
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
