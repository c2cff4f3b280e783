"""Removal of members from their groups.

Here: LeaveGroup for many members, in parts.
Not here: the rules (`groups.shard`), fencing (`fencing`).
"""

import functools
from collections.abc import Sequence

from busway_bus.coordinator.runtime import Runtime
from busway_bus.groups.explained import LEFT, ExplainedShard
from busway_bus.groups.modern.consumer_group import ConsumerGroup
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import MEMBERS_PER_TICK_MAX
from busway_protocol.errors import ErrorCode, KafkaError

Identity = tuple[str, str | None]


async def leave_in_parts(
    runtime: Runtime[ExplainedShard],
    group_id: str,
    identities: Sequence[Identity],
    reasons: Sequence[str | None],
    what: str = LEFT,
) -> list[ErrorCode]:
    """Remove members from a group; return a code for each.

    Members of a consumer group are removed `MEMBERS_PER_TICK_MAX` at a time. Parts before a failed one stay removed;
    KafkaError only for the first.
    """
    partition = runtime.partition_of(group_id)
    codes: list[ErrorCode] = []
    out: set[Identity] = set()
    while True:
        shard, begin = runtime.shards().get(partition), len(codes)
        modern = shard is not None and isinstance(shard.groups.get(group_id), ConsumerGroup)
        end = begin + MEMBERS_PER_TICK_MAX if modern else len(identities)
        part = identities[begin:end]
        leave = functools.partial(
            _left, group_id=group_id, identities=part, now=runtime.now(), reasons=reasons[begin:end], what=what
        )
        try:
            answered = await runtime.write(partition, leave)
        except KafkaError as problem:
            if not codes:
                raise
            answered = [problem.code] * len(part)
        # A member that is named twice is out, and not unknown, as where all go at once.
        codes += [ErrorCode.NONE if identity in out else code for identity, code in zip(part, answered, strict=True)]
        out.update(identity for identity, code in zip(part, answered, strict=True) if code is ErrorCode.NONE)
        if len(codes) == len(identities):
            return codes


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
