"""DataFrames into a topic, and back."""

import asyncio
import decimal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patient

from busway import App, Consumer, RegistryClient, RegistryRefused
from busway_spark import DoesNotFit, explain, read_topic, realtime, stream_topic, write_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Score:
    """An event of a service."""

    user: int
    movie: str
    score: float = 0.0


def test_what_is_written_is_read_back(bus: Any, spark: Any) -> None:
    """Nested columns, nulls and a tombstone, with a schema made of the columns, registered once."""
    bus.topic("t", 2)
    frame = spark.sql(
        "SELECT 1L id, 'a' name, array('x', null) tags, 1.50BD price, named_struct('x', 1, 'y', 2.5D) place, map('k', 1) counts, "
        "timestamp '2026-01-02 03:04:05.123456' at, false gone UNION ALL "
        "SELECT 2L, null, null, null, null, null, null, false UNION ALL SELECT 3L, null, null, null, null, null, null, true"
    ).selectExpr("id", "name", "tags", "cast(price as decimal(9,2)) price", "place", "counts", "at", "gone")
    write_topic(frame, "t", key="id", deleted="gone", **bus.servers)
    write_topic(frame.limit(0), "t", deleted="gone", **bus.servers)
    back = read_topic(spark, "t", **bus.servers)
    rows = {row.key.decode(): row for row in back.collect()}
    assert rows["1"].event == frame.where("id = 1").drop("gone").collect()[0]
    assert rows["2"].event.name is None
    assert (rows["3"].event, rows["3"].deleted, rows["3"].value) == (None, True, None)
    assert back.select("schema_id").where("schema_id is not null").distinct().count() == 1
    assert rows["1"].event.price == decimal.Decimal("1.50")


def test_a_service_reads_what_spark_writes(bus: Any, spark: Any) -> None:
    """With an event class as schema; the value is what the SDK's own codec takes."""
    bus.topic("scores")
    frame = spark.createDataFrame([(7, "m", 0.5)], "user bigint, movie string, score double")
    write_topic(frame, "scores", key="user", schema=Score, **bus.servers)

    async def read() -> list[Any]:
        app = App("reader", bus.bootstrap_servers, bus.registry)
        topic = app.topic("scores", key=str, value=Score)
        async with app:
            return [(record.key, record.value) async for record in app.read(topic)]

    assert bus.run(read()) == [("7", Score(user=7, movie="m", score=0.5))]


def test_columns_that_do_not_fit_are_refused(bus: Any, spark: Any) -> None:
    """A field that is missing, a column too many, a null where the schema has none, a schema that breaks compatibility."""
    bus.topic("t")
    good = spark.createDataFrame([(1, "m", 0.5)], "user bigint not null, movie string not null, score double not null")
    write_topic(good, "t", schema=Score, **bus.servers)
    with pytest.raises(DoesNotFit, match="t-value requires the field movie, which is no column"):
        write_topic(good.drop("movie"), "t", **bus.servers)
    with pytest.raises(DoesNotFit, match="more: no field of t-value; it has user, movie, score"):
        write_topic(good.selectExpr("*", "1 more"), "t", **bus.servers)
    with pytest.raises(Exception, match="is null in a row") as failed:
        write_topic(
            spark.createDataFrame([(1, None, 0.5)], "user bigint, movie string, score double"), "t", **bus.servers
        )
    assert explain(failed.value) == "column movie is null in a row, but t-value requires it"
    broken = '{"type": "record", "name": "Score", "fields": [{"name": "user", "type": "string"}]}'
    with pytest.raises(RegistryRefused):
        write_topic(good.selectExpr("cast(user as string) user"), "t", schema=broken, **bus.servers)
    bus.topic("other")
    with pytest.raises(DoesNotFit, match="interval day to second has no Avro type"):
        write_topic(spark.sql("SELECT interval '1 00:00:00' day to second gap"), "other", **bus.servers)


def test_a_stream_from_topic_to_topic(bus: Any, spark: Any, tmp_path: Path) -> None:
    """Read, project, write, by micro-batches; a checkpoint is asked for."""
    bus.topic("to")
    bus.events("from", Score, [{"user": user, "movie": "m", "score": user / 2} for user in range(50)])
    frame = stream_topic(spark, "from", **bus.servers).selectExpr(
        "event.user", "upper(event.movie) movie", "event.score"
    )
    with pytest.raises(ValueError, match="checkpoint"):
        write_topic(frame, "to", schema=Score, **bus.servers)
    query = write_topic(
        frame, "to", key="user", schema=Score, checkpoint=str(tmp_path), trigger={"availableNow": True}, **bus.servers
    )
    assert query is not None
    query.awaitTermination()
    rows = read_topic(spark, "to", **bus.servers).selectExpr("event.*").collect()
    assert sorted((row.user, row.movie, row.score) for row in rows) == [(user, "M", user / 2) for user in range(50)]


def test_real_time_mode_from_topic_to_topic(bus: Any, spark: Any, tmp_path: Path) -> None:
    """A stateless job with decoding in Real-Time Mode, from Spark's Kafka source to its sink: a record comes out while the query runs."""
    bus.topic("to")
    bus.events("from", Score, [{"user": user, "movie": "m"} for user in range(5)], partitions=1)
    events = stream_topic(spark, "from", source="kafka", **bus.servers)
    rows = events.selectExpr("key", "cast(event.user as string) as value")
    writer = rows.writeStream.format("kafka").option("topic", "to").option("checkpointLocation", str(tmp_path))
    query = realtime(writer.option("kafka.bootstrap.servers", bus.bootstrap_servers), "5 seconds").start()

    async def first(count: int) -> list[bytes | None]:
        async with Consumer("to", bootstrap_servers=bus.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            async with asyncio.timeout(patient(50)):
                return [(await consumer.getone()).value for _ in range(count)]

    try:
        assert sorted(bus.run(first(5))) == [b"%d" % user for user in range(5)]
        assert query.isActive
    finally:
        query.stop()


def test_a_schema_is_registered_under_the_subject_that_is_given(bus: Any, spark: Any) -> None:
    """Naming by record, say."""
    bus.topic("t")
    write_topic(spark.sql("SELECT 1 AS n"), "t", subject="t-N", **bus.servers)

    async def subjects() -> list[str]:
        async with RegistryClient(bus.registry) as registry:
            return await registry.subjects()

    assert bus.run(subjects()) == ["t-N"]
