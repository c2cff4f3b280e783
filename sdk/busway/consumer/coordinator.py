"""Where a group's coordinator is, and asking it.

What lives here: looking the coordinator up, and again after it has moved or was away. What does not: what is asked (`group`, `heart`,
`offsets`). A broker that cannot be reached is no news about the group: whoever asks looks the coordinator up and asks again.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.cluster.retry import Backoff
from busway.errors import BuswayError, ConnectionFailed, RequestTimedOut
from busway.net.connection import Connection
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import LeaveGroupRequest, MemberIdentity

log = logging.getLogger("busway.consumer")

MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
PASSING: Final = MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""What says nothing about the group, only about the broker that was asked."""
_LEAVE_S: Final = 3.0
"""Leaving is a courtesy: without it the others wait for the session to end."""
_MANY_LEAVE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member as its group knows it in one generation."""

    group: str
    member_id: str
    generation: int
    instance_id: str | None


class Coordinator:
    """The broker that coordinates a group.

    Args:
        cluster: its connections; they belong to one event loop, and so does this.
    """

    def __init__(self, cluster: ClusterClient, group: str) -> None:
        self._cluster = cluster
        self.group = group
        self._node: int | None = None
        self._last: int | None = None

    def backoff(self) -> Backoff:
        """A fresh row of waits."""
        return self._cluster.backoff()

    def forget(self) -> None:
        """It is somewhere else: look it up before the next question."""
        self._node = None

    async def connection(self, purpose: str) -> Connection:
        """A connection to it; joins, which wait long, have one of their own.

        Raises:
            BrokerError: the group is refused.
            ConnectionFailed, RequestTimedOut: it cannot be reached; the next call looks it up.
        """
        if self._node is None:
            self._node = await self._cluster.find_coordinator(self.group)
            if self._node != self._last:
                host, port = self._cluster.metadata.brokers.get(self._node, ("?", 0))
                log.info("group %s: coordinator is broker %d at %s:%d", self.group, self._node, host, port)
                self._last = self._node
        node = self._node
        try:
            return await self._cluster.connection(node, purpose)
        except (ConnectionFailed, RequestTimedOut):
            await self._away(node)
            raise

    async def ask(
        self, message: Any, *, purpose: str = "group", timeout_s: float | None = None, at_most: int | None = None
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

    async def leave(self, member: Member) -> None:
        """Leave the group, so that the others need not wait for the session to end; static members stay."""
        if not member.member_id or member.instance_id is not None:
            return
        try:
            async with asyncio.timeout(_LEAVE_S):
                version = (await self.connection("group")).version(ApiKey.LEAVE_GROUP)
                identity = MemberIdentity(member_id=member.member_id, group_instance_id=None)
                await self.ask(
                    LeaveGroupRequest(group_id=self.group, member_id=member.member_id)
                    if version < _MANY_LEAVE
                    else LeaveGroupRequest(group_id=self.group, members=[identity])
                )
        except (BuswayError, TimeoutError) as problem:
            log.warning("group %s was not left, its session has to end: %s", self.group, problem or "no answer in time")
