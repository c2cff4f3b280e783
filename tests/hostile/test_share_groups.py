"""What one member of a share group may not do: keep the loop from others, or take the memory of the broker.

What it says of records in very many parts, sessions without number, and what becomes of all of them when their connection ends.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from busway_protocol.apis import api, response_header_version
from busway_protocol.compile import decode
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from busway_protocol.messages.share_groups import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.hostile.conftest import SETTINGS
from tests.hostile.test_one_peer import answer, batch, peers, produce
from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary, KafkaQuestion
from tests.support.raw_client import frame, key_of

VERSION = 2
RECORDS = 10_000
PARTS = 5_000
"""Of one request: each has two elements in its lists, and a request has 12,000 at most."""
PARTITIONS = 200
SESSIONS = 2_000
ACCEPT, RELEASE = 1, 2
COME_AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


@pytest.fixture
def broker() -> Iterator[BuswayProcess]:
    """A broker with as many records under way as a broker may allow."""
    process = BuswayProcess(
        {
            **SETTINGS,
            "share.coordinator.state.topic.num.partitions": "1",
            "group.share.max.partition.max.record.locks": str(RECORDS),
            "group.share.partition.max.record.locks": str(RECORDS),
        }
    )
    process.start()
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def watched(broker: BuswayProcess) -> Iterator[None]:
    """A canary sings."""
    ask = KafkaQuestion(broker.bootstrap_servers)
    with Canary(broker.pid, ask) as canary:
        yield
    canary.check()


def put(peer: socket.socket, message: object, version: int = VERSION) -> Any:
    """One question and its answer."""
    peer.sendall(frame(message, version))
    return taken(peer, message, version)


def taken(peer: socket.socket, message: object, version: int = VERSION) -> Any:
    """The answer to a question."""
    key = key_of(message)
    return decode(api(key).response, version, answer(peer, within_s=60), 4 + response_header_version(key, version))


def shared_topic(peer: socket.socket, name: str, partitions: int) -> UUID:
    """A topic, and a group `g` that begins with its first records; the topic's id."""
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    put(peer, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 5)
    starts = [AlterShareGroupOffsetsRequestPartition(partition_index=n, start_offset=0) for n in range(partitions)]
    topic = AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=starts)
    while True:
        put(peer, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        altered = put(peer, AlterShareGroupOffsetsRequest(group_id="g", topics=[topic]), 0)
        codes = {
            altered.error_code,
            *(partition_response.error_code for row in altered.responses for partition_response in row.partitions),
        }
        if codes == {0}:
            break
        assert codes - {0} <= COME_AGAIN | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, codes
    metadata = put(peer, MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
    return UUID(str(metadata.topics[0].topic_id))


def fetch(topic_id: UUID, member: str, partitions: Sequence[int], **more: Any) -> ShareFetchRequest:
    """The first fetch of a member."""
    wishes = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 50_000_000, "max_records": RECORDS, **more}
    wanted = [FetchPartition(partition_index=number, acknowledgement_batches=[]) for number in partitions]
    return ShareFetchRequest(
        group_id="g",
        member_id=member,
        share_session_epoch=0,
        batch_size=RECORDS,
        topics=[FetchTopic(topic_id=topic_id, partitions=wanted)],
        forgotten_topics_data=[],
        **wishes,
    )


def acknowledge(topic_id: UUID, member: str, epoch: int, acknowledged: Sequence[tuple[int, int, list[int]]]) -> Any:
    """What a member says, in as many parts."""
    batches = [
        AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=kinds) for a, b, kinds in acknowledged
    ]
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
    return ShareAcknowledgeRequest(
        group_id="g",
        member_id=member,
        share_session_epoch=epoch,
        topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
    )


def code(response: Any) -> int:
    """What was answered about the one partition."""
    assert response.error_code == 0, response.error_message
    return int(response.responses[0].partitions[0].error_code)


def acquire_all(peer: socket.socket, topic_id: UUID, member: str) -> int:
    """Acquire what there is, as soon as the share partition is loaded; the session's next epoch."""
    asked = fetch(topic_id, member, [0], max_wait_ms=5_000, min_bytes=1)
    got = put(peer, asked)
    acquired = got.responses[0].partitions[0].acquired_records
    assert (
        sum(acquired_range.last_offset - acquired_range.first_offset + 1 for acquired_range in acquired) == RECORDS
    ), got
    return 1


def test_ten_thousand_records_each_for_itself(broker: BuswayProcess) -> None:
    """Every second one is accepted, the others are released, in as many parts as a request may have; then again, until nothing is left;
    then the parts are of the same records, or overlap."""
    with peers(broker, 1) as (peer,):
        topic_id = shared_topic(peer, "many", 1)
        for _ in range(10):
            peer.sendall(produce("many", batch(RECORDS // 10, 10)))
            assert answer(peer)
        with watched(broker):
            epoch = acquire_all(peer, topic_id, "m")
            acknowledged = [(offset, offset, [ACCEPT if offset % 2 else RELEASE]) for offset in range(RECORDS)]
            assert code(put(peer, acknowledge(topic_id, "m", epoch, acknowledged[:PARTS]))) == 0
            assert code(put(peer, acknowledge(topic_id, "m", epoch + 1, acknowledged[PARTS:]))) == 0
            got = put(peer, fetch(topic_id, "n", [0], max_wait_ms=5_000, min_bytes=1))
            again = [
                (acquired_range.first_offset, acquired_range.last_offset)
                for acquired_range in got.responses[0].partitions[0].acquired_records
            ]
            assert again[0] == (0, 0)
            assert all(offset % 2 == 0 for offset, _ in again)
            kinds = [(first, last, [ACCEPT]) for first, last in again]
            same, overlapping = kinds[:1] * PARTS, [(offset, offset + 1, [ACCEPT]) for offset in range(PARTS)]
            assert code(put(peer, acknowledge(topic_id, "n", 1, same))) == ErrorCode.INVALID_RECORD_STATE
            assert code(put(peer, acknowledge(topic_id, "n", 2, overlapping))) == ErrorCode.INVALID_RECORD_STATE
            assert code(put(peer, acknowledge(topic_id, "n", 3, kinds))) == 0
            assert (
                code(put(peer, acknowledge(topic_id, "n", 4, kinds))) == 0
            )  # all that is before the start is done with anyhow


def test_sessions_without_number(broker: BuswayProcess) -> None:
    """One connection opens more sessions than there may be, each with all partitions of a topic or with one, and ends: others go on."""
    with peers(broker, 1) as (peer,):
        topic_id = shared_topic(peer, "wide", PARTITIONS)
    with watched(broker), peers(broker, 1) as (peer,):
        codes: list[int] = []
        for start in range(0, SESSIONS + 500, 100):
            asked = [
                fetch(topic_id, f"m{number}", range(PARTITIONS) if number == 0 else [number % PARTITIONS])
                for number in range(start, start + 100)
            ]
            peer.sendall(b"".join(frame(request, VERSION) for request in asked))
            codes += [taken(peer, request).error_code for request in asked]
    assert codes.count(0) == SESSIONS
    assert set(codes[SESSIONS:]) == {ErrorCode.SHARE_SESSION_LIMIT_REACHED}
    with watched(broker), peers(broker, 1) as (peer,):
        for _ in range(100):  # until the sessions of the connection before are gone
            if put(peer, fetch(topic_id, "late", [0])).error_code == 0:
                break
        else:
            raise AssertionError("sessions outlive their connection")
