"""Take members out of their groups.

What lives here: LeaveGroup for many members, a part at a time; fencing a member whose connection is gone. What does not: the rules
(`groups.shard`), which member is to be fenced (`member_connections`).
"""

import functools
import logging
from collections.abc import Sequence

from busway_bus.coordinator.member_connections import MemberConnections, MemberKey
from busway_bus.coordinator.runtime import Runtime
from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.member import Member
from busway_bus.groups.explained import FENCED, LEFT, ExplainedShard
from busway_bus.groups.modern.consumer_group import ConsumerGroup
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import MEMBERS_PER_TICK_MAX
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.groups")
Identity = tuple[str, str | None]
"""Member id and instance id."""


async def leave_in_parts(
    runtime: Runtime[ExplainedShard],
    group_id: str,
    identities: Sequence[Identity],
    reasons: Sequence[str | None],
    what: str = LEFT,
) -> list[ErrorCode]:
    """Take members out of a group, each for its reason; a code for each.

    Members of a consumer group go `MEMBERS_PER_TICK_MAX` at a time; other requests are served in between. Where a part cannot be written,
    the members of the parts before are out.

    Raises:
        KafkaError: not even the first part can be written.
    """
    number = runtime.partition_of(group_id)
    codes: list[ErrorCode] = []
    out: set[Identity] = set()
    while True:
        shard, begin = runtime.shards().get(number), len(codes)
        modern = shard is not None and isinstance(shard.groups.get(group_id), ConsumerGroup)
        end = begin + MEMBERS_PER_TICK_MAX if modern else len(identities)
        part = identities[begin:end]
        leave = functools.partial(
            _left, group_id=group_id, identities=part, now=runtime.now(), reasons=reasons[begin:end], what=what
        )
        try:
            answered = await runtime.write(number, leave)
        except KafkaError as problem:
            if not codes:
                raise
            answered = [problem.code] * len(part)
        # A member that is named twice is out, and not unknown, as where all go at once.
        codes += [ErrorCode.NONE if one in out else code for one, code in zip(part, answered, strict=True)]
        out.update(one for one, code in zip(part, answered, strict=True) if code is ErrorCode.NONE)
        if len(codes) == len(identities):
            return codes


def has_member(group: object, member_id: str) -> bool:
    """Whether a group has a member of that id."""
    return isinstance(group, ClassicGroup | ConsumerGroup) and member_id in group.members


async def fence(
    runtime: Runtime[ExplainedShard], connections: MemberConnections, key: MemberKey, waited_ms: int
) -> None:
    """Take out a dynamic member, unless a connection carries its requests by now, or it waits on another for a rebalance.

    What cannot be written waits for the session's end.
    """
    group_id, member_id = key
    shard = runtime.shards().get(runtime.partition_of(group_id))
    group = None if shard is None else shard.groups.get(group_id)
    member = group.members.get(member_id) if isinstance(group, ClassicGroup | ConsumerGroup) else None
    if connections.carries(key) or (member is not None and member.instance_id is not None):
        return
    if isinstance(member, Member) and any(not waiter.done() for waiter in (member.join, member.sync) if waiter):
        return  # the wait would be over if the connection of that request had ended
    reason = f"its connection was closed, and no other carried a request of it within {waited_ms} ms"
    try:
        (code,) = await leave_in_parts(runtime, group_id, [(member_id, None)], [reason], FENCED)
    except KafkaError as problem:
        logger.debug("member %s of group %s stays until its session ends: %s", member_id, group_id, problem)
        return
    if code is ErrorCode.NONE:
        logger.info("member %s of group %s is fenced: %s (group.disconnect.grace.ms)", member_id, group_id, reason)


def _left(
    shard: ExplainedShard,
    *,
    group_id: str,
    identities: Sequence[Identity],
    now: int,
    reasons: Sequence[str | None],
    what: str,
) -> Decision[list[ErrorCode]]:
    return shard.leave(group_id, identities, now, reasons, what)
