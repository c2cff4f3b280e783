"""`spark.read.format("busway")` and `spark.readStream.format("busway")`: topics as Arrow batches, without a jar.

Here: the readers of a Python data source (Spark's SPIP of that name), with options of Spark's Kafka source.
Not here: offsets (`offsets`), bytes to columns (`columns`).

Rows equal those of the Kafka source with `includeHeaders`. Options: `kafka.bootstrap.servers`; `subscribe`, topics with
commas; `startingOffsets`, `endingOffsets`, `startingTimestamp`, `endingTimestamp`; `maxOffsetsPerTrigger`;
`minPartitions`, `maxRecordsPerPartition`; `failOnDataLoss` (true; with false a stream reads a recreated topic, which
ends before the next offset, from its first offset, while Spark's Kafka source starts at its end);
`kafka.isolation.level` (read_committed here, unlike Spark's); `kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`, without
which the driver's environment decides, also for executors.
"""
# mypy: allow-subclassing-any

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from busway import BuswayError, OffsetReset, SecurityOptions, TopicPartition, read_batches
from busway.security.options import PLAINTEXT
from busway_spark.columns import to_arrow
from busway_spark.offsets import Asker, BadOption, Offsets, RequestedOffsets, as_json, from_json, wanted
from busway_spark.security import client_security, is_security_option

logger = logging.getLogger("busway.spark")

NAME: Final = "busway"
SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
_ISOLATION: Final = ("read_committed", "read_uncommitted")
_KNOWN: Final = frozenset(
    {
        "kafka.bootstrap.servers",
        "kafka.isolation.level",
        "subscribe",
        "startingoffsets",
        "endingoffsets",
        "startingtimestamp",
        "endingtimestamp",
        "startingoffsetsbytimestampstrategy",
        "maxoffsetspertrigger",
        "minpartitions",
        "maxrecordsperpartition",
        "failondataloss",
        "includeheaders",
    }
)
_SET_BY_QUERIES: Final = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
"""Environment variables of workers that Spark 4.2 sets for each query.

It sets them without a lock, in a map shared by the session's queries. Two queries that both added a name at once left a
map that no task could read (OptionalDataException); with the names present it keeps its shape.
"""


class DataLoss(BuswayError):
    """Records were deleted before they were read, or the topic was recreated."""


def register(spark: SparkSession) -> None:
    for name in _SET_BY_QUERIES:
        spark.sparkContext.environment.setdefault(name, "")
    spark.dataSource.register(BuswaySource)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Checked options.

    Attributes:
        max_offsets: of a micro-batch; None for no limit.
        min_partitions: of tasks; partitions are split for it.
        max_records: offsets of a task.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    start: RequestedOffsets
    end: RequestedOffsets
    read_committed: bool
    fail_on_data_loss: bool
    max_offsets: int | None
    min_partitions: int
    max_records: int | None
    security: SecurityOptions = PLAINTEXT

    @classmethod
    def of(cls, options: Mapping[str, str], *, default_start: str) -> "Settings":
        """Parse options; raises `BadOption` if missing, unknown or invalid."""
        for name in options:
            if name.lower() not in _KNOWN and not is_security_option(name.lower()):
                raise BadOption(f"the busway source has no option {name}")
        servers, topics = options.get("kafka.bootstrap.servers"), options.get("subscribe")
        if not servers or not topics:
            raise BadOption("the busway source needs the options kafka.bootstrap.servers and subscribe")
        isolation = options.get("kafka.isolation.level", _ISOLATION[0])
        if isolation not in _ISOLATION:
            raise BadOption(f"kafka.isolation.level={isolation}: give {' or '.join(_ISOLATION)}")
        return cls(
            bootstrap_servers=servers,
            topics=tuple(sorted({name.strip() for name in topics.split(",")})),
            start=wanted(options, "starting", default_start),
            end=wanted(options, "ending", "latest"),
            read_committed=isolation == _ISOLATION[0],
            fail_on_data_loss=options.get("failOnDataLoss", "true").lower() != "false",
            max_offsets=_positive(options, "maxOffsetsPerTrigger"),
            min_partitions=_positive(options, "minPartitions") or 1,
            max_records=_positive(options, "maxRecordsPerPartition"),
            security=client_security(options),
        )

    def asker(self) -> Asker:
        return Asker(
            bootstrap_servers=self.bootstrap_servers,
            topics=self.topics,
            read_committed=self.read_committed,
            security=self.security,
        )


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise BadOption(f"{name}={text}: give a whole number above 0")
    return int(text)


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    partition: TopicPartition
    start: int
    end: int


