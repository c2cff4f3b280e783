"""Fetch sessions: epochs, order, and who makes room for whom."""

from collections.abc import Iterable

import pytest

from busway_bus.replication.fetch_sessions import EVICTION_MS, FetchSessions, Session
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic


def fetch(
    partitions: Iterable[int] = (), *, session: int = 0, epoch: int = 0, forget: Iterable[int] = ()
) -> FetchRequest:
    """A fetch of topic t."""
    wanted = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1) for number in partitions]
    return FetchRequest(
        session_id=session,
        session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=wanted)] if wanted else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))] if forget else [],
    )


def opened(sessions: FetchSessions, partitions: int, now_ms: int = 0) -> Session:
    """A new session of so many partitions."""
    session, full = sessions.open(fetch(range(partitions)), by_id=False, now_ms=now_ms)
    assert full
    return session


def again(sessions: FetchSessions, session: Session, now_ms: int = 0, *, by_id: bool = False) -> ErrorCode:
    """What the next request of a session is answered."""
    try:
        sessions.open(fetch(session=session.id, epoch=session.epoch), by_id=by_id, now_ms=now_ms)
    except KafkaError as problem:
        return problem.code
    return ErrorCode.NONE


def test_what_gave_records_is_read_last() -> None:
    """Three partitions take turns, and one that is not wanted any more does not come back."""
    sessions = FetchSessions(10)
    session = opened(sessions, 3)
    a, b, c = list(session.partitions)
    session.gave(a)
    assert list(session.partitions) == [b, c, a]
    session.gave(b)
    assert list(session.partitions) == [c, a, b]
    sessions.open(fetch(session=session.id, epoch=1, forget=[2]), by_id=False, now_ms=0)
    session.gave(c)
    assert list(session.partitions) == [a, b]


def test_a_new_leader_epoch_repeats_the_high_watermark() -> None:
    """A follower ignores a response of an earlier epoch, and an idle partition would not send another."""
    sessions = FetchSessions(10)
    session = opened(sessions, 1)
    (cached,) = session.partitions.values()
    cached.high_watermark = 7
    request = fetch([0], session=session.id, epoch=1)
    sessions.open(request, by_id=False, now_ms=0)
    assert cached.high_watermark == 7
    request = fetch([0], session=session.id, epoch=2)
    request.topics[0].partitions[0].current_leader_epoch = 5
    sessions.open(request, by_id=False, now_ms=0)
    assert cached.high_watermark == -1


def test_a_full_cache_thrashes_nobody() -> None:
    """Of 1,001 clients one goes without a session; the others keep theirs."""
    sessions = FetchSessions(1_000)
    known = [opened(sessions, 2, now_ms=at) for at in range(1_000)]
    assert opened(sessions, 2, now_ms=1_000).id == 0
    assert opened(sessions, 500, now_ms=1_000).id == 0
    assert {again(sessions, session, 1_000) for session in known} == {ErrorCode.NONE}


def test_who_is_idle_for_two_minutes_makes_room() -> None:
    """The one unused for longest, whatever its size."""
    sessions = FetchSessions(2)
    idle, used = opened(sessions, 50), opened(sessions, 1)
    assert again(sessions, used, EVICTION_MS) is ErrorCode.NONE
    assert opened(sessions, 1, EVICTION_MS + 1).id
    assert again(sessions, idle, EVICTION_MS + 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert again(sessions, used, EVICTION_MS + 1) is ErrorCode.NONE


def test_a_larger_session_takes_the_place_of_a_smaller_old_one() -> None:
    """Where all are in use the smallest one goes, if it is two minutes old and the new one is larger."""
    sessions = FetchSessions(2)
    small, large = opened(sessions, 5), opened(sessions, 50)
    later = EVICTION_MS + 1
    for session in (small, large):
        assert again(sessions, session, later - 1) is ErrorCode.NONE
    assert opened(sessions, 5, later).id == 0
    assert opened(sessions, 6, later).id
    assert again(sessions, small, later) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert again(sessions, large, later) is ErrorCode.NONE
    assert opened(sessions, 5_000, later).id
    assert again(sessions, large, later) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_all_sessions_together_have_a_bound() -> None:
    """Partitions are counted as they come, go and are given up; beyond the bound a client goes without a session."""
    sessions = FetchSessions(1_000, partitions_max=100)
    first, second = opened(sessions, 60), opened(sessions, 40)
    assert opened(sessions, 1).id == 0
    sessions.open(fetch(session=first.id, epoch=1, forget=range(30)), by_id=False, now_ms=0)
    third = opened(sessions, 30)
    assert third.id
    with pytest.raises(KafkaError) as refused:
        sessions.open(fetch(range(41), session=second.id, epoch=1), by_id=False, now_ms=0)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(sessions, 40).id
    sessions.open(fetch(session=third.id, epoch=-1), by_id=False, now_ms=0)
    assert opened(sessions, 30).id
    assert opened(sessions, 1).id == 0


def test_names_and_ids_do_not_mix() -> None:
    """A session that was opened with names is not continued with ids."""
    sessions = FetchSessions(10)
    session = opened(sessions, 1)
    assert again(sessions, session, by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert again(sessions, session) is ErrorCode.NONE


def test_a_session_that_forgets_everything_ends() -> None:
    """Its last answer has no session, as in Kafka."""
    sessions = FetchSessions(10)
    session = opened(sessions, 1)
    last, _ = sessions.open(fetch(session=session.id, epoch=1, forget=[0]), by_id=False, now_ms=0)
    assert last.id == 0
    assert not len(sessions)
