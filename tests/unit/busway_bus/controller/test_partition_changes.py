"""The record that changes a partition: who leads, who is in sync, who is eligible; a row is a case of Kafka's rules."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from busway_bus.controller.partition_changes import Election, PartitionChange
from busway_bus.metadata.delta import merged
from busway_bus.metadata.image import NO_LEADER, RECOVERED, RECOVERING, PartitionImage

PARTITION = PartitionImage(leader=1, leader_epoch=5, partition_epoch=9, replicas=(1, 2, 3), isr=(1, 2, 3))
LEADERLESS = replace(PARTITION, leader=NO_LEADER)


def change(partition: PartitionImage, alive: tuple[int, ...] = (1, 2, 3, 4), **target: Any) -> PartitionImage | None:
    """The partition after the change; None where nothing changes."""
    record = PartitionChange(
        **{
            "topic_id": UUID(int=7),
            "partition_index": 0,
            "partition": partition,
            "acceptable": lambda replica: replica in alive,
            "min_isr": 2,
            "elr_enabled": True,
            **target,
        }
    ).record()
    return None if record is None else merged(partition, record)


def short(partition: PartitionImage | None) -> tuple[Any, ...]:
    """What elections decide: leader, ISR, ELR, last leader, recovery."""
    assert partition is not None
    return partition.leader, partition.isr, partition.elr, partition.last_known_elr, partition.recovery_state


def test_a_change_to_what_is_there_is_none() -> None:
    """No record, so no new epoch."""
    assert change(PARTITION) is None
    assert change(PARTITION, isr=(1, 2, 3), recovery_state=RECOVERED) is None


def test_a_smaller_isr_is_no_new_leader_epoch() -> None:
    """Only the partition's epoch moves: the leader is the same, and its producers notice nothing."""
    shrunk = change(PARTITION, isr=(1, 2))
    assert short(shrunk) == (1, (1, 2), (), (), RECOVERED)
    assert shrunk is not None
    assert (shrunk.leader_epoch, shrunk.partition_epoch) == (5, 10)


def test_replicas_below_the_minimum_stay_eligible() -> None:
    """They have everything committed, as nothing is committed with fewer than the minimum; back above it, none is."""
    two = replace(PARTITION, isr=(1, 2))
    below = change(two, isr=(1,))
    assert short(below) == (1, (1,), (2,), (), RECOVERED)
    assert below is not None
    lower = change(below, isr=(), alive=(2,))
    assert short(lower) == (2, (2,), (1,), (), RECOVERED)
    assert short(change(below, isr=(1, 3))) == (1, (1, 3), (), (), RECOVERED)
    assert short(change(two, isr=(1,), elr_enabled=False)) == (1, (1,), (), (), RECOVERED)


def test_an_unclean_shutdown_ends_eligibility() -> None:
    """The last leader is noted; alone it is elected, and recovers."""
    gone = change(replace(PARTITION, isr=(1,), elr=(2,)), alive=(), isr=(), unclean_shutdown=(1,))
    assert short(gone) == (NO_LEADER, (), (2,), (1,), RECOVERED)
    assert gone is not None
    assert change(gone, alive=(1, 3)) is None, "2 may still come back with everything"
    none = change(gone, alive=(), unclean_shutdown=(2,))
    assert short(none) == (NO_LEADER, (), (), (1,), RECOVERED)
    assert none is not None
    assert change(none, alive=(2, 3)) is None
    assert short(change(none, alive=(1, 2, 3))) == (1, (1,), (), (), RECOVERING)


def test_the_last_replica_in_sync_stays_without_eligible_ones() -> None:
    """The partition has no leader until it is back."""
    alone = replace(PARTITION, isr=(1,))
    gone = change(alone, alive=(2, 3), isr=(), elr_enabled=False)
    assert short(gone) == (NO_LEADER, (1,), (), (), RECOVERED)
    assert gone is not None
    assert short(change(gone, alive=(1,), elr_enabled=False)) == (1, (1,), (), (), RECOVERED)
    assert change(gone, alive=(2, 3), elr_enabled=False) is None


