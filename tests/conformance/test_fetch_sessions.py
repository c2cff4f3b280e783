"""Fetch sessions of the consumer are those of Kafka's FetchSessionHandler: the same requests after any responses."""

import random
import subprocess
from pathlib import Path
from uuid import UUID

import pytest
from tests.conformance.java_program import command_of
from tests.support.seeds import seed
from tools.jars import kafka_libs

from busway import TopicPartition
from busway.consumer.fetch_session import FetchSession
from busway.consumer.subscription import FetchPosition
from busway.errors import BrokerError
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

SOURCE = Path(__file__).parent / "java" / "FetchSessions.java"
SESSIONS = 400
REQUESTS = 12
PARTITIONS = 5
CODES = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


class Conversation:
    """One session through random requests and responses; the lines for Java, and our answers."""

    def __init__(self, drawn: random.Random) -> None:
        self._drawn = drawn
        self._session = FetchSession()
        self._positions = [FetchPosition(TopicPartition("t", number), "none", 0, 0) for number in range(PARTITIONS)]
        self._topic_id = 7
        self.lines = ["new"]
        self.ours: list[str] = []

    def step(self) -> None:
        """A request and its outcome."""
        drawn = self._drawn
        if drawn.random() < 0.1:
            self._topic_id += 1
        wanted = [position for position in self._positions if drawn.random() < 0.8]
        for position in wanted:
            position.topic_id = UUID(int=self._topic_id)
            if drawn.random() < 0.3:
                position.fetch_position += 1
        words = [f"{each.partition.partition}:{each.fetch_position}:{self._topic_id}" for each in wanted]
        self.lines.append(" ".join(["request", *words]))
        request = self._session.request(wanted)
        send = sorted(each.partition.partition for each in request.positions)
        forget = sorted(f"{number}:{topic.topic_id.int}" for topic in request.forgotten for number in topic.partitions)
        self.ours.append(f"{request.session_id} {request.epoch} {_listed(send)} {_listed(forget)}")
        if drawn.random() < 0.1:
            self.lines.append("failed")
            self._session.failed()
            return
        self._respond([each.partition.partition for each in wanted], is_full=request.epoch == 0)

    def _respond(self, asked: list[int], *, is_full: bool) -> None:
        drawn = self._drawn
        code = drawn.choice(CODES) if drawn.random() < 0.15 else ErrorCode.NONE
        session_id = drawn.choice((0, 3, 3, 3))
        topic_id = self._topic_id + (drawn.random() < 0.05)
        changed = [number for number in asked if is_full or drawn.random() < 0.4]
        if drawn.random() < 0.1:
            changed = sorted({*changed, drawn.randrange(PARTITIONS)})
        if changed and drawn.random() < 0.05:
            changed.pop()
        self.lines.append(" ".join(map(str, ("response", int(code), session_id, topic_id, *changed))))
        rows = [
            PartitionData(partition_index=number, error_code=0, high_watermark=0, aborted_transactions=None)
            for number in changed
        ]
        topics = [FetchableTopicResponse(topic_id=UUID(int=topic_id), partitions=rows)] if rows else []
        try:
            pairs = self._session.pairs(FetchResponse(error_code=code, session_id=session_id, responses=topics))
        except BrokerError:
            self.ours.append("false")
            return
        # Java says whether the response fits; ours has no partitions then.
        is_empty = not changed and not (is_full and asked)
        self.ours.append("true" if pairs or is_empty else "false")


def _listed(values: list[int] | list[str]) -> str:
    return f"[{', '.join(map(str, values))}]"


@pytest.mark.java
def test_requests_follow_responses_as_javas_do() -> None:
    """Ids and epochs, partitions to send and to forget, through errors, recreated topics and responses that do not fit."""
    drawn = random.Random(seed(1))
    conversations = [Conversation(drawn) for _ in range(SESSIONS)]
    for conversation in conversations:
        for _ in range(REQUESTS):
            conversation.step()
    lines = [line for conversation in conversations for line in conversation.lines]
    done = subprocess.run(
        command_of(SOURCE, kafka_libs()), input="\n".join(lines), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = iter(done.stdout.splitlines())
    for number, conversation in enumerate(conversations):
        theirs = [next(answers) for _ in conversation.ours]
        assert conversation.ours == theirs, (number, conversation.lines)
