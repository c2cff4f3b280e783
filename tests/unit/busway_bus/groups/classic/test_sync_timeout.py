"""Members that joined have to sync before the rebalance timeout (KAFKA-13418)."""

from typing import Any

from busway_bus.groups.classic.states import State
from busway_protocol.errors import ErrorCode


def test_a_follower_that_beats_but_never_syncs_is_removed(bench: Any) -> None:
    """The leader has synced and the group is stable; the silent follower is out after the rebalance timeout."""
    leader, follower = bench.pair()
    assert bench.sync("as", leader, [(leader, b"all")]).error is ErrorCode.NONE
    assert bench.group.state is State.STABLE
    bench.tick_to(bench.now + 59_000, alive=(leader, follower))
    assert follower in bench.group.members
    bench.tick_to(bench.now + 2_000, alive=(leader, follower))
    assert set(bench.group.members) == {leader}
    assert bench.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_syncs_is_removed(bench: Any) -> None:
    """No member gets an assignment from it; waiting members have to join again."""
    leader, follower = bench.pair()
    assert bench.sync("bs", follower) is None
    bench.tick_to(bench.now + 61_000, alive=(leader, follower))
    assert set(bench.group.members) == {follower}
    assert bench.answers["bs"].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_once_all_have_synced_nobody_is_removed(bench: Any) -> None:
    """A follower that syncs after the leader has done its part."""
    leader, follower = bench.pair()
    bench.sync("as", leader, [(leader, b"1"), (follower, b"2")])
    assert bench.sync("bs", follower).assignment == b"2"
    bench.tick_to(bench.now + 200_000, alive=(leader, follower))
    assert set(bench.group.members) == {leader, follower}
    assert bench.group.state is State.STABLE