@pytest.mark.parametrize(
    ("election", "partition", "alive", "leader"),
    [
        (Election.PREFERRED, replace(PARTITION, leader=2), (1, 2, 3), 1),
        (Election.PREFERRED, replace(PARTITION, leader=3), (2, 3), 3),
        (Election.PREFERRED, replace(PARTITION, leader=3, isr=(2, 3)), (1, 2, 3), 3),
        (Election.PREFERRED, replace(LEADERLESS, isr=(3,)), (3,), 3),
        (Election.ONLINE, replace(PARTITION, leader=2), (1, 2, 3), 2),
        (Election.ONLINE, PARTITION, (3, 2), 2),
        (Election.ONLINE, replace(LEADERLESS, isr=(3,)), (1, 2), NO_LEADER),
        (Election.ONLINE, replace(LEADERLESS, isr=(), elr=(2, 3)), (1, 3), 3),
        (Election.ONLINE, replace(LEADERLESS, isr=(2,), elr=(3,)), (1, 3), NO_LEADER),
        (Election.UNCLEAN, PARTITION, (2, 3), 2),
    ],
)
def test_elections_without_loss(
    election: Election, partition: PartitionImage, alive: tuple[int, ...], leader: int
) -> None:
    """Of the ISR; of the eligible ones only while the ISR is empty."""
    changed = change(partition, alive, election=election, min_isr=3) or partition
    assert (changed.leader, changed.recovery_state) == (leader, RECOVERED)
    if leader != NO_LEADER:
        assert leader in changed.isr


def test_an_unclean_election_leaves_the_leader_alone_and_recovering() -> None:
    """All others may have records that it lacks, eligible ones too."""
    partition = replace(LEADERLESS, isr=(1,), elr=(2,))
    assert change(partition, (3,)) is None
    assert short(change(partition, (3,), election=Election.UNCLEAN)) == (3, (3,), (), (), RECOVERING)
    again = replace(partition, recovery_state=RECOVERING)
    assert short(change(again, (2, 3), election=Election.UNCLEAN)) == (2, (2,), (), (), RECOVERING)


def test_recovery_ends_with_the_leaders_word() -> None:
    """By AlterPartition."""
    recovering = replace(PARTITION, isr=(1,), recovery_state=RECOVERING)
    assert short(change(recovering, recovery_state=RECOVERED)) == (1, (1,), (), (), RECOVERED)


def test_a_reassignment_ends_when_its_new_replicas_are_in_sync() -> None:
    """Those to remove leave replicas and ISR, and a leader that leaves has a successor."""
    moving = replace(PARTITION, replicas=(3, 4, 1, 2), isr=(1, 2, 3), removing=(1, 2), adding=(4,))
    waiting = change(moving, isr=(1, 2))
    assert waiting is not None
    assert (waiting.replicas, waiting.removing, waiting.adding) == ((3, 4, 1, 2), (1, 2), (4,))
    moved = change(moving, isr=(1, 2, 3, 4))
    assert moved is not None
    assert (moved.replicas, moved.isr, moved.removing, moved.adding) == ((3, 4), (3, 4), (), ())
    assert (moved.leader, moved.leader_epoch) == (3, 6)


def test_a_new_replica_has_the_directory_of_its_broker() -> None:
    """The others keep theirs; a removed replica makes an epoch of the same leader."""
    placed = replace(PARTITION, directories=(UUID(int=101), UUID(int=102), UUID(int=103)))
    grown = change(placed, replicas=(1, 2, 3, 4), adding=(4,), default_directory=lambda broker: UUID(int=100 + broker))
    assert grown is not None
    assert (grown.replicas, grown.directories[3], grown.leader_epoch) == ((1, 2, 3, 4), UUID(int=104), 5)
    cut = change(placed, replicas=(1, 2), isr=(1, 2))
    assert cut is not None
    assert (cut.leader, cut.leader_epoch, len(cut.directories)) == (1, 6, 2)
    moved = change(placed, directories={2: UUID(int=902)})
    assert moved is not None
    assert moved.directories == (UUID(int=101), UUID(int=902), UUID(int=103))
