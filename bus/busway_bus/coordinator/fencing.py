"""Fencing of group members whose process is gone.

Here: dynamic members' longest heartbeat interval, their removal.
Not here: when (`member_connections`), the rules (`groups.shard`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from busway_bus.coordinator.leave_group import leave_in_parts
from busway_bus.coordinator.member_connections import Carrier, MemberConnections, MemberKey
from busway_bus.coordinator.runtime import Runtime
from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.member import Member
from busway_bus.groups.explained import FENCED, ExplainedShard
from busway_bus.groups.group import Group
from busway_bus.groups.modern.consumer_group import ConsumerGroup
from busway_bus.kernel.decision import Waiter
from busway_bus.kernel.limits import MEMBERS_PER_TICK_MAX
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.groups")
HANDED_OUT_MS: Final = 3000
"""Assumed heartbeat interval of a client with a new member id: it rejoins at once."""


class MemberFencing:
    """Fences the dynamic members of this node's groups whose connections were closed.

    `grace_ms`: `group.disconnect.grace.ms`; 0 fences no member.
    """

    def __init__(
        self,
        grace_ms: int,
        runtime: Runtime[ExplainedShard],
        begin: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._runtime = runtime
        self._begin = begin
        self._fenced: list[tuple[MemberKey, int]] = []
        self.connections = MemberConnections(grace_ms, runtime.now, self._over, self._is_member)

    def request_received(
        self,
        carrier: Carrier,
        group_id: str,
        member_id: str,
        *,
        heartbeat: bool = False,
        interval_ms: int = 0,
    ) -> None:
        """As `MemberConnections.request_received`, for dynamic members."""
        key = group_id, member_id
        longest_ms = self._longest_ms(key)
        if longest_ms is not None:
            self.connections.request_received(carrier, key, longest_ms, heartbeat=heartbeat, interval_ms=interval_ms)

    def joins(self, carrier: Carrier, group_id: str, member_id: str) -> None:
        """Note JoinGroup's connection. With a handed-out id it is the first."""
        key = group_id, member_id
        longest_ms = self._longest_ms(key)
        if longest_ms is not None:
            group = self._group(group_id)
            first = isinstance(group, ClassicGroup) and member_id not in group.members
            self.connections.request_received(carrier, key, longest_ms, rejoins=not first)

    def joined(self, carrier: Carrier, group_id: str, member_id: str) -> None:
        key = group_id, member_id
        longest_ms = self._longest_ms(key)
        if longest_ms is not None:
            self.connections.request_received(carrier, key, longest_ms, rejoins=None)

    def parked(self, carrier: Carrier, group_id: str, waiter: Waiter) -> None:
        """Note a new member's first JoinGroup; only the response carries the id."""
        group = self._group(group_id)
        newcomer = next(reversed(group.members.values()), None) if isinstance(group, ClassicGroup) else None
        if newcomer is not None and newcomer.join is waiter and newcomer.instance_id is None:
            key = group_id, newcomer.member_id
            self.connections.request_received(carrier, key, newcomer.session_timeout_ms // 3, id_sent=False)

    def unloaded(self, shard: ExplainedShard) -> None:
        for group_id in shard.groups:
            self.connections.forget_group(group_id)

    def _group(self, group_id: str) -> Group | None:
        return self._runtime.shard(self._runtime.partition_of(group_id)).groups.get(group_id)

    def _longest_ms(self, key: MemberKey) -> int | None:
        """Return a dynamic member's longest heartbeat interval; None for others."""
        group_id, member_id = key
        try:
            group = self._group(group_id)
        except KafkaError:
            return None
        if isinstance(group, ClassicGroup):
            member = group.members.get(member_id)
            if member is None:
                return HANDED_OUT_MS if member_id in group.roster.pending else None
            return None if member.instance_id is not None else member.session_timeout_ms // 3
        if not isinstance(group, ConsumerGroup):
            return None
        balanced = group.members.get(member_id)
        if balanced is None or balanced.instance_id is not None:
            return None
        if balanced.classic is None:
            return group.settings.heartbeat_interval_ms
        return group.session_timeout_ms(balanced) // 3

    def _is_member(self, key: MemberKey) -> bool:
        return self._longest_ms(key) is not None

    def _over(self, group_id: str, member_id: str, waited_ms: int) -> None:
        self._fenced.append(((group_id, member_id), waited_ms))
        if len(self._fenced) == 1:
            self._begin(self._fence_some())

    async def _fence_some(self) -> None:
        """Fence `MEMBERS_PER_TICK_MAX` per loop iteration: all connections may close at once."""
        while self._fenced:
            part = self._fenced[:MEMBERS_PER_TICK_MAX]
            for key, waited_ms in part:
                self._begin(self._fence(key, waited_ms))
            await asyncio.sleep(0)
            del self._fenced[: len(part)]  # behind the await, so that one task does this at a time

    async def _fence(self, key: MemberKey, waited_ms: int) -> None:
        """Fence a dynamic member without a connection and a pending rebalance.

        If this cannot be written, the session timeout applies.
        """
        group_id, member_id = key
        try:
            group = self._group(group_id)
        except KafkaError:
            return  # it is coordinated elsewhere
        member = group.members.get(member_id) if isinstance(group, ClassicGroup | ConsumerGroup) else None
        if self.connections.carries(key) or (member is not None and member.instance_id is not None):
            return
        if isinstance(member, Member) and any(not waiter.done() for waiter in (member.join, member.sync) if waiter):
            return  # the wait would be over if the connection of that request had ended
        reason = f"its connection was closed, and no other carried a request of it within {waited_ms} ms"
        try:
            (code,) = await leave_in_parts(self._runtime, group_id, [(member_id, None)], [reason], FENCED)
        except KafkaError as problem:
            logger.debug("member %s of group %s stays until its session ends: %s", member_id, group_id, problem)
            return
        if code is ErrorCode.NONE:
            logger.info("member %s of group %s is fenced: %s (group.disconnect.grace.ms)", member_id, group_id, reason)
