"""A follower's requests in an incremental session: what they name, and when a new session begins."""

from uuid import UUID

from busway_bus.replication.fetcher_session import EPOCH_MAX, FetcherSession, FetchLimits
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse

IDS = {"a": UUID(int=10), "b": UUID(int=11)}


def wanted(offset: int = 0, partition: int = 0) -> FetchPartition:
    return FetchPartition(partition=partition, current_leader_epoch=1, fetch_offset=offset, partition_max_bytes=1)


def next_request(session: FetcherSession) -> FetchRequest:
    return session.request(replica_id=2, broker_epoch=7)


def named(request: FetchRequest) -> dict[str, list[tuple[int, int]]]:
    return {
        topic.topic: [(partition.partition, partition.fetch_offset) for partition in topic.partitions]
        for topic in request.topics
    }


def response(session_id: int, code: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    return FetchResponse(error_code=code, session_id=session_id, responses=[])


def opened() -> FetcherSession:
    session = FetcherSession(FetchLimits())
    session.put(("a", 0), IDS["a"], wanted(5))
    session.put(("b", 0), IDS["b"], wanted(6))
    next_request(session)
    assert session.answered(response(42))
    return session


def test_the_first_request_has_all_and_later_ones_what_changed() -> None:
    """Each carries the follower's id and epoch, the session and its next epoch."""
    session = FetcherSession(FetchLimits())
    session.put(("a", 0), IDS["a"], wanted(5))
    first = next_request(session)
    assert (first.session_id, first.session_epoch, named(first)) == (0, 0, {"a": [(0, 5)]})
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (2, 7)
    assert session.answered(response(42))
    session.put(("a", 0), IDS["a"], wanted(5))  # as before
    session.put(("b", 0), IDS["b"], wanted(6))
    second = next_request(session)
    assert (second.session_id, second.session_epoch, named(second)) == (42, 1, {"b": [(0, 6)]})
    assert session.answered(response(42))
    assert (next_request(session).session_epoch, len(session)) == (2, 2)


def test_partitions_are_forgotten_by_name() -> None:
    """One that came back with the same id is updated instead; one with a new id is both."""
    session = opened()
    session.remove(("a", 0))
    session.remove(("b", 0))
    session.put(("b", 0), IDS["b"], wanted(9))
    request = next_request(session)
    assert [(topic.topic, topic.partitions) for topic in request.forgotten_topics_data] == [("a", [0])]
    assert named(request) == {"b": [(0, 9)]}
    session.answered(response(42))
    session.put(("b", 0), UUID(int=99), wanted(0))
    again = next_request(session)
    assert [(topic.topic_id, topic.partitions) for topic in again.forgotten_topics_data] == [(IDS["b"], [0])]
    assert [topic.topic_id for topic in again.topics] == [UUID(int=99)]


def test_after_a_failure_a_new_session_begins_and_closes_the_old() -> None:
    """The leader may have advanced it or not."""
    session = opened()
    session.put(("a", 0), IDS["a"], wanted(8))
    next_request(session)
    session.failed()
    request = next_request(session)
    assert (request.session_id, request.session_epoch) == (42, 0)
    assert named(request) == {"a": [(0, 8)], "b": [(0, 6)]}


def test_a_session_that_the_leader_does_not_know_is_not_closed() -> None:
    """It has dropped it. An error of another kind closes it; both name all partitions again."""
    for code, session_id in ((ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 42)):
        session = opened()
        next_request(session)
        assert not session.answered(response(0, code))
        request = next_request(session)
        assert (request.session_id, request.session_epoch) == (session_id, 0)
        assert named(request) == {"a": [(0, 5)], "b": [(0, 6)]}


def test_a_leader_without_sessions_gets_full_requests() -> None:
    """It answers with the session 0."""
    session = FetcherSession(FetchLimits())
    session.put(("a", 0), IDS["a"], wanted(5))
    for _ in range(3):
        request = next_request(session)
        assert (request.session_id, request.session_epoch, named(request)) == (0, 0, {"a": [(0, 5)]})
        assert session.answered(response(0))


def test_the_last_epoch_is_followed_by_the_first() -> None:
    """0 would open a new session."""
    session = opened()
    session._epoch = EPOCH_MAX
    assert next_request(session).session_epoch == EPOCH_MAX
    session.answered(response(42))
    assert next_request(session).session_epoch == 1
