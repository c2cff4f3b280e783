"""A leader answers fetches of its snapshots, error by error as Kafka's `handleFetchSnapshotRequest`."""

from typing import Any

import pytest
from tests.unit.busway_bus.quorum.bench import SECOND, SETTINGS, THIRD, Bench, log

from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.leadership import CHECK_QUORUM_FACTOR
from busway_bus.quorum.log_view import LogView
from busway_bus.quorum.ready import ReadSnapshot, Request, Snapshotted
from busway_bus.quorum.snapshot_wire import snapshot_request
from busway_bus.quorum.states import Election, Role
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.metadata_snapshots import FetchSnapshotRequest, FetchSnapshotResponse

SNAPSHOT = SnapshotId(3, 1)
SIZE = 5_000


def leader(**values: Any) -> Bench:
    """A leader with a snapshot."""
    view = log(1, 1, 1)
    view.snapshotted({SNAPSHOT: SIZE}, 3)
    bench = Bench(view, **values)
    bench.become(Role.LEADER)
    return bench


def request(**values: Any) -> FetchSnapshotRequest:
    """A request in epoch 2."""
    values = {"position": 0, "max_bytes": 1_000, **values}
    return snapshot_request("here", SECOND, 2, SNAPSHOT, **values)


@pytest.mark.parametrize(
    ("position", "max_bytes", "read"),
    [
        (0, 1_000, 1_000),
        (4_500, 1_000, 500),
        (4_999, 2**31 - 1, 1),
        (0, 2**31 - 1, SIZE),
        (0, 0, 0),
    ],
)
def test_a_part_is_read_within_the_file_and_the_request(position: int, max_bytes: int, read: int) -> None:
    """The answer has the size, so that the other knows when it is done."""
    bench = leader()
    part = bench.fetch_snapshot(SNAPSHOT, position, max_bytes=max_bytes)
    assert (part.error_code, part.size, part.position) == (ErrorCode.NONE, SIZE, position)
    assert (part.snapshot_id.end_offset, part.snapshot_id.epoch) == SNAPSHOT
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (1, 2)
    assert bench.replies[-1].read == ReadSnapshot(SNAPSHOT, position, read)


def test_a_part_is_bounded_by_the_leader() -> None:
    """`controller.quorum.fetch.snapshot.max.bytes`."""
    bench = leader()
    bench.core.log.snapshotted({SNAPSHOT: 10 * SETTINGS.fetch_snapshot_max_bytes}, 3)
    bench.fetch_snapshot(SNAPSHOT, max_bytes=2**31 - 1)
    assert bench.replies[-1].read == ReadSnapshot(SNAPSHOT, 0, SETTINGS.fetch_snapshot_max_bytes)


@pytest.mark.parametrize(
    ("snapshot", "position", "values", "error"),
    [
        (SnapshotId(4, 1), 0, {}, ErrorCode.SNAPSHOT_NOT_FOUND),
        (SnapshotId(3, 2), 0, {}, ErrorCode.SNAPSHOT_NOT_FOUND),
        (SnapshotId(0, 0), 0, {}, ErrorCode.SNAPSHOT_NOT_FOUND),
        (SNAPSHOT, SIZE, {}, ErrorCode.POSITION_OUT_OF_RANGE),
        (SNAPSHOT, -1, {}, ErrorCode.POSITION_OUT_OF_RANGE),
        (SNAPSHOT, 0, {"max_bytes": -1}, ErrorCode.INVALID_REQUEST),
        (SNAPSHOT, 0, {"epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        (SNAPSHOT, 0, {"epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (SnapshotId(4, 1), SIZE, {"epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_what_cannot_be_read_has_its_error(
    snapshot: SnapshotId, position: int, values: dict[str, Any], error: ErrorCode
) -> None:
    """With the leader that is known; nothing is read."""
    bench = leader()
    part = bench.fetch_snapshot(snapshot, position, **values)
    assert part.error_code == error
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (1, 2)
    assert bench.replies[-1].read is None


def test_who_does_not_lead_has_no_snapshots_for_others() -> None:
    """NOT_LEADER_OR_FOLLOWER, with the leader."""
    view = log(1, 1, 1)
    view.snapshotted({SNAPSHOT: SIZE}, 3)
    bench = Bench(view)
    bench.become(Role.FOLLOWER)
    part = bench.fetch_snapshot(SNAPSHOT)
    assert (part.error_code, part.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


def test_another_cluster_or_log_is_refused() -> None:
    """INCONSISTENT_CLUSTER_ID and INVALID_REQUEST for the request as a whole, UNKNOWN_TOPIC_OR_PARTITION for the partition."""
    bench = leader()

    def answer(body: FetchSnapshotRequest) -> Any:
        bench.do(bench.core.step(Request(waiter="somebody", body=body), bench.now_ms))
        return bench.replies[-1].body

    elsewhere = request()
    elsewhere.cluster_id = "elsewhere"
    assert (answer(elsewhere).error_code, answer(elsewhere).topics) == (ErrorCode.INCONSISTENT_CLUSTER_ID, [])
    twice = request()
    twice.topics *= 2
    assert answer(twice).error_code == ErrorCode.INVALID_REQUEST
    other = request()
    other.topics[0].name, other.topics[0].partitions[0].partition = "other", 7
    (topic,) = answer(other).topics
    assert (topic.name, topic.partitions[0].index) == ("other", 7)
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_new_snapshot_replaces_the_old_ones() -> None:
    """The driver tells of what is on the disk; a fetch behind the new start gets the new id."""
    bench = leader()
    bench.propose()
    newer = SnapshotId(4, 2)
    bench.do(bench.core.step(Snapshotted(snapshots={newer: 9}, start_offset=4), bench.now_ms))
    assert bench.fetch_snapshot(SNAPSHOT).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert bench.fetch_snapshot(newer).size == 9
    assert bench.fetch(SECOND, log(1, 1, 1), 2).snapshot_id.end_offset == 4


def test_who_fetches_a_snapshot_keeps_its_leader() -> None:
    """A follower that downloads for long counts towards the majority; it acknowledges nothing."""
    bench = leader()
    for _ in range(20):
        bench.wait(int(SETTINGS.fetch_timeout_ms * CHECK_QUORUM_FACTOR) // 2)
        bench.fetch_snapshot(SNAPSHOT)
        assert bench.core.role is Role.LEADER
    assert bench.applied == []
    bench.wait(int(SETTINGS.fetch_timeout_ms * CHECK_QUORUM_FACTOR))
    assert bench.core.role is Role.RESIGNED


def test_a_part_that_was_held_back_is_not_sent_after_leadership() -> None:
    """It waits for the disk; then another leads, and the response says so."""
    bench = leader()
    bench.disk_works = False
    bench.propose()
    assert bench.fetch_snapshot(SNAPSHOT) is None
    bench.disk_works = True
    bench.tell_of_leader(THIRD, 3)
    bodies = [reply.body for reply in bench.replies]
    (part,) = [body.topics[0].partitions[0] for body in bodies if isinstance(body, FetchSnapshotResponse)]
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (3, 3)


def test_what_a_snapshot_covers_is_committed_from_the_start_on() -> None:
    """A leader that would cut it has lost its disk."""
    view = LogView(snapshots={SnapshotId(2, 1): 10}, start_offset=0)
    for offset in range(4):
        view.appended(1, offset, offset + 1)
    view.flushed(4)
    assert Bench(view, Election(epoch=1)).core.high_watermark == 2
