"""What compaction leaves equals what Apache Kafka's own cleaner leaves of the same batches."""

import asyncio
import random
import struct
import time
from pathlib import Path

import pytest
from tests.support.apache_kafka import ApacheKafka
from tests.support.patience import patient

from busway.net.machine import OS
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.compile import decode, encode
from busway_protocol.errors import ErrorCode
from busway_protocol.headers import RequestHeader
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from busway_protocol.records.batch import BatchHeader, iter_batches, verify_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import Record, decode_records
from busway_protocol.schema import info_of

pytestmark = [pytest.mark.java, pytest.mark.slow]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
DAY = 86_400_000
BATCHES = 120
DEADLINE_S = patient(60)
CONFIGS = {"cleanup.policy": "compact", "delete.retention.ms": "1", "message.timestamp.after.max.ms": str(30 * DAY)}


async def call(bootstrap: str, message: object, key: ApiKey, version: int, answer: type) -> object:
    """One request on a connection of its own."""
    flexible = info_of(type(message)).flexible(version)
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="test")
    frame = encode(header, 2 if flexible else 1) + encode(message, version)
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(struct.pack(">i", len(frame)) + frame)
        async with asyncio.timeout(patient(20)):
            data = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    finally:
        writer.close()
    return decode(answer, version, data, 5 if info_of(answer).flexible(version) else 4)


async def create(bootstrap: str) -> None:
    """Create topic t with one partition."""
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    made = await call(bootstrap, CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, 4, CreateTopicsResponse)
    assert made.topics[0].error_code == ErrorCode.NONE


async def produce(bootstrap: str, batch: bytes) -> None:
    """Write one batch; a leader that is just being made is asked again."""
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    message = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = await call(bootstrap, message, ApiKey.PRODUCE, 9, ProduceResponse)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            return
        assert code.retriable, code
        assert time.monotonic() < deadline


async def read(bootstrap: str) -> list[tuple[BatchHeader, list[Record]]]:
    """Every batch with its records."""
    batches: list[tuple[BatchHeader, list[Record]]] = []
    offset = 0
    while True:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10**6)
        topic = FetchTopic(topic="t", partitions=[partition])
        message = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10**7, topics=[topic])
        answer = (await call(bootstrap, message, ApiKey.FETCH, 12, FetchResponse)).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        if not answer.records:
            assert answer.high_watermark == offset
            return batches
        for header, whole in iter_batches(answer.records):
            verify_crc(whole, header)
            batches.append((header, decode_records(whole)))
            offset = header.next_offset


def workload(cycles: int, now_ms: int) -> list[tuple[list[bytes], bytes]]:
    """For each cycle batches of several producers and codecs with repeated keys and tombstones, and one, eight days younger,
    that makes Kafka roll; some producers are silent after a while."""
    chosen = random.Random(20)
    sequences = {-1: 0, 41: 0, 42: 0, 43: 0}
    segments = []
    for cycle in range(cycles):
        begin_ms = now_ms + cycle * 8 * DAY
        batches = []
        for number in range(BATCHES):
            producer_id = chosen.choice([-1, 41, 42, 43] if number < BATCHES // 2 and cycle == 0 else [-1, 43])
            identity = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequences[producer_id]}
            builder = BatchBuilder(chosen.choice(CODECS), **(identity if producer_id >= 0 else {}))
            for _ in range(chosen.randint(1, 6)):
                value = None if chosen.random() < 0.15 else b"%d" % number * chosen.randint(0, 20)
                headers = [("h", b"%d" % number), ("null", None)] if chosen.random() < 0.3 else []
                builder.append(begin_ms + chosen.randint(0, 1000), b"key %d" % chosen.randint(0, 60), value, headers)
            sequences[producer_id] += builder.count
            batches.append(builder.build())
        last = BatchBuilder()
        last.append(begin_ms + 8 * DAY, b"the end", b"%d" % cycle)
        segments.append((batches, last.build()))
    return segments


async def cleaned(kafka: ApacheKafka, offset: int) -> None:
    """Return when Kafka's cleaner says that it has come to `offset`."""
    checkpoint: Path = kafka.data_dir / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + DEADLINE_S
    while not checkpoint.exists() or f"t 0 {offset}" not in checkpoint.read_text().splitlines():
        assert time.monotonic() < deadline, "Apache Kafka has not cleaned the topic"
        await asyncio.sleep(0.05)  # another process writes the file


def story(batches: list[tuple[BatchHeader, list[Record]]]) -> list[tuple[object, ...]]:
    """A log in a form to compare: everything but the checksum, the compressed size and the moment of the delete horizon."""
    return [
        (header._replace(crc=0, batch_length=0, base_timestamp=0, partition_leader_epoch=0), records)
        for header, records in batches
    ]


async def test_our_cleaner_leaves_what_kafkas_leaves() -> None:
    """The same batches, rolls and cleanings, the second behind the delete horizon of the first: headers, offsets, sequences,
    flags, records and empty batches are the same."""
    cycles = workload(2, OS.wall_ms())
    theirs, ours = [], []
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}
    with ApacheKafka(settings, heap="256m") as kafka:
        await create(kafka.bootstrap_servers)
        for batches, last in cycles:
            for batch in [*batches, last]:
                await produce(kafka.bootstrap_servers, batch)
            ends, _ = (await read(kafka.bootstrap_servers))[-1]
            await cleaned(kafka, ends.base_offset)
            theirs.append(story(await read(kafka.bootstrap_servers)))
    async with LocalCluster() as cluster:
        await create(cluster.bootstrap_servers)
        for batches, last in cycles:
            for batch in batches:
                await produce(cluster.bootstrap_servers, batch)
            assert cluster.node is not None
            replicas = cluster.node.services.replicas
            replicas.find("t", 0).log.roll(OS.wall_ms())
            await produce(cluster.bootstrap_servers, last)
            await replicas.logs.maintain()
            ours.append(story(await read(cluster.bootstrap_servers)))
    for number, left in enumerate(theirs):
        assert sum(len(records) for _, records in left) < BATCHES
        assert ours[number] == left
    tombstones = [sum(record.value is None for _, records in left for record in records) for left in theirs]
    assert 0 < tombstones[1] < tombstones[0] * 2
