"""What one peer may not do with groups: take the memory of the coordinator, keep its loop from others, or have effects where it is refused.

Here: members of each protocol in numbers and sizes, answers that are multiplied by naming one group again and again,
and refused calls with what they may not change.
Not here: classic members with a megabyte each (`test_one_peer`), records of share groups (`test_share_groups`), and the
code of each wrong call by itself (`tests.integration.broker`).
"""

import socket
from collections import Counter
from typing import Any, Final

import pytest

from busway_protocol.compile import decode
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from busway_protocol.messages.groups_modern import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from busway_protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from tests.hostile.test_one_peer import MIB, answer, create, join, peers
from tests.hostile.test_share_groups import put
from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary

ELEMENTS: Final = 12_000
GREEDY, MODEST = "127.0.0.8", "127.0.0.2"


@pytest.fixture(scope="module", autouse=True)
def coordinator(hostile_broker: BuswayProcess) -> None:
    """It is there, and so is the topic `groups`."""
    create(hostile_broker, "groups")
    with peers(hostile_broker, 1) as (peer,):
        for kind in (0, 1):
            while (
                put(peer, FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]), 4).coordinators[0].error_code
            ):
                pass


def long_names(count: int) -> list[str]:
    """Names of topics, as long as they may be."""
    return [f"{number:06}-{'n' * 242}" for number in range(count)]


def consumer(group: str, topics: list[str]) -> ConsumerGroupHeartbeatRequest:
    """A consumer comes."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        topic_partitions=[],
    )


def sharer(group: str, topics: list[str]) -> ShareGroupHeartbeatRequest:
    """A member of a share group comes."""
    return ShareGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=0, subscribed_topic_names=topics)


def leave(peer: socket.socket, group: str, member_id: str) -> None:
    """What the member held is free for the next member."""
    request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)])
    assert put(peer, request, 3).error_code == 0


@pytest.mark.parametrize(("comes", "version"), [(consumer, 1), (sharer, 1)])
def test_members_that_read_everything(hostile_broker: BuswayProcess, canary: Canary, comes: Any, version: int) -> None:
    """Each subscribes to 12,000 topics with the longest names, in groups of their own; the host may have as much as it leaves free, and a
    member of another host comes in beside."""
    names = long_names(ELEMENTS)
    codes: Counter[int] = Counter()
    with peers(hostile_broker, 1, source=GREEDY) as (peer,), peers(hostile_broker, 1, source=MODEST) as (other,):
        texts = set()
        for number in range(14):
            response = put(peer, comes(f"{comes.__name__}-{number}", names), version)
            codes[response.error_code] += 1
            texts.add(response.error_message)
        assert codes.keys() == {0, ErrorCode.GROUP_MAX_SIZE_REACHED}
        assert any(f"host {GREEDY} has" in (text or "") for text in texts), texts
        assert put(other, comes(f"{comes.__name__}-modest", names[:10]), version).error_code == 0
        for number in range(14):
            leaves = comes(f"{comes.__name__}-{number}", names)
            leaves.member_epoch, leaves.subscribed_topic_names = -1, None
            put(peer, leaves, version)


def test_a_host_that_joins_without_end_leaves_room_to_others(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """Sixty members with a megabyte each, in groups of their own: about thirty get in, and one of another host beside them."""
    with peers(hostile_broker, 60, source=GREEDY) as many:
        for number, peer in enumerate(many):
            peer.sendall(join(f"greedy-{number}", bytes(MIB)))
        responses = [decode(JoinGroupResponse, 2, answer(peer), 4) for peer in many]
        codes = Counter(joined.error_code for joined in responses)
        assert codes.keys() == {0, ErrorCode.GROUP_MAX_SIZE_REACHED}
        assert codes[0] <= 32
        with peers(hostile_broker, 1, source=MODEST) as (other,):
            other.sendall(join("modest", bytes(MIB)))
            modest = decode(JoinGroupResponse, 2, answer(other), 4)
            assert modest.error_code == 0
            leave(other, "modest", modest.member_id)
        for number, (peer, joined) in enumerate(zip(many, responses, strict=True)):
            if not joined.error_code:
                leave(peer, f"greedy-{number}", joined.member_id)


def test_a_group_that_is_named_again_and_again(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """Its members hold megabytes, and one request names it twelve thousand times: it is described once, as with its offsets."""
    names = long_names(4_000)
    with peers(hostile_broker, 1, source="127.0.0.9") as (peer,):
        assert put(peer, consumer("again-consumer", names), 1).error_code == 0
        assert put(peer, sharer("again-share", names), 1).error_code == 0
        peer.sendall(join("again-classic", bytes(MIB)))
        joined = decode(JoinGroupResponse, 2, answer(peer), 4)
        assert joined.error_code == 0
        sync = SyncGroupRequest(
            group_id="again-classic",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(MIB))],
        )
        assert put(peer, sync, 3).error_code == 0
        for request, version in (
            (DescribeGroupsRequest(groups=["again-classic"] * ELEMENTS), 5),
            (
                ConsumerGroupDescribeRequest(
                    group_ids=["again-consumer"] * ELEMENTS, include_authorized_operations=False
                ),
                1,
            ),
            (ShareGroupDescribeRequest(group_ids=["again-share"] * ELEMENTS, include_authorized_operations=False), 1),
        ):
            (group,) = put(peer, request, version).groups
            assert (group.error_code, len(group.members)) == (0, 1)


def test_sessions_of_odd_lengths(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """They are refused, and leave no group behind that another client could see."""
    with peers(hostile_broker, 1, source=GREEDY) as (peer,), peers(hostile_broker, 1, source=MODEST) as (other,):
        for timeout_ms in (-(2**31), -1, 0, 1, 5_999, 1_800_001, 2**31 - 1):
            for version in (2, 5, 9):
                request = JoinGroupRequest(
                    group_id="odd",
                    session_timeout_ms=timeout_ms,
                    rebalance_timeout_ms=timeout_ms,
                    member_id="",
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
                )
                assert put(peer, request, version).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        (group,) = put(other, DescribeGroupsRequest(groups=["odd"]), 5).groups
        assert (group.error_code, group.group_state) == (0, "Dead")


def test_offsets_with_texts_that_are_too_long(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """A byte more than may be, five thousand times: none of them is stored, and what was stored before stays."""

    def commit(metadata: str, count: int, offset: int) -> set[int]:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
        topic = OffsetCommitRequestTopic(name="groups", partitions=[part] * count)
        response = put(peer, OffsetCommitRequest(group_id="texts", member_id="", topics=[topic]), 7)
        return {row.error_code for topic_response in response.topics for row in topic_response.partitions}

    with peers(hostile_broker, 1, source=GREEDY) as (peer,), peers(hostile_broker, 1, source=MODEST) as (other,):
        assert commit("é" * 2_048, 1, 1) == {0}
        assert commit("é" * 2_048 + "e", 5_000, 2) == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="texts", topics=None)])
        (group,) = put(other, request, 9).groups
        assert [(part.committed_offset, part.metadata) for part in group.topics[0].partitions] == [(1, "é" * 2_048)]
