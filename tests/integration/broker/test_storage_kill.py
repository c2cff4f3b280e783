"""A broker process killed in the middle of writing loses nothing that it acknowledged and writes nothing twice."""

import asyncio
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.patience import patient
from tests.support.programs import spawn_async

from busway_protocol.apis import ApiKey
from busway_protocol.compile import decode, encode
from busway_protocol.errors import ErrorCode
from busway_protocol.headers import RequestHeader
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from busway_protocol.records.batch import iter_batches, verify_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records
from busway_protocol.schema import info_of

NOW = 1_700_000_000_000
IN_FLIGHT = 5
KEYS = 40
PADDING = b"." * 16_000


class Connection:
    """Requests and answers, in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    @asynccontextmanager
    async def open(cls, address: str) -> AsyncIterator["Connection"]:
        """Connected to `host:port`, until the block ends."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()

    def send(self, message: object, key: ApiKey, version: int) -> None:
        """Put a request on its way."""
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="test")
        flexible = info_of(type(message)).flexible(version)
        frame = encode(header, 2 if flexible else 1) + encode(message, version)
        self._writer.write(struct.pack(">i", len(frame)) + frame)

    async def answer(self, kind: type, version: int) -> object:
        """The next answer."""
        async with asyncio.timeout(patient(20)):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            data = await self._reader.readexactly(size)
        return decode(kind, version, data, 5 if info_of(kind).flexible(version) else 4)


async def start(directory: Path, **settings: str) -> tuple[Process, str]:
    """A broker process on that data, and its address; settings have underscores for dots."""
    properties = directory / "server.properties"
    settings |= {
        "listeners": "PLAINTEXT://127.0.0.1:0", "log_dirs": f"{directory / 'data'}", "log_segment_bytes": "1048576"
    }  # fmt: skip
    properties.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()))
    process = await spawn_async(sys.executable, "-m", "busway_bus", str(properties), stdout=PIPE)
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    return process, line.split()[-1]


async def create(connection: Connection) -> None:
    """Create topic t with one partition."""
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    connection.send(CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, 4)
    await connection.answer(CreateTopicsResponse, 4)


def batch(number: int) -> bytes:
    """The number-th batch of an idempotent producer; forty keys take turns."""
    builder = BatchBuilder(producer_id=99, producer_epoch=0, base_sequence=number)
    builder.append(NOW, b"%d" % (number % KEYS), b"%d " % number + PADDING)
    return builder.build()


async def write(connection: Connection, process: Process, first: int, count: int) -> int:
    """Produce from `first` on, five under way; kill the broker after `count` answers; how many are acknowledged in all."""
    waiting: deque[int] = deque()
    following = first
    while True:
        while len(waiting) < IN_FLIGHT:
            data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(following))])
            connection.send(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data]), ApiKey.PRODUCE, 9)
            waiting.append(following)
            following += 1
        answer = await connection.answer(ProduceResponse, 9)
        (partition,) = answer.responses[0].partition_responses
        number = waiting.popleft()
        assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, number)
        if number == first + count - 1:
            process.kill()
            return number + 1


async def read(connection: Connection) -> dict[int, bytes]:
    """Every record's number by its offset, as a consumer reads them."""
    values: dict[int, bytes] = {}
    offset = 0
    while True:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10**6)
        topic = FetchTopic(topic="t", partitions=[partition])
        message = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10**6, topics=[topic])
        connection.send(message, ApiKey.FETCH, 12)
        answer = (await connection.answer(FetchResponse, 12)).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        if not answer.records:
            assert answer.high_watermark == offset
            return values
        for header, whole in iter_batches(answer.records):
            verify_crc(whole, header)
            for record in decode_records(whole):
                assert record.offset not in values
                values[record.offset] = (record.value or b"").partition(b" ")[0]
            offset = header.next_offset


@pytest.mark.hostile
@pytest.mark.slow
@pytest.mark.usefixtures("programs_end")
async def test_kill_nine_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """Three times killed with five requests under way: after each start the producer repeats what was not answered, and in
    the end every number is there once, at its offset."""
    acknowledged = 0
    for cycle in range(4):
        process, address = await start(tmp_path)
        try:
            async with Connection.open(address) as connection:
                if cycle == 0:
                    await create(connection)
                values = await read(connection)
                assert len(values) >= acknowledged
                assert values == {number: b"%d" % number for number in range(len(values))}
                if cycle < 3:
                    acknowledged = await write(connection, process, acknowledged, 150)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    assert acknowledged == 450
    assert len(list((tmp_path / "data" / "t-0").glob("*.log"))) > 5


@pytest.mark.hostile
@pytest.mark.slow
@pytest.mark.usefixtures("programs_end")
async def test_kill_nine_while_logs_are_compacted_loses_no_key(tmp_path: Path) -> None:
    """With cleanings all the time, wherever the kill strikes: of each key the newest acknowledged record or a later one is there,
    every record at its offset, and the log is a fraction of what was written."""
    acknowledged = 0
    settings = {
        "log_cleanup_policy": "compact", "log_cleaner_min_cleanable_ratio": "0.01", "log_retention_check_interval_ms": "20"
    }  # fmt: skip
    for cycle in range(5):
        process, address = await start(tmp_path, **settings)
        try:
            async with Connection.open(address) as connection:
                if cycle == 0:
                    await create(connection)
                values = await read(connection)
                assert values == {offset: b"%d" % offset for offset in values}
                for number in range(max(acknowledged - KEYS, 0), acknowledged):
                    assert number in values or any(
                        later in values for later in range(number + KEYS, acknowledged + 99, KEYS)
                    )
                if cycle < 4:
                    acknowledged = await write(connection, process, acknowledged, 250 + 7 * cycle)
                else:
                    async with asyncio.timeout(patient(60)):
                        while len(values) >= acknowledged / 2:  # until the cleaner has caught up
                            values = await read(connection)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
