"""What is no Kafka request ends its own connection, with one line in the log, and disturbs no other connection."""

import asyncio
import logging
import struct
from pathlib import Path

import aiokafka
import pytest
from tests.support.patience import patient

from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.compile import decode, encode
from busway_protocol.errors import ErrorCode
from busway_protocol.headers import RequestHeader
from busway_protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from busway_protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from busway_protocol.records.batch import computed_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.schema import info_of

pytestmark = pytest.mark.usefixtures("both_streams")


def request(message: object, key: ApiKey, version: int) -> bytes:
    """A whole frame."""
    header_version = 2 if info_of(type(message)).flexible(version) else 1
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="test")
    frame = encode(header, header_version) + encode(message, version)
    return struct.pack(">i", len(frame)) + frame


async def ask(cluster: LocalCluster, data: bytes) -> bytes:
    """Send bytes; the first answer without its size, or b"" where the connection was closed."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        async with asyncio.timeout(patient(5)):
            size = int.from_bytes(await reader.readexactly(4), "big")
            return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32), "TLS hello"),
        (struct.pack(">i", -5) + bytes(8), "negative frame size"),
        (struct.pack(">i", 0x7FFFFFFF), "socket.request.max.bytes"),
        (struct.pack(">i", 2) + b"\0\x03", "has no header"),
        (struct.pack(">ihhih", 10, 999, 0, 1, -1), "API key 999"),
        (struct.pack(">ihhih", 10, 3, 99, 1, -1), "version 99"),
        (struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0x7FFFFFFF), "announces"),
    ],
    ids=["http", "tls", "negative", "oversized", "stub", "unknown-api", "unknown-version", "lying-count"],
)
async def test_the_connection_ends_with_one_line_and_nobody_else_notices(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture, data: bytes, said: str
) -> None:
    """The line names the peer and the likely cause; a client beside it goes on."""
    canary = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    await canary.start()
    try:
        await canary.send_and_wait("canary", b"before")
        with caplog.at_level(logging.WARNING, logger="busway.server"):
            assert await ask(cluster, data) == b""
        (line,) = [record.getMessage() for record in caplog.records if record.name == "busway.server"]
        assert said in line
        assert "127.0.0.1" in line
        await canary.send_and_wait("canary", b"after")
    finally:
        await canary.stop()


async def test_an_unknown_apiversions_is_answered_in_version_0(cluster: LocalCluster) -> None:
    """A client of the future learns the range and comes again (KIP-511)."""
    answer = await ask(cluster, struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 99, 7, -1))
    response = decode(ApiVersionsResponse, 0, answer, 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.max_version) for api in response.api_keys] == [(ApiKey.API_VERSIONS, 4)]


async def test_a_bad_software_name_is_refused(cluster: LocalCluster) -> None:
    """INVALID_REQUEST, as Kafka answers."""
    bad = ApiVersionsRequest(client_software_name="-no-", client_software_version="1")
    answer = await ask(cluster, request(bad, ApiKey.API_VERSIONS, 3))
    assert decode(ApiVersionsResponse, 3, answer, 4).error_code == ErrorCode.INVALID_REQUEST


def batch(count: int = 1, padding: bytes = b"") -> bytearray:
    """A good batch."""
    builder = BatchBuilder()
    for number in range(count):
        builder.append(1_700_000_000_000, b"k", b"v%d" % number + padding)
    return bytearray(builder.build())


def damaged(position: int, value: bytes, *, count: int = 2) -> bytes:
    """A batch with other bytes at `position`, its checksum made right again where it covers them."""
    data = batch(count)
    data[position : position + len(value)] = value
    if position >= 21:
        data[17:21] = computed_crc(data).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (bytes(batch())[:-1] + b"\x01", ErrorCode.CORRUPT_MESSAGE),
        (damaged(8, struct.pack(">i", 10_000)), ErrorCode.INVALID_RECORD),
        (damaged(16, b"\x01"), ErrorCode.INVALID_RECORD),
        (damaged(22, b"\x20"), ErrorCode.INVALID_RECORD),
        (damaged(23, struct.pack(">i", 9)), ErrorCode.INVALID_RECORD),
        (damaged(57, struct.pack(">i", 7)), ErrorCode.INVALID_RECORD),
        (damaged(61, bytes(range(30, 47))), ErrorCode.INVALID_RECORD),
        (
            damaged(23, struct.pack(">i", 999) + bytes(batch())[27:57] + struct.pack(">i", 1_000)),
            ErrorCode.INVALID_RECORD,
        ),
        (damaged(22, b"\x05"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (damaged(22, b"\x06"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (damaged(22, b"\x07"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(batch() + batch()), ErrorCode.INVALID_RECORD),
        (b"short", ErrorCode.INVALID_RECORD),
        (damaged(27, struct.pack(">q", 2**60)), ErrorCode.INVALID_TIMESTAMP),
        (bytes(batch(padding=bytes(2_000_000))), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        "crc",
        "length",
        "magic",
        "control",
        "delta",
        "count",
        "garbage",
        "lie",
        "codec-5",
        "codec-6",
        "codec-7",
        "two",
        "short",
        "future",
        "large",
    ],
)
async def test_a_bad_batch_is_refused_and_the_log_unchanged(
    cluster: LocalCluster, records: bytes, code: ErrorCode
) -> None:
    """Kafka's error code for each lie; the offset of the next good batch shows that nothing was written."""

    async def produce(data: bytes) -> tuple[int, int]:
        message = ProduceRequest(
            acks=-1,
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=data)])],
        )
        answer = decode(ProduceResponse, 9, await ask(cluster, request(message, ApiKey.PRODUCE, 9)), 5)
        (partition,) = answer.responses[0].partition_responses
        return partition.error_code, partition.base_offset

    create = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])]
    )
    made = decode(CreateTopicsResponse, 4, await ask(cluster, request(create, ApiKey.CREATE_TOPICS, 4)), 4)
    assert made.topics[0].error_code == ErrorCode.NONE
    assert await produce(bytes(batch())) == (ErrorCode.NONE, 0)
    assert (await produce(records))[0] == code
    assert await produce(bytes(batch())) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("name", ["..", "a/b", "nul\0", "x" * 250, "", "ünï"])
async def test_topic_names_that_are_none_are_refused(cluster: LocalCluster, name: str) -> None:
    """INVALID_TOPIC_EXCEPTION, and nothing appears on disk."""
    before = sorted(path.name for path in Path(cluster.data_dir).iterdir())
    create = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])]
    )
    made = decode(CreateTopicsResponse, 4, await ask(cluster, request(create, ApiKey.CREATE_TOPICS, 4)), 4)
    assert made.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert sorted(path.name for path in Path(cluster.data_dir).iterdir()) == before
