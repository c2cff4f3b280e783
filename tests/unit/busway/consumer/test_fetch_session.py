"""What a consumer sends in its fetch session, and what it makes of the responses."""

from typing import Any
from uuid import UUID

import pytest

from busway import TopicPartition
from busway.consumer.fetch_session import FetchSession, SessionRequest
from busway.consumer.subscription import FetchPosition
from busway.errors import BrokerError
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

ID = UUID(int=7)


def at(partition: int, offset: int = 0, topic_id: UUID | None = ID) -> FetchPosition:
    """A partition of topic t to be fetched from."""
    return FetchPosition(TopicPartition("t", partition), "none", offset, offset, topic_id=topic_id)


def response(*partitions: int, session: int = 5, code: ErrorCode = ErrorCode.NONE, topic_id: UUID = ID) -> Any:
    """Of a broker; without records."""
    rows = [
        PartitionData(partition_index=partition, error_code=0, high_watermark=0, aborted_transactions=None)
        for partition in partitions
    ]
    topics = [FetchableTopicResponse(topic_id=topic_id, partitions=rows)] if rows else []
    return FetchResponse(error_code=code, session_id=session, responses=topics)


def shown(request: SessionRequest) -> tuple[int, int, list[int], list[int]]:
    """Id, epoch, partitions that are named, partitions that are forgotten."""
    forgotten = [partition for topic in request.forgotten for partition in topic.partitions]
    return request.session_id, request.epoch, [each.partition.partition for each in request.positions], forgotten


def test_later_requests_name_what_changed() -> None:
    """The first names all; a partition that is left out later is forgotten, a new one is added."""
    session, zero, first = FetchSession(), at(0), at(1)
    assert shown(session.request([zero, first])) == (0, 0, [0, 1], [])
    assert [partition.partition for partition, _ in session.pairs(response(0, 1))] == [0, 1]
    assert shown(session.request([zero, first])) == (5, 1, [], [])
    assert session.pairs(response()) == []
    first.fetch_position = 10
    assert shown(session.request([zero, first, at(2)])) == (5, 2, [1, 2], [])
    assert [partition.partition for partition, _ in session.pairs(response(1))] == [1]
    assert shown(session.request([first])) == (5, 3, [], [0, 2])


def test_a_new_leader_epoch_is_sent() -> None:
    """A session keeps what it was sent: the broker would refuse the old epoch for ever."""
    session, position = FetchSession(), at(0)
    session.request([position])
    session.pairs(response(0))
    position.leader_epoch = 3
    assert shown(session.request([position])) == (5, 1, [0], [])


def test_a_recreated_topic_is_another() -> None:
    """Its old id is forgotten and the new one named, in one request."""
    session, position = FetchSession(), at(0)
    session.request([position])
    session.pairs(response(0))
    position.topic_id = UUID(int=8)
    request = session.request([position])
    assert shown(request) == (5, 1, [0], [0])
    assert request.forgotten[0].topic_id == ID


def test_a_topic_without_an_id_begins_another_session() -> None:
    """A session has names or ids, never both; the old one is closed by its id."""
    session, position = FetchSession(), at(0)
    session.request([position])
    session.pairs(response(0))
    request = session.request([position, at(1, topic_id=None)])
    assert (shown(request), request.by_id) == ((5, 0, [0, 1], []), False)


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 5),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 5),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 5),
    ],
)
def test_a_refused_session_is_followed_by_another(code: ErrorCode, session_id: int) -> None:
    """The request names all partitions, and closes the old session if the broker may have it."""
    session, position = FetchSession(), at(0)
    session.request([position])
    session.pairs(response(0))
    session.request([position])
    with pytest.raises(BrokerError) as refused:
        session.pairs(response(session=0, code=code))
    assert refused.value.code is code
    assert shown(session.request([position])) == (session_id, 0, [0], [])


def test_a_request_without_a_response_is_followed_by_another_session() -> None:
    """Whether the broker counted the request is not known."""
    session, position = FetchSession(), at(0)
    session.request([position])
    session.pairs(response(0))
    session.request([position])
    session.failed()
    assert shown(session.request([position])) == (5, 0, [0], [])


def test_a_broker_without_room_has_no_session() -> None:
    """So the next request names all partitions again."""
    session, position = FetchSession(), at(0)
    session.request([position])
    assert len(session.pairs(response(0, session=0))) == 1
    assert shown(session.request([position])) == (0, 0, [0], [])


@pytest.mark.parametrize("given", [(), (0,), (0, 1, 2)])
def test_a_full_response_has_each_partition(given: tuple[int, ...]) -> None:
    """Else it does not count, for instance of a broker that throttles."""
    session = FetchSession()
    session.request([at(0), at(1)])
    assert session.pairs(response(*given)) == []
    assert shown(session.request([at(0), at(1)]))[:2] == (0, 0)


def test_a_partition_outside_of_the_session_ends_it() -> None:
    """Nothing of such a response counts; a topic id that is not known names no topic."""
    for strange in (response(0, 3), response(0, topic_id=UUID(int=9))):
        session, position = FetchSession(), at(0)
        session.request([position])
        session.pairs(response(0))
        session.request([position])
        assert session.pairs(strange) == []
        assert shown(session.request([position])) == (5, 0, [0], [])


def test_the_epoch_goes_on_at_one() -> None:
    """After the largest; 0 begins a session."""
    session, position = FetchSession(), at(0)
    session.request([position])
    session.pairs(response(0))
    session._epoch = 2**31 - 1
    session.request([position])
    session.pairs(response())
    assert session.request([position]).epoch == 1


def test_a_position_after_a_seek_is_not_the_requested_one() -> None:
    """Also if it leads to the same offset; one that was never requested neither."""
    session, position = FetchSession(), at(0, 4)
    session.request([position])
    assert session.is_current(position)
    position.seek(4)
    assert not session.is_current(position)
    assert not session.is_current(at(1))