def split(ranges: list[OffsetRange], *, min_partitions: int, max_records: int | None) -> list[OffsetRange]:
    """Cut ranges into equal pieces of at most `max_records`, about `min_partitions` or more."""
    total = sum(offsets.end - offsets.start for offsets in ranges)
    pieces: list[OffsetRange] = []
    for offsets in ranges:
        length = offsets.end - offsets.start
        parts = max(1, round(min_partitions * length / total)) if total and len(ranges) < min_partitions else 1
        if max_records is not None:
            parts = max(parts, -(-length // max_records))
        parts = min(parts, max(length, 1))
        edges = [offsets.start + length * part // parts for part in range(parts + 1)]
        pieces += [OffsetRange(offsets.partition, begin, stop) for begin, stop in itertools.pairwise(edges)]
    return pieces


def limited(start: Offsets, end: dict[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Return the end of a micro-batch of about `limit` offsets, shared by partitions in proportion to their backlogs."""
    begin = from_json(start)
    waiting = {partition: max(0, at - begin.get(partition, 0)) for partition, at in end.items()}
    total = sum(waiting.values())
    if total <= limit:
        return end
    # Rounded up, so that a partition with a small backlog is not starved.
    return {
        partition: begin.get(partition, 0) + min(size, -(-size * limit // total)) for partition, size in waiting.items()
    }


class _Reading:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def _ranges(
        self, start: Offsets, end: Offsets, first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int]
    ) -> list[OffsetRange]:
        """Return the tasks between two offsets, checked against the log."""
        begins, ends = from_json(start), from_json(end)
        ranges = []
        for partition, stop in ends.items():
            begin = begins.get(partition, first.get(partition, 0))
            lowest, highest = first.get(partition), last.get(partition)
            if lowest is None or highest is None:
                self._lost(f"{_name(partition)} is not there any more")
                continue
            if begin < lowest:
                self._lost(f"{_name(partition)} begins at offset {lowest}, but {begin} is next to read")
            if stop > highest:
                self._lost(f"{_name(partition)} ends at offset {highest}, but is to be read up to {stop}")
            begin, stop = max(begin, lowest), min(stop, highest)  # noqa: PLW2901 - the existing piece
            if begin < stop:
                ranges.append(OffsetRange(partition, begin, stop))
        return split(ranges, min_partitions=self.settings.min_partitions, max_records=self.settings.max_records)

    def _lost(self, what: str, then: str = "the rest is read") -> None:
        if self.settings.fail_on_data_loss:
            raise DataLoss(
                f"{what}: records were deleted before they were read, or the topic was recreated; "
                "begin with a new checkpoint, or set failOnDataLoss to false to continue without them"
            )
        logger.warning("%s: records are lost; %s (failOnDataLoss=false)", what, then)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield a task's records; runs in a worker. Raises `DataLoss`, `BuswayError`."""
        if not isinstance(partition, OffsetRange):
            return  # Spark's placeholder for an empty batch
        with asyncio.Runner() as runner:
            reading = self._read(partition)
            try:
                while (batches := runner.run(_next(reading))) is not None:
                    yield from batches
            finally:
                runner.run(reading.aclose())

    async def _read(self, wanted_range: OffsetRange) -> Any:
        partition, start, end = wanted_range.partition, wanted_range.start, wanted_range.end
        while start < end:
            reading = read_batches(
                self.settings.bootstrap_servers,
                partition,
                start,
                end,
                read_committed=self.settings.read_committed,
                client_id="busway-spark",
                security=self.settings.security,
            )
            try:
                async for batches in reading:
                    yield to_arrow(batches, partition, start, end)
                    start = max(start, batches[-1][0].next_offset) if batches else start
                return
            except OffsetReset as problem:
                self._lost(str(problem))
            finally:
                await reading.aclose()
            # Skips what retention deleted meanwhile.
            first, _ = await self.settings.asker().patient_range()
            if first.get(partition, end) <= start:
                return  # beyond the end: the topic was recreated, and the next micro-batch reads it
            start = first[partition]


async def _next(reading: AsyncIterator[Any]) -> Any:
    return await anext(reading, None)


class BatchReader(_Reading, DataSourceReader):
    def partitions(self) -> list[OffsetRange]:
        return asyncio.run(self._plan())

    async def _plan(self) -> list[OffsetRange]:
        asker = self.settings.asker()
        start, end = await asker.resolve(self.settings.start), await asker.resolve(self.settings.end)
        first, last = await asker.range()
        return self._ranges(start, end, first, last)


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics endlessly. Positions are in Spark's checkpoint; no consumer group is used."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._until: dict[TopicPartition, int] | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        return asyncio.run(self.settings.asker().resolve(self.settings.start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable() if self.settings.max_offsets is None else ReadMaxRows(self.settings.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        _, self._until = asyncio.run(self.settings.asker().patient_range())

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        first, last = asyncio.run(self.settings.asker().patient_range())
        begins = from_json(start)
        if any(last.get(partition, 0) < begin for partition, begin in begins.items()):
            begins = self._after_a_loss(begins, first, last)
        if self._until is not None:
            until = self._until
            last = {
                partition: max(min(at, until.get(partition, 0)), begins.get(partition, 0))
                for partition, at in last.items()
            }
        begin_all = as_json({partition: begins.get(partition, first.get(partition, 0)) for partition in last})
        return as_json(limited(begin_all, last, limit.max_rows) if isinstance(limit, ReadMaxRows) else last)

    def _after_a_loss(
        self, begins: dict[TopicPartition, int], first: dict[TopicPartition, int], last: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return next offsets where partitions may end before the stored ones; correct `last`."""
        ends = asyncio.run(self.settings.asker().ends())
        result = {}
        for partition, begin in begins.items():
            if partition not in last:
                self._lost(f"{_name(partition)} is not there any more", "the other partitions are read")
            elif (end := ends.get(partition, 0)) < begin:
                then = f"this is another log, which is read from its first offset {first[partition]} on"
                self._lost(f"{_name(partition)} ends at offset {end}, but {begin} is next to read", then)
                result[partition] = first[partition]
            else:
                last[partition] = max(last[partition], begin)  # open transactions are in between
                result[partition] = begin
        return result

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802 - Spark's name
        return as_json(asyncio.run(self.settings.asker().patient_range())[1])

    def partitions(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        first, last = asyncio.run(self.settings.asker().patient_range())
        ends = from_json(end)
        # An end before the start means a recreated topic: see `latestOffset`.
        begins = {
            partition: first.get(partition, 0) if ends.get(partition, begin) < begin else begin
            for partition, begin in from_json(start).items()
        }
        return self._ranges(as_json(begins), end, first, last)


class BuswaySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> BatchReader:
        return BatchReader(Settings.of(self.options, default_start="earliest"))

    def streamReader(self, schema: Any) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(Settings.of(self.options, default_start="latest"))


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
