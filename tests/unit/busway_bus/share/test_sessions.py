"""Share sessions: epochs, what comes and goes, and how many there may be."""

from uuid import UUID

import pytest

from busway_bus.kernel.resets import Begin, Reset, parse_reset
from busway_bus.share.sessions import ShareSessions, TopicIdPartition
from busway_protocol.errors import ErrorCode, KafkaError

TOPIC = UUID(int=1)


def places(*numbers: int) -> list[TopicIdPartition]:
    """Partitions of a topic."""
    return [(TOPIC, number) for number in numbers]


def refused(sessions: ShareSessions, member: str, epoch: int, *numbers: int) -> ErrorCode:
    """With what a request is refused."""
    with pytest.raises(KafkaError) as problem:
        sessions.resume("g", member, epoch, places(*numbers))
    return problem.value.code


def test_epochs() -> None:
    """Each request has the next one, and after the last comes 1."""
    sessions = ShareSessions(10)
    assert refused(sessions, "a", 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    session = sessions.open("g", "a", places(0))
    assert refused(sessions, "a", 2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.resume("g", "a", 1).epoch == 2
    session.epoch = 2**31 - 1
    assert sessions.resume("g", "a", 2**31 - 1).epoch == 1
    assert sessions.close(session)
    assert not sessions.close(session)


def test_partitions_come_and_go() -> None:
    """New ones are returned once; what has given comes last."""
    sessions = ShareSessions(10)
    session = sessions.open("g", "a", places(0, 1))
    sessions.resume("g", "a", 1, places(1, 2), places(0, 7))
    assert session.partitions == {(TOPIC, 1): False, (TOPIC, 2): True}
    session.gave((TOPIC, 1))
    session.gave((TOPIC, 9))
    assert list(session.partitions) == places(2, 1)


def test_bounds() -> None:
    """Sessions and their partitions are counted; who is refused keeps what there was."""
    sessions = ShareSessions(2, partitions_max=3)
    sessions.open("g", "a", places(0, 1))
    with pytest.raises(KafkaError) as problem:
        sessions.open("g", "b", places(0, 1))
    assert problem.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.open("g", "b", places(0))
    assert refused(sessions, "a", 1, 5) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.resume("g", "a", 1, places(5), places(0))
    with pytest.raises(KafkaError):
        sessions.open("h", "c", [])
    again = sessions.open("g", "a", places(0, 1))
    assert (len(sessions), sessions.members("g")) == (2, 2)
    sessions.close(again)
    assert (len(sessions), sessions.members("g"), sessions.members("h")) == (1, 1, 0)


def test_who_is_refused_another_session_keeps_the_one_it_has() -> None:
    """The room that it takes is counted as free for the new one, and is not given up before that is certain."""
    sessions = ShareSessions(1, partitions_max=3)
    old = sessions.open("g", "a", places(0, 1))
    with pytest.raises(KafkaError) as problem:
        sessions.open("g", "a", places(0, 1, 2, 3))
    assert problem.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert (len(sessions), sessions.members("g"), sessions.find("g", "a")) == (1, 1, old)
    assert sessions.resume("g", "a", 1, places(2)) is old
    assert refused(sessions, "a", 2, 3) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    new = sessions.open("g", "a", places(4, 5, 6))
    assert (len(sessions), sessions.members("g"), sessions.find("g", "a")) == (1, 1, new)
    assert not sessions.close(old)
    assert sessions.close(new)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latest", Reset(Begin.LATEST)),
        ("EARLIEST", Reset(Begin.EARLIEST)),
        ("by_duration:PT1H", Reset(Begin.BY_DURATION, 3_600_000)),
        ("by_duration:P1DT2H3M4.05S", Reset(Begin.BY_DURATION, 93_784_050)),
    ],
)
def test_resets(text: str, expected: Reset) -> None:
    """As `java.time.Duration` writes them."""
    assert parse_reset(text) == expected


@pytest.mark.parametrize(
    "text", ["", "none", "latest:PT1H", "by_duration", "by_duration:", "by_duration:P", "by_duration:P1DT"]
)
def test_resets_that_say_nothing(text: str) -> None:
    """They are refused with what may be written."""
    with pytest.raises(ValueError, match="by_duration"):
        parse_reset(text)
