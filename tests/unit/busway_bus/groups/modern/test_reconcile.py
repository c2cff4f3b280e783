"""One step of a member towards its target assignment (KIP-848)."""

from typing import Any
from uuid import UUID

import pytest

from busway_bus.groups.modern.consumer_member import ConsumerMember, MemberState
from busway_bus.groups.modern.reconcile import reconcile
from busway_protocol.errors import ErrorCode, KafkaError

T, U = UUID(int=1), UUID(int=2)


def member(assigned: dict[UUID, dict[int, int]], *, epoch: int = 1, **changes: Any) -> ConsumerMember:
    """A stable member at `epoch`."""
    return ConsumerMember(member_id="m", epoch=epoch, assigned=assigned, **changes)


def step(
    before: ConsumerMember, target_epoch: int, target: dict[UUID, tuple[int, ...]], **changes: Any
) -> ConsumerMember:
    """Reconcile; by default it reports nothing, reads every topic, and no partition is taken."""
    options: dict[str, Any] = {
        "owned": None,
        "reads": lambda _: True,
        "subscription_changed": False,
        "taken": lambda *_: False,
    }
    return reconcile(before, target_epoch, target, **{**options, **changes})


def test_free_partitions_are_assigned_at_once() -> None:
    """With the epoch in which it got them; kept ones keep theirs."""
    after = step(member({T: {0: 1}}), 3, {T: (0, 1)})
    assert (after.epoch, after.previous_epoch, after.state) == (3, 1, MemberState.STABLE)
    assert after.assigned == {T: {0: 1, 1: 3}}


def test_a_member_revokes_before_its_epoch_rises() -> None:
    """It stays in its epoch until it reports without the revoked partition."""
    after = step(member({T: {0: 1, 1: 1}}), 2, {T: (0,)})
    assert (after.epoch, after.state) == (1, MemberState.UNREVOKED)
    assert (after.assigned, after.revoking) == ({T: {0: 1}}, {T: {1: 1}})
    assert step(after, 2, {T: (0,)}) is after, "a heartbeat without the owned partitions confirms nothing"
    assert step(after, 2, {T: (0,)}, owned={T: [0, 1]}) is after
    confirmed = step(after, 2, {T: (0,)}, owned={T: [0]})
    assert (confirmed.epoch, confirmed.state, confirmed.revoking) == (2, MemberState.STABLE, {})


def test_partitions_of_others_are_awaited() -> None:
    """UNRELEASED until the former owner has revoked."""
    waiting = step(member({}), 2, {T: (0, 1)}, taken=lambda _, partition: partition == 1)
    assert (waiting.epoch, waiting.state, waiting.assigned) == (2, MemberState.UNRELEASED, {T: {0: 2}})
    assert step(waiting, 2, {T: (0, 1)}).assigned == {T: {0: 2, 1: 2}}


def test_topics_out_of_the_subscription_are_revoked() -> None:
    """Although the target assignment is that of the former subscription."""
    after = step(
        member({T: {0: 1}, U: {0: 1}}), 1, {T: (0,), U: (0,)}, subscription_changed=True, reads=lambda topic: topic == T
    )
    assert (after.state, after.assigned, after.revoking) == (MemberState.UNREVOKED, {T: {0: 1}}, {U: {0: 1}})


def test_an_unknown_state_has_to_rejoin_without_partitions() -> None:
    """As Kafka: FENCED_MEMBER_EPOCH unless it reports that it owns nothing."""
    unknown = member({T: {0: 1}}, state=MemberState.UNKNOWN)
    for owned in (None, {T: [0]}):
        with pytest.raises(KafkaError) as refused:
            step(unknown, 2, {T: (0,)}, owned=owned)
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert step(unknown, 2, {T: (0,)}, owned={}).state is MemberState.STABLE
