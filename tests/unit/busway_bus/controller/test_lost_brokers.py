"""Brokers with many partitions that come and go: no decision is larger than its bound, and the outcome is the same."""

from collections.abc import Callable

import pytest
from tests.unit.busway_bus.controller.members import SESSION_MS, Members, registration

from busway_bus.controller import leaders
from busway_bus.controller.heartbeats import BrokerState, check_interval_ms
from busway_bus.controller.lost_brokers import FenceBroker, FenceStaleBrokers, UnregisterBroker
from busway_bus.metadata.image import NO_LEADER

AT_ONCE, PARTITIONS = 4, 23
OTHERS = 3
"""Records of a decision beside its partitions."""


def unregister(members: Members) -> None:
    members.run(UnregisterBroker(node_id=1))


def fence(members: Members) -> None:
    assert members.run(FenceBroker(node_id=1, epoch=members.image.brokers[1].epoch)) is True


def silence(members: Members) -> None:
    for _ in range(10):
        members.now_ms += check_interval_ms(SESSION_MS)
        members.beat(2)
        members.beat(3)
        members.run(FenceStaleBrokers())


def stop(members: Members) -> None:
    while members.beat(1, want_shut_down=True).state is not BrokerState.SHUTDOWN_NOW:
        for other in (2, 3):
            members.beat(other)


def restart(members: Members) -> None:
    members.heartbeats.end_session(1)
    members.run(registration(1, run=2))


def restart_and_serve(members: Members) -> None:
    restart(members)
    members.beat(1)


def all_go_and_one_returns(members: Members) -> None:
    for node_id in (3, 2, 1):
        members.run(FenceBroker(node_id=node_id, epoch=members.image.brokers[node_id].epoch))
    assert all(partition.leader == NO_LEADER for partition in members.image.topics["t"].partitions)
    members.beat(1)


@pytest.mark.parametrize("elr", [True, False])
@pytest.mark.parametrize(
    "happens", [unregister, fence, silence, stop, restart, restart_and_serve, all_go_and_one_returns]
)
def test_a_broker_of_many_partitions_changes_them_in_parts(
    happens: Callable[[Members], None], elr: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that none holds the event loop; leaders, ISRs and the broker's state are as after one decision."""
    outcomes = []
    for at_once in (AT_ONCE, 1_000):
        monkeypatch.setattr(leaders, "PARTITIONS_CHANGED_AT_ONCE_MAX", at_once)
        members = Members(3, elr=elr)
        members.create("t", *[((1, 2, 3), (2, 3, 1), (3, 1, 2))[index % 3] for index in range(PARTITIONS)])
        members.largest = 0
        happens(members)
        assert members.largest <= (at_once + OTHERS)
        broker = members.image.brokers.get(1)
        outcomes.append(
            (members.image.topics["t"].partitions, broker and (broker.fenced, broker.in_controlled_shutdown))
        )
    assert outcomes[0] == outcomes[1]
    assert members.largest > AT_ONCE + OTHERS
