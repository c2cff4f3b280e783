"""Messages of the formats before record batches: refused as Kafka 4 does, and what comes beside them is written."""

import struct
import zlib

import pytest
from tests.support.raw_client import RawClient

from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
TRANSACTIONAL, ZSTD = b"\x10", b"\x04"
"""What a batch has in the byte where an old message has its key, or its time."""


def message(magic: int, value: bytes, *, key: bytes = b"k", time: int = NOW) -> bytes:
    """One message of format 0 or 1, with the checksum that it had then."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", time) if magic else b"")
    body += struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    body = zlib.crc32(body).to_bytes(4, "big") + body
    return struct.pack(">qi", 0, len(body)) + body


def like(flags: bytes, magic: int) -> bytes:
    """A message whose byte 22, where a batch has its attributes, is `flags`."""
    made = message(magic, bytes(100), key=flags, time=flags[0] << 24)
    assert made[22:23] == flags
    return made


def batch() -> bytes:
    """One record."""
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"v")
    return builder.build()


async def produce(client: RawClient, *partitions: bytes, version: int) -> list[tuple[int, int]]:
    """The codes and offsets of what was sent to the partitions from 0 on."""
    data = [PartitionProduceData(index=number, records=records) for number, records in enumerate(partitions)]
    topics = [TopicProduceData(name="t", partition_data=data)]
    answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics), version)
    return [(each.error_code, each.base_offset) for each in answer.responses[0].partition_responses]


@pytest.mark.parametrize("version", [3, 6, 9, 12])
@pytest.mark.parametrize("magic", [0, 1])
async def test_old_messages_are_refused_and_the_log_unchanged(cluster: LocalCluster, magic: int, version: int) -> None:
    """INVALID_RECORD whatever their bytes would mean in a batch, one or several, longer or shorter than a batch's header; the batch for
    another partition of the request is written."""
    refused = [
        message(magic, b""),
        message(magic, bytes(100)),
        message(magic, bytes(100)) * 3,
        like(TRANSACTIONAL, magic),
        like(ZSTD, magic),
    ]
    async with RawClient(cluster.bootstrap_servers) as client:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        made = await client.ask(CreateTopicsRequest(topics=[topic]), 5)
        assert made.topics[0].error_code == ErrorCode.NONE
        for number, records in enumerate(refused):
            placed = await produce(client, records, batch(), version=version)
            assert placed == [(ErrorCode.INVALID_RECORD, -1), (ErrorCode.NONE, number)], number
        assert await produce(client, batch(), version=version) == [(ErrorCode.NONE, 0)]
