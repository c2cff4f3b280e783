"""Which request each assigned partition needs next."""

from typing import Any
from uuid import UUID

from busway import TopicPartition
from busway.consumer.fetch_plan import CHUNKS_AHEAD, fetch_request, plan
from busway.consumer.subscription import FetchPosition
from busway_protocol.types import ZERO_UUID


def assigned(partition: int, **changes: Any) -> FetchPosition:
    """A partition that reads on at offset 0."""
    values: dict[str, Any] = {"reset": "earliest", "position": 0, **changes}
    return FetchPosition(TopicPartition("t", partition), **values)


def preferred(position: FetchPosition, leader: int) -> int:
    """The replica that the leader named."""
    return leader if position.replica is None else position.replica


def test_a_preferred_replica_is_fetched_from_and_its_leader_asked_for_positions() -> None:
    """A fetch in flight to either blocks that broker alone."""
    near, unplaced = assigned(0, replica=8), assigned(1, replica=8, position=None)
    result = plan([near, unplaced], 0.0, lambda _: 7, preferred, {7})
    assert (result.wanting, result.unplaced) == ({8: [near]}, {7: [unplaced]})
    assert plan([near], 0.0, lambda _: 7, preferred, {8}).wanting == {}


def test_every_partition_gets_the_request_that_it_needs() -> None:
    """By leader: fetches, and look-ups of positions that are not known."""
    wanting, uncommitted, unplaced = (
        assigned(0),
        assigned(1, position=None, reset="committed"),
        assigned(2, position=None),
    )
    leaderless = assigned(3)
    result = plan(
        [wanting, uncommitted, unplaced, leaderless],
        0.0,
        lambda each: {0: 7, 2: 8}.get(each.partition.partition),
        preferred,
        (),
    )
    assert result.wanting == {7: [wanting]}
    assert result.unplaced == {8: [unplaced]}
    assert result.uncommitted == [uncommitted]
    assert result.leaderless == [leaderless]
    assert result.wait_s is None


def test_a_leader_with_a_fetch_in_flight_is_not_asked_again() -> None:
    """Its partitions wait for the response."""
    assert plan([assigned(0)], 0.0, lambda _: 7, preferred, {7}).wanting == {}


def test_paused_partitions_are_not_fetched_but_placed() -> None:
    """A paused partition without a position is looked up, so that `position` can answer."""
    unplaced = assigned(1, paused=True, position=None)
    result = plan([assigned(0, paused=True), unplaced], 0.0, lambda _: 7, preferred, ())
    assert result.wanting == {}
    assert result.unplaced == {7: [unplaced]}


def test_a_full_buffer_names_its_leader() -> None:
    """Enough undecoded batches: no fetch."""
    full = assigned(0)
    full.chunks.extend([memoryview(b"")] * CHUNKS_AHEAD)
    result = plan([full], 0.0, lambda _: 7, preferred, ())
    assert (result.full, result.wanting) == ({7}, {})


def test_postponed_partitions_give_the_time_to_wait() -> None:
    """The soonest counts; a look-up in progress and `reset="none"` need nothing."""
    result = plan(
        [
            assigned(0, retry_at=5.0),
            assigned(1, retry_at=3.0),
            assigned(2, position=None, placing=True),
            assigned(3, position=None, reset="none"),
        ],
        1.0,
        lambda _: 7,
        preferred,
        (),
    )
    assert result.wait_s == 2.0
    assert (result.wanting, result.unplaced, result.uncommitted, result.leaderless) == ({}, {}, [], [])


def test_a_fetch_names_the_positions_by_topic() -> None:
    """A partition that was read has the epoch of its last batch; a topic without an id is named."""
    positions = [
        assigned(0, fetch_position=5, fetched_epoch=2, leader_epoch=6, topic_id=UUID(int=7)),
        assigned(1, fetch_position=0),
    ]
    request = fetch_request(
        positions, max_wait_ms=1, min_bytes=2, max_bytes=3, partition_max_bytes=4, read_committed=True
    )
    (topic,) = request.topics
    assert (topic.topic, topic.topic_id) == ("t", UUID(int=7))
    assert [
        (
            asked.partition,
            asked.fetch_offset,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
            asked.partition_max_bytes,
        )
        for asked in topic.partitions
    ] == [(0, 5, 6, 2, 4), (1, 0, -1, -1, 4)]
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level) == (1, 2, 3, 1)
    (unnamed,) = fetch_request(
        positions[1:], max_wait_ms=1, min_bytes=2, max_bytes=3, partition_max_bytes=4, read_committed=False
    ).topics
    assert unnamed.topic_id == ZERO_UUID
