"""What members hold is counted while they hold it, and refused where it does not fit."""

import gc
import tracemalloc
from collections.abc import Sequence

import pytest
from tests.unit.busway_bus.groups.conftest import Bench

from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.states import State
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.kernel.limits import MEMBER_BYTES, SUBSCRIBED_ELEMENTS_MAX
from busway_protocol.assignors.consumer_protocol import encode_subscription
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.compile import REQUEST_ELEMENTS_MAX
from busway_protocol.errors import ErrorCode

KIB = 1024


def bench(memory: GroupMemory) -> Bench:
    """A group beside others in this memory."""
    counter = iter(range(1, 1_000_000))
    limits = GroupLimits(initial_rebalance_delay_ms=0, memory=memory)
    return Bench(ClassicGroup("g", limits, lambda prefix: f"{prefix}-{next(counter)}"))


def test_a_member_that_does_not_fit_is_refused_and_the_group_goes_on() -> None:
    """GROUP_MAX_SIZE_REACHED for the one that brings too much; the one that is in may bring as much as there was room for."""
    memory = GroupMemory(limit=1_000 * KIB, group_limit=100 * KIB)
    group = bench(memory)
    joined = group.join("a", protocols=(("range", bytes(60 * KIB)),))
    assert joined.error is ErrorCode.NONE
    assert group.join("b", protocols=(("range", bytes(60 * KIB)),)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(group.group.members) == [joined.member_id]
    again = group.join("a2", joined.member_id, protocols=(("range", bytes(90 * KIB)),))
    assert again.error is ErrorCode.NONE
    assert 90 * KIB < memory.used < 100 * KIB


def test_all_groups_share_one_bound() -> None:
    """Ten groups within their own bounds, until the memory of all is used; one that leaves makes room."""
    memory = GroupMemory(limit=200 * KIB, group_limit=50 * KIB)
    groups = [bench(memory) for _ in range(10)]
    errors = [group.join("a", protocols=(("range", bytes(20 * KIB)),)).error for group in groups]
    assert errors == [ErrorCode.NONE] * 4 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 6
    assert groups[0].leave(next(iter(groups[0].group.members))) is ErrorCode.NONE
    assert groups[9].join("b", protocols=(("range", bytes(20 * KIB)),)).error is ErrorCode.NONE


def test_a_host_leaves_as_much_to_others_as_it_has() -> None:
    """However many groups its members are in; whose client asks for a member last has it counted."""
    refusals: list[tuple[str, str]] = []
    memory = GroupMemory(limit=200 * KIB, refused=lambda host, text: refusals.append((host, text)))
    groups = [bench(memory) for _ in range(8)]
    large, small = (("range", bytes(20 * KIB)),), (("range", bytes(1 * KIB)),)
    joined = [group.join("a", client_host="/greedy", protocols=large) for group in groups]
    assert [response.error for response in joined].count(ErrorCode.NONE) == 4
    assert set(refusals) == {("/greedy", refusals[0][1])}
    assert "host greedy has 0.1 MiB for members of groups" in refusals[0][1]
    newcomer = groups[7].join("b", client_host="/modest", protocols=large)
    assert newcomer.error is ErrorCode.NONE
    assert groups[0].join("c", joined[0].member_id, client_host="/other", protocols=small).error is ErrorCode.NONE
    assert memory.share.of("/other") < 3 * KIB < 60 * KIB < memory.share.of("/greedy") < 70 * KIB
    groups[0].leave(joined[0].member_id)
    assert memory.share.of("/other") == 0
    groups.clear()
    gc.collect()
    assert memory.used == memory.share.of("/greedy") == memory.share.of("/modest") == 0


def test_what_a_leader_assigns_counts_for_whose_members_get_it() -> None:
    """So that no host fills another's share beyond what that may have."""
    memory = GroupMemory(limit=200 * KIB)
    group = bench(memory)
    leader = group.join("a", client_host="/leader")
    group.join("b", client_host="/follower")
    leader = group.join("a2", leader.member_id, client_host="/leader")
    follower = group.answers["b"].member_id
    assert group.sync("s1", leader.member_id, [(follower, bytes(110 * KIB))]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.sync("s2", leader.member_id, [(follower, bytes(80 * KIB))]).error is ErrorCode.NONE
    assert memory.share.of("/leader") < 2 * KIB < 80 * KIB < memory.share.of("/follower")


def test_assignments_that_do_not_fit_are_refused() -> None:
    """The leader gets the error; the group waits for it to come with less."""
    memory = GroupMemory(limit=200 * KIB, group_limit=50 * KIB)
    group = bench(memory)
    member = group.join("a").member_id
    refused = group.sync("s1", member, [(member, bytes(60 * KIB))])
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.group.state is State.COMPLETING
    assert group.sync("s2", member, [(member, bytes(40 * KIB))]).error is ErrorCode.NONE
    assert memory.used > 40 * KIB


def test_ids_that_are_waited_for_count_and_lapse() -> None:
    """A client that asks for an id and never comes back holds memory until its session is over."""
    memory = GroupMemory(limit=40 * MEMBER_BYTES, group_limit=20 * MEMBER_BYTES)
    group = bench(memory)
    codes = [group.join(f"{at}", needs_known_id=True).error for at in range(30)]
    assert codes.count(ErrorCode.MEMBER_ID_REQUIRED) < 20
    assert codes[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    group.tick_to(group.now + 20_000)
    assert memory.used == 0


def test_a_group_that_is_let_go_gives_everything_back() -> None:
    """However it ends: nothing is counted for what is not there."""
    memory = GroupMemory()
    group = bench(memory)
    group.join("a")
    group.join("b", needs_known_id=True)
    assert memory.used
    other = bench(memory)
    other.group.apply(None, group.group.record(), other.now)
    del other
    gc.collect()
    assert memory.used
    del group
    gc.collect()
    assert memory.used == 0


def subscribing(topics: Sequence[str]) -> tuple[tuple[str, bytes], ...]:
    return (("range", encode_subscription(Subscription(topics=tuple(topics)), version=0)),)


def test_what_a_subscription_names_is_held_and_counted() -> None:
    """Names that take two bytes on the wire take a hundred in memory, until no member subscribes to them."""
    memory = GroupMemory()
    group = bench(memory)
    tracemalloc.start()
    member = group.join("a", protocols=subscribing([f"{at:04}" for at in range(5_000)])).member_id
    group.sync("s", member, [(member, b"")])
    gc.collect()
    took = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert group.group.subscribed is not None
    assert took <= memory.used <= 2 * took
    group.leave(member)
    assert memory.used == 0


@pytest.mark.parametrize("members", [1, 9])
def test_what_is_too_much_to_be_read_at_once_may_be_anything(members: int) -> None:
    """One subscription of more elements than a request may have, or those of all together: the group works, and nothing of it expires."""
    count = (REQUEST_ELEMENTS_MAX if members == 1 else SUBSCRIBED_ELEMENTS_MAX // members) + 1
    memory = GroupMemory()
    group = bench(memory)
    for at in range(members):
        group.join(f"{at}", protocols=subscribing([f"{at}{number}" for number in range(count)]))
    for at, member_id in enumerate(tuple(group.group.members)):
        group.join(f"{at}*", member_id, protocols=group.group.members[member_id].protocols)
    assert group.group.state is State.COMPLETING
    assert group.group.subscribed is None
    assert group.group.reads("any")


def test_names_that_do_not_fit_are_not_held() -> None:
    """The group works; what it reads is unknown."""
    memory = GroupMemory(limit=1_000 * KIB, group_limit=100 * KIB)
    group = bench(memory)
    member = group.join("a", protocols=subscribing([f"{at:04}" for at in range(1_000)])).member_id
    assert group.sync("s", member, [(member, b"")]).error is ErrorCode.NONE
    assert group.group.subscribed is None
    assert memory.used < 100 * KIB
