"""The format `busway` beside Spark's own Kafka source: the same rows, the same refusals."""

import asyncio
import datetime as dt
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as ForeignProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ForeignTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.support.apache_kafka import ApacheKafka
from tests.support.patience import patient

from busway import Admin, ConnectionFailed, Producer, TopicPartition
from busway_spark.errors import explain
from busway_spark.offsets import Asker, position_options
from busway_spark.source import BatchReader, DataLoss, OffsetRange, Settings, StreamReader, register

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
AT = 1_770_000_000_000


def options(servers: str, topic: str, **more: str) -> dict[str, str]:
    """What both sources are given."""
    return {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "includeHeaders": "true",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        **more,
    }


def read(spark: Any, source: str, servers: str, topic: str, **more: str) -> list[Any]:
    """All rows by one source, in order."""
    frame = spark.read.format(source).options(**options(servers, topic, **more)).load()
    return frame.orderBy("topic", "partition", "offset").collect()


def run_stream(spark: Any, servers: str, topic: str, folder: Path, **more: str) -> Any:
    """A stream of the busway source into Parquet, to the end."""
    frame = spark.readStream.format("busway").options(**options(servers, topic, **more)).load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "rows"))
    query.awaitTermination()
    return query


def offsets_in(spark: Any, folder: Path) -> list[tuple[int, int]]:
    """What a stream wrote."""
    rows = spark.read.parquet(str(folder / "rows")).select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_equal_those_of_the_kafka_source(bus: Any, spark: Any, codec: str) -> None:
    """Keys, values, headers and times of every codec, in 3 partitions, with nulls, empty values and large ones."""
    bus.topic("t", 3)
    records = [
        (
            None if number % 5 == 0 else b"k%d" % number,
            (None, b"", b"v%d" % number, b"x" * 5000)[number % 4],
            {
                "partition": number % 3,
                "timestamp_ms": AT + number * 7,
                "headers": [("a", b"1"), ("a", None)] if number % 9 == 0 else (),
            },
        )
        for number in range(500)
    ]
    bus.send("t", records, compression_type=codec)
    ours = read(spark, "busway", bus.bootstrap_servers, "t", minPartitions="7")
    assert len(ours) == 500
    assert ours == read(spark, "kafka", bus.bootstrap_servers, "t")


def test_ranges_by_offset_and_by_time_equal_those_of_the_kafka_source(bus: Any, spark: Any) -> None:
    """Both ends by offset, by -2 and -1, and by a moment."""
    bus.topic("t", 2)
    bus.send(
        "t",
        [(None, b"%d" % number, {"partition": number % 2, "timestamp_ms": AT + number * 1000}) for number in range(40)],
    )
    ranges = [
        {
            "startingOffsets": json.dumps({"t": {"0": 5, "1": -2}}),
            "endingOffsets": json.dumps({"t": {"0": -1, "1": 7}}),
        },
        {"startingTimestamp": str(AT + 10_000), "endingTimestamp": str(AT + 30_000)},
    ]
    for chosen in ranges:
        ours = read(spark, "busway", bus.bootstrap_servers, "t", **chosen)
        assert 0 < len(ours) < 40
        assert ours == read(spark, "kafka", bus.bootstrap_servers, "t", **chosen)


