"""What one peer may not do: take the memory of the broker, or keep its loop from others.

Each test does one hostile deed to a broker that has been through all the others; the canary beside it measures, and fails it.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from busway_protocol.apis import api, response_header_version
from busway_protocol.compile import decode
from busway_protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from busway_protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from busway_protocol.records.builder import BatchBuilder
from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary
from tests.support.patience import patient
from tests.support.raw_client import frame, key_of

MIB = 1024 * 1024


@contextmanager
def peers(broker: BuswayProcess, count: int, source: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """So many connections."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            made_from = socket.create_connection((host, int(port)), timeout=patient(30), source_address=(source, 0))
            peer = stack.enter_context(made_from)
            made.append(peer)
        yield made


def push(peer: socket.socket, data: bytes | memoryview, *, within_s: float) -> int:
    """Send as much as the broker takes until it takes nothing for so long; how much that was."""
    peer.settimeout(within_s)
    sent = 0
    try:
        while sent < len(data):
            sent += peer.send(memoryview(data)[sent : sent + MIB])
    except (TimeoutError, ConnectionError):
        pass
    return sent


def answer(peer: socket.socket, *, within_s: float = 30.0) -> bytes:
    """The next answer, without its size."""
    peer.settimeout(patient(within_s))
    (size,) = struct.unpack(">i", exactly(peer, 4))
    return exactly(peer, size)


def exactly(peer: socket.socket, count: int) -> bytes:
    """So many bytes."""
    data = bytearray()
    while len(data) < count:
        part = peer.recv(min(count - len(data), MIB))
        assert part, "the broker closed the connection"
        data += part
    return bytes(data)


def produce(topic: str, records: bytes) -> bytes:
    """A produce request with one batch for partition 0."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    return frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 9)


def ask(broker: BuswayProcess, message: object, version: int) -> Any:
    """One question on a connection of its own, and its answer."""
    key = key_of(message)
    with peers(broker, 1) as (peer,):
        peer.sendall(frame(message, version))
        return decode(api(key).response, version, answer(peer), 4 + response_header_version(key, version))


def create(broker: BuswayProcess, topic: str, **configs: str) -> None:
    """A topic of one partition."""
    settings = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=settings)
    made = ask(broker, CreateTopicsRequest(topics=[wanted]), 5)
    assert made.topics[0].error_code == 0, made.topics[0].error_message


def batch(count: int, size: int) -> bytes:
    """So many records of so many bytes."""
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(1_700_000_000_000, None, bytes(size))
    return builder.build()


def fetch(*topics: str, max_bytes: int, min_bytes: int = 1, wait_ms: int = 0, offset: int = 0) -> bytes:
    """A fetch without a session from partition 0 of some topics."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted]) for topic in topics],
    )
    return frame(request, 11)


