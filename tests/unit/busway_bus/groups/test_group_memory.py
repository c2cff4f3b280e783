"""What members hold is counted while they hold it, and refused where it does not fit."""

import gc

from tests.unit.busway_bus.groups.conftest import Bench

from busway_bus.groups.classic import ClassicGroup
from busway_bus.groups.classic_states import State
from busway_bus.groups.classic_values import GroupLimits
from busway_bus.groups.memory import GroupMemory
from busway_bus.kernel.limits import MEMBER_BYTES
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
    memory = GroupMemory(limit=100 * KIB, group_limit=50 * KIB)
    groups = [bench(memory) for _ in range(10)]
    errors = [group.join("a", protocols=(("range", bytes(20 * KIB)),)).error for group in groups]
    assert errors == [ErrorCode.NONE] * 4 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 6
    assert groups[0].leave(next(iter(groups[0].group.members))) is ErrorCode.NONE
    assert groups[9].join("b", protocols=(("range", bytes(20 * KIB)),)).error is ErrorCode.NONE


def test_assignments_that_do_not_fit_are_refused() -> None:
    """The leader is told; the group waits for it to come with less."""
    memory = GroupMemory(limit=100 * KIB, group_limit=50 * KIB)
    group = bench(memory)
    member = group.join("a").member_id
    refused = group.sync("s1", member, [(member, bytes(60 * KIB))])
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.group.state is State.COMPLETING
    assert group.sync("s2", member, [(member, bytes(40 * KIB))]).error is ErrorCode.NONE
    assert memory.used > 40 * KIB


def test_ids_that_are_waited_for_count_and_lapse() -> None:
    """A client that asks for an id and never comes back holds memory until its session is over."""
    memory = GroupMemory(limit=20 * MEMBER_BYTES, group_limit=20 * MEMBER_BYTES)
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