@pytest.fixture
def kafka() -> Iterator[ApacheKafka]:
    """Apache Kafka, which has transactions."""
    with ApacheKafka({"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}) as broker:
        yield broker


@pytest.mark.java
@pytest.mark.foreign
def test_transactions_on_apache_kafka(kafka: ApacheKafka, spark: Any) -> None:
    """Aborted records and control records are left out, what is behind an open transaction waits; without isolation aborted records are seen."""
    servers = kafka.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([ForeignTopic("t", 1, 1)])["t"].result(patient(30))
    writer = ForeignProducer({"bootstrap.servers": servers, "transactional.id": "one"})
    writer.init_transactions(30)
    for number, commit in enumerate([True, False, True, False]):
        writer.begin_transaction()
        for step in range(10):
            writer.produce("t", b"%d-%d" % (number, step))
        writer.flush()
        (writer.commit_transaction if commit else writer.abort_transaction)(30)
    opened = ForeignProducer({"bootstrap.servers": servers, "transactional.id": "two"})
    opened.init_transactions(30)
    opened.begin_transaction()
    opened.produce("t", b"open")
    opened.flush()
    ours = read(spark, "busway", servers, "t")
    assert {bytes(row.value)[:1] for row in ours} == {b"0", b"2"}
    assert len(ours) == 20
    assert ours == read(spark, "kafka", servers, "t")
    everything = {"kafka.isolation.level": "read_uncommitted"}
    assert len(read(spark, "busway", servers, "t", **everything)) == 41
    assert read(spark, "busway", servers, "t", **everything) == read(spark, "kafka", servers, "t", **everything)
    opened.abort_transaction(30)


def test_a_stream_takes_no_more_than_it_may_and_goes_on_from_its_checkpoint(
    bus: Any, spark: Any, tmp_path: Path
) -> None:
    """maxOffsetsPerTrigger bounds each micro-batch, availableNow ends at the end, a second run reads what came since and nothing twice."""
    bus.topic("t", 2)
    bus.send("t", [(None, b"x", {"partition": number % 2}) for number in range(100)])
    query = run_stream(spark, bus.bootstrap_servers, "t", tmp_path, maxOffsetsPerTrigger="30")
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sum(sizes) == 100
    assert max(sizes) <= 32
    bus.send("t", [(None, b"x", {"partition": 1}) for _ in range(5)])
    run_stream(spark, bus.bootstrap_servers, "t", tmp_path)
    assert offsets_in(spark, tmp_path) == sorted((number % 2, number // 2) for number in range(100)) + [
        (1, offset) for offset in range(50, 55)
    ]


def test_queries_that_begin_leave_the_shape_of_what_they_share(bus: Any, spark: Any, tmp_path: Path) -> None:
    """The environment of workers, one map for all queries of a session: two that put a new name into it at once would break it."""
    register(spark)
    bus.topic("environment")
    source = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("busway")
    shared = source.dataSourceCls().envVars()
    before = sorted(shared.keySet())
    run_stream(spark, bus.bootstrap_servers, "environment", tmp_path)
    assert sorted(shared.keySet()) == before


def test_partitions_added_later_are_read_from_their_beginning(bus: Any, spark: Any, tmp_path: Path) -> None:
    """A stream that goes on finds the new partition."""
    bus.topic("t", 1)
    bus.send("t", [(None, b"x")])
    run_stream(spark, bus.bootstrap_servers, "t", tmp_path)

    async def widen() -> None:
        async with Admin(bus.bootstrap_servers) as admin:
            await admin.create_partitions({"t": 2})

    bus.run(widen())
    bus.send("t", [(None, b"y", {"partition": 1})])
    run_stream(spark, bus.bootstrap_servers, "t", tmp_path)
    assert offsets_in(spark, tmp_path) == [(0, 0), (1, 0)]


def delete_before(bus: Any, offset: int) -> None:
    """As retention does."""

    async def delete() -> None:
        async with Admin(bus.bootstrap_servers) as admin:
            await admin.delete_records({TopicPartition("t", 0): offset})

    bus.run(delete())


def test_deleted_records_are_an_error_or_passed_over(bus: Any, spark: Any, tmp_path: Path) -> None:
    """A checkpoint before the log's beginning fails with the partition and both offsets; with failOnDataLoss=false the rest is read."""
    bus.topic("t", 1)
    bus.send("t", [(None, b"x") for _ in range(5)])
    run_stream(spark, bus.bootstrap_servers, "t", tmp_path)
    bus.send("t", [(None, b"x") for _ in range(10)])
    delete_before(bus, 9)
    with pytest.raises(Exception, match=r"\w") as failed:
        run_stream(spark, bus.bootstrap_servers, "t", tmp_path)
    reason = explain(failed.value)
    assert reason.startswith("t-0 begins at offset 9, but 5 is next to read: records were deleted")
    assert "\n" not in reason
    run_stream(spark, bus.bootstrap_servers, "t", tmp_path, failOnDataLoss="false")
    assert offsets_in(spark, tmp_path) == [(0, offset) for offset in [0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14]]


def test_records_deleted_while_a_task_reads_cost_no_others(bus: Any) -> None:
    """Retention passes between the plan and the task: an error, or with failOnDataLoss=false all that is still there."""
    bus.topic("t", 1)
    bus.send("t", [(None, b"x") for _ in range(10)])
    given = options(bus.bootstrap_servers, "t")
    (planned,) = BatchReader(Settings.of(given, default_start="earliest")).partitions()
    delete_before(bus, 4)
    with pytest.raises(DataLoss, match="retention deleted it"):
        list(BatchReader(Settings.of(given, default_start="earliest")).read(planned))
    tolerant = BatchReader(Settings.of({**given, "failOnDataLoss": "false"}, default_start="earliest"))
    assert [at for batch in tolerant.read(planned) for at in batch.column("offset").to_pylist()] == [4, 5, 6, 7, 8, 9]


def test_a_topic_made_anew_is_noticed(bus: Any, spark: Any, tmp_path: Path) -> None:
    """The offsets of the checkpoint are beyond the end of the new topic: an error, not silence."""
    bus.topic("t", 1)
    bus.send("t", [(None, b"x") for _ in range(5)])
    run_stream(spark, bus.bootstrap_servers, "t", tmp_path)

    created_again(bus, 1)
    bus.send("t", [(None, b"x")])
    with pytest.raises(Exception, match="recreated") as failed:
        run_stream(spark, bus.bootstrap_servers, "t", tmp_path)
    assert explain(failed.value).startswith("t-0 ends at offset 1, but 5 is next to read")


def created_again(bus: Any, partitions: int) -> None:
    """Delete the topic and create it again."""

    async def delete() -> None:
        async with Admin(bus.bootstrap_servers) as admin:
            await admin.delete_topics(["t"])

    bus.run(delete())
    bus.topic("t", partitions)


def test_a_topic_that_was_created_again_is_read_from_its_first_offset(
    bus: Any, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With failOnDataLoss=false: its records and those that come later are read, and the log names what is lost."""
    bus.topic("t", 1)
    bus.send("t", [(None, b"x") for _ in range(5)])
    given = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "2"}
    run_stream(spark, bus.bootstrap_servers, "t", tmp_path, **given)
    created_again(bus, 1)
    bus.send("t", [(None, b"y") for _ in range(3)])
    run_stream(spark, bus.bootstrap_servers, "t", tmp_path, **given)
    old = [(0, offset) for offset in range(5)]
    assert sorted(offsets_in(spark, tmp_path)) == sorted([*old, *((0, offset) for offset in range(3))])
    bus.send("t", [(None, b"y") for _ in range(3)])
    run_stream(spark, bus.bootstrap_servers, "t", tmp_path, **given)
    assert sorted(offsets_in(spark, tmp_path)) == sorted([*old, *((0, offset) for offset in range(6))])
    reader = StreamReader(Settings.of(options(bus.bootstrap_servers, "t", **given), default_start="earliest"))
    assert reader.latestOffset({"t": {"0": 9}}, ReadAllAvailable()) == {"t": {"0": 6}}
    assert "t-0 ends at offset 6, but 9 is next to read: records are lost" in caplog.text
    assert reader.partitions({"t": {"0": 9}}, {"t": {"0": 6}}) == [OffsetRange(TopicPartition("t", 0), 0, 6)]


def test_partitions_that_are_gone_and_open_transactions(bus: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A topic that has fewer partitions now is read on; what is only behind an open transaction is no loss."""
    bus.topic("t", 1)
    bus.send("t", [(None, b"x") for _ in range(5)])

    async def open_() -> Producer:
        producer = Producer(bus.bootstrap_servers, transactional_id="open")
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"open", partition=0)
        return producer

    producer = bus.run(open_())
    given = options(bus.bootstrap_servers, "t", failOnDataLoss="false")
    reader = StreamReader(Settings.of(given, default_start="earliest"))
    assert reader.latestOffset({"t": {"0": 6}}, ReadAllAvailable()) == {"t": {"0": 6}}
    assert caplog.text == ""
    assert reader.latestOffset({"t": {"0": 4, "1": 3}}, ReadAllAvailable()) == {"t": {"0": 5}}
    assert "t-1 is not there any more: records are lost" in caplog.text
    strict = StreamReader(Settings.of({**given, "failOnDataLoss": "true"}, default_start="earliest"))
    with pytest.raises(DataLoss, match="t-1 is not there any more"):
        strict.latestOffset({"t": {"0": 4, "1": 3}}, ReadAllAvailable())
    bus.run(producer.stop())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"startingOffsets": "first"}, "startingOffsets=first: give earliest, latest, or JSON"),
        ({"startingOffsets": '{"t": {"0": 1, "7": 2}}'}, "offsets are given for t-0, t-7, but the partitions are t-0"),
        ({"maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger=-1: give a whole number above 0"),
        ({"group.id": "g"}, "the busway source has no option group.id"),
        ({"subscribe": "nope"}, "topic nope: the topic or partition does not exist"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "no broker can be reached"),
        ({"kafka.isolation.level": "none"}, "kafka.isolation.level=none: give read_committed or read_uncommitted"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(bus: Any, spark: Any, changes: dict[str, str], reason: str) -> None:
    """Options that mean nothing, a topic or a broker that is not there."""
    bus.topic("t", 1)
    given = options(bus.bootstrap_servers, "t") | changes
    with pytest.raises(Exception, match=r"\w") as failed:
        spark.read.format("busway").options(**given).load().count()
    assert explain(failed.value).startswith(reason)


def test_a_stream_waits_for_a_broker_that_restarts(bus: Any) -> None:
    """What a stream asks at each micro-batch is answered when the broker is back; a batch fails at once when it is away."""
    bus.topic("t", 1)
    bus.send("t", [(None, b"x")])
    asker = Asker(bootstrap_servers=bus.bootstrap_servers, topics=("t",), read_committed=True)
    bus.run(bus.cluster.stop())
    with pytest.raises(ConnectionFailed):
        asyncio.run(asker.range())
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(lambda: asyncio.run(asker.patient_range()))
        bus.run(bus.cluster.start())
        first, last = asked.result(patient(30))
    assert (first, last) == ({TopicPartition("t", 0): 0}, {TopicPartition("t", 0): 1})


def test_moments_become_milliseconds() -> None:
    """A start by datetime is that moment; without a time zone it is refused."""
    given = position_options(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "latest", "t")
    assert given["startingTimestamp"] == "1767225600000"
    with pytest.raises(ValueError, match="no time zone"):
        position_options(dt.datetime(2026, 1, 1), None, "t")