def test_answers_that_nobody_reads_stay_in_the_files(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """200 clients ask for 50 MB each, twenty times over, and read nothing; one that reads gets all of it."""
    create(hostile_broker, "big", durability="os")
    with peers(hostile_broker, 1) as (producer,):
        for _ in range(52):
            producer.sendall(produce("big", batch(1_000, 1_000)))
            assert answer(producer)
    with peers(hostile_broker, 200) as many:
        for peer in many:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.sendall(fetch("big", max_bytes=50_000_000) * 20)
        with peers(hostile_broker, 1) as (reader,):
            reader.sendall(fetch("big", max_bytes=50_000_000))
            assert len(answer(reader)) > 49_000_000


def test_a_frame_that_is_announced_costs_what_arrives_of_it(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """2,000 connections announce 90 MiB each and send 54 bytes."""
    with peers(hostile_broker, 2_000) as many:
        for peer in many:
            peer.sendall(struct.pack(">i", 90 * MIB) + bytes(50))
        many[0].sendall(bytes(1))


def test_half_of_ten_large_requests_leaves_room_for_others(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """Ten connections send 90 of 99 MiB each and stop; a good client's requests of 1 MiB go on beside them."""
    body = bytes(90 * MIB)
    with peers(hostile_broker, 10) as many:
        for peer in many:
            peer.sendall(struct.pack(">i", 99 * MIB))
        for peer in many:
            push(peer, body, within_s=0.2)
        with peers(hostile_broker, 2) as good:
            for _ in range(10):
                for peer in good:
                    peer.sendall(produce("nowhere", bytes(MIB)))
                for peer in good:
                    assert answer(peer)


def join(group: str, metadata: bytes, rebalance_ms: int = 60_000) -> bytes:
    """A member that comes without an id."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=rebalance_ms,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    return frame(request, 2)


def test_what_members_hold_is_bounded(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """449 members bring a megabyte of metadata each, to one group and to groups of their own; a small one of another host is served."""
    ask(hostile_broker, FindCoordinatorRequest(key="g"), 2)
    with peers(hostile_broker, 449) as many:
        for number, peer in enumerate(many):
            peer.sendall(join("one" if number % 2 else f"own-{number}", bytes(MIB)))
        with peers(hostile_broker, 1, source="127.0.0.2") as (member,):
            member.sendall(join("small", b"x"))
            joined = decode(JoinGroupResponse, 2, answer(member), 4)
            assert joined.error_code == 0


PARTITIONS = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1_000) for at in range(10_000)]
BROKER = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
LARGEST = {
    "fetch": (FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=PARTITIONS)]), 12),
    "delete": (DeleteTopicsRequest(topic_names=[f"none-{at}" for at in range(10_000)], timeout_ms=1_000), 5),
    "create": (
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name="..", num_partitions=1, replication_factor=1, assignments=[], configs=[])
                for _ in range(10_000)
            ]
        ),
        5,
    ),
    "offsets": (OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(range(10_000)))]), 6),
    "configs": (DescribeConfigsRequest(resources=[BROKER] * 10_000, include_synonyms=True, include_documentation=True), 4),
    "groups": (DescribeGroupsRequest(groups=[f"none-{at}" for at in range(10_000)]), 5),
    "unknown": (MetadataRequest(topics=[MetadataRequestTopic(name=f"none-{at}") for at in range(10_000)], allow_auto_topic_creation=False), 9),
    "ends": (ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(10_000)])]), 7),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_request_that_is_read_keeps_nobody_waiting(
    hostile_broker: BuswayProcess, canary: Canary, name: str
) -> None:
    """10,000 partitions or topics in one request are answered, and others beside them."""
    message, version = LARGEST[name]
    with peers(hostile_broker, 1) as (peer,):
        peer.sendall(frame(message, version))
        assert answer(peer)


def test_a_request_of_millions_of_nothings_ends_its_connection(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """Eight megabytes that name four million topics without a name."""
    count = 4_000_001  # one more than there are, as compact lengths are written
    length = bytes([count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14 & 0x7F | 0x80, count >> 21])
    body = struct.pack(">hhih", 3, 9, 1, -1) + b"\0" + length + b"\1\0" * 4_000_000 + bytes(4)
    with peers(hostile_broker, 1) as (peer,):
        push(peer, struct.pack(">i", len(body)) + body, within_s=5.0)
        peer.settimeout(patient(30))
        with suppress(ConnectionResetError):
            assert not peer.recv(1)


def test_requests_without_end_take_turns(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """60,000 small requests at once, and forty that name thousands of topics, on one connection each."""
    small = struct.pack(">ihhih", 10, 18, 0, 1, -1) * 60_000
    names = [MetadataRequestTopic(name=f"none-{at}") for at in range(5_000)]
    large = frame(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9) * 40
    with peers(hostile_broker, 2) as many:
        for peer, data in zip(many, (small, large), strict=True):
            push(peer, data, within_s=0.5)
        assert answer(many[1])


def test_a_host_of_500_connections_gets_no_more_than_a_host_of_one(
    hostile_broker: BuswayProcess, canary: Canary
) -> None:
    """Each of them asks two hundred times for 200 topics, all at once; the canary is another host."""
    names = [MetadataRequestTopic(name=f"none-{at}") for at in range(200)]
    data = frame(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9) * 200
    with peers(hostile_broker, 500, source="127.0.0.2") as many:
        for peer in many:
            push(peer, data, within_s=0.0)
        assert answer(many[-1])
