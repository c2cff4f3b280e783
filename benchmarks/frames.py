"""Requests as bytes, made once and sent again and again, so that no client's codec is in what is measured.

Here: whole frames of produce and fetch, and how an answer is read without being parsed: all batches of a load have the
same size, so how many came is a division.
Not here: sockets (`wire`). The versions are the last ones that are not flexible: their fields lie at fixed places, and
both brokers serve them.
"""

import struct
import time
from dataclasses import dataclass
from typing import Final

from busway_protocol.compile import encode
from busway_protocol.headers import RequestHeader
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.schema import info_of

PRODUCE_VERSION: Final = 8
FETCH_VERSION: Final = 11
_BATCH_HEADER_BYTES: Final = 61
_ANSWER: Final = struct.Struct(">iiihii")
"""Of a fetch: size, correlation id, throttle time, error, session, topics."""
_PARTITION: Final = struct.Struct(">ihqqqi")
"""Index, error, high watermark, last stable offset, start, aborted transactions; none of those in these loads."""
_RECORDS: Final = struct.Struct(">ii")
"""Preferred replica, size of the records."""
_FETCH_OFFSET: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Batch:
    """The one batch that a load consists of.

    Attributes:
        records: how many records are in it.
        data: its bytes.
        value_bytes: those of the records' values.
    """

    records: int
    data: bytes
    value_bytes: int


def batch(size: int, record_bytes: int = 100) -> Batch:
    """A batch of at most `size` bytes of equal records, of one at least; they hold no bytes that repeat."""
    filling = bytes((at * 167 + (at >> 8) * 13) & 0xFF for at in range(record_bytes))
    now_ms = time.time_ns() // 1_000_000  # older records would be deleted under the benchmark, by retention
    single = BatchBuilder()
    single.append(now_ms, None, filling)
    each = len(single.build()) - _BATCH_HEADER_BYTES
    count = max(1, (size - _BATCH_HEADER_BYTES) // (each + 2))
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(now_ms, None, filling)
    return Batch(count, bytes(builder.build()), count * record_bytes)


def request(message: object, version: int, correlation_id: int = 0) -> bytes:
    """A request with its size in front."""
    info = info_of(type(message))
    assert info.api_key is not None
    header = RequestHeader(
        request_api_key=info.api_key, request_api_version=version, correlation_id=correlation_id, client_id="bench"
    )
    body = encode(header, 2 if info.flexible(version) else 1) + encode(message, version)
    return struct.pack(">i", len(body)) + body


def produce(topic: str, partition: int, data: bytes) -> bytes:
    """Write one batch, acks=all."""
    partitions = [PartitionProduceData(index=partition, records=data)]
    topics = [TopicProduceData(name=topic, partition_data=partitions)]
    return request(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION)


class Fetch:
    """A fetch from one partition without a session, whose offset can be set.

    Args:
        max_bytes: of the answer.
        wait_ms: how long to wait for a byte.
    """

    def __init__(self, topic: str, partition: int, *, max_bytes: int, wait_ms: int) -> None:
        marker = 0x0123456789ABCDEF
        read = FetchPartition(partition=partition, fetch_offset=marker, partition_max_bytes=max_bytes)
        message = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[read])],
        )
        self._frame = bytearray(request(message, FETCH_VERSION))
        self._at = self._frame.index(_FETCH_OFFSET.pack(marker))
        self._name_bytes = len(topic.encode())
        self.head_bytes = _ANSWER.size + 2 + self._name_bytes + 4 + _PARTITION.size + _RECORDS.size

    def frame(self, offset: int) -> bytes:
        """The request for `offset`."""
        _FETCH_OFFSET.pack_into(self._frame, self._at, offset)
        return bytes(self._frame)

    def records_bytes(self, head: bytes | bytearray | memoryview) -> int:
        """How many bytes of records follow the first `head_bytes` of an answer; nothing else does.

        Raises:
            ValueError: the answer is another one, or tells an error.
        """
        size, _, _, error, _, topics = _ANSWER.unpack_from(head)
        _, refused, _, _, _, aborted = _PARTITION.unpack_from(head, _ANSWER.size + 2 + self._name_bytes + 4)
        records: int
        _, records = _RECORDS.unpack_from(head, self.head_bytes - _RECORDS.size)
        if error or refused or topics != 1 or aborted > 0:
            raise ValueError(f"the fetch was answered with error {error}, for the partition {refused}")
        if size + 4 != self.head_bytes + max(records, 0):
            raise ValueError(f"an answer of {size} bytes was said to hold {records} of records")
        return max(records, 0)
