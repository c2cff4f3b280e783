"""The names of topics that members hold count as much as they take, once for all members that have the same."""

import gc
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.requests import ConsumerHeartbeat
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.shard import GroupShard
from busway_bus.groups.share.heartbeat import ShareGroupLimits, ShareHeartbeat, share_group_heartbeat
from busway_bus.kernel.limits import MEMBER_BYTES
from busway_bus.metadata.image import ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError

NAMES = 330
Join = Callable[[GroupShard, str, Iterable[str]], None]


def shard_of(memory: GroupMemory) -> GroupShard:
    image = ClusterImage()
    return GroupShard(limits=GroupLimits(memory=memory), new_member_id=str, topics=Topics(lambda: image))


def applied(shard: GroupShard, decision: Any) -> None:
    """Apply the records of a decision, as after a read from the log."""
    for change in decision.records:
        written = shard.decode(*shard.encode(change))
        assert written is not None
        shard.apply(written, 0)


def consume(shard: GroupShard, member_id: str, names: Iterable[str]) -> None:
    said = ConsumerHeartbeat(
        member_id=member_id,
        epoch=0,
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/",
        rebalance_timeout_ms=1_000,
        topics=frozenset(names),
        regex=None,
        assignor=None,
        owned={},
    )
    applied(shard, shard.consumer_heartbeat("g", said, 0))


def share(shard: GroupShard, member_id: str, names: Iterable[str]) -> None:
    group: Any = shard.groups.get("g") or shard.new_share_group("g")
    limits = ShareGroupLimits(
        max_size=1_000, session_timeout_ms=1_000, heartbeat_interval_ms=1_000, assignment_interval_ms=0
    )
    said = ShareHeartbeat(group_id="g", member_id=member_id, epoch=0, topics=frozenset(names))
    applied(shard, share_group_heartbeat(group, said, limits, now=0, wall_ms=0))


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("join", [consume, share])
def test_what_is_counted_is_what_is_held(join: Join, same: bool) -> None:
    """Names of six letters, of members that subscribe to the same and of such that do not; nothing is left when they are gone."""
    memory = GroupMemory()
    shard = shard_of(memory)
    join(shard, "first", ["t"])
    gc.collect()
    counted = memory.used
    tracemalloc.start()
    for member in range(3):
        join(shard, f"m{member}", (f"{0 if same else member}{at:05}" for at in range(NAMES)))
    gc.collect()
    took = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.8 * took <= memory.used - counted <= 2 * took
    group: Any = shard.groups["g"]
    assert len({id(group.members[f"m{member}"].topics) for member in range(3)}) == (1 if same else 3)
    for member_id in tuple(group.members):
        for change in group.member_tombstones(member_id):
            shard.apply(change, 0)
    assert memory.used == 0


@pytest.mark.parametrize("join", [consume, share])
def test_names_that_do_not_fit_are_refused(join: Join) -> None:
    """GROUP_MAX_SIZE_REACHED for the member that brings them; one that subscribes to what others do finds room."""
    memory = GroupMemory(group_limit=300_000)
    shard = shard_of(memory)
    names = [f"{at:04}" for at in range(1_000)]
    join(shard, "a", names)
    with pytest.raises(KafkaError) as refused:
        join(shard, "b", (f"b{name}" for name in names))
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    used = memory.used
    join(shard, "b", names)
    assert memory.used - used < 2 * MEMBER_BYTES
    join(shard, "a", [f"a{name}" for name in names[:300]])
    assert memory.used <= 300_000
