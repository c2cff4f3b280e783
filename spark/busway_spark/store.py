"""Rows into an analytics store, exactly once.

What lives here: streams and batches into Parquet and Delta, and the trigger of Real-Time Mode. What does not: which rows.

Parquet: Spark's file sink keeps a log of the files of each micro-batch in `_spark_metadata`; read the folder as a whole, not its files
by a pattern, and a file that a killed task left is not seen. Delta: each micro-batch is one transaction that carries the query's
id and the batch's number, so a batch that is run again after a crash is passed over (`txnAppId`, `txnVersion`).
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

Format = Literal["parquet", "delta"]
FORMATS: Final[tuple[Format, ...]] = ("parquet", "delta")
EVERY_5_S: Final = {"processingTime": "5 seconds"}


def to_store(
    frame: DataFrame,
    path: str,
    *,
    checkpoint: str | None = None,
    format: Format = "parquet",
    partition_by: Sequence[str] = (),
    trigger: dict[str, Any] | None = None,
    name: str | None = None,
) -> StreamingQuery | None:
    """Append rows to a table of files.

    Args:
        frame: a batch, or a stream.
        path: its folder.
        checkpoint: folder where a stream keeps its position; one for each query.
        format: parquet, or delta, for a session with `delta=True`. Columns that a newer event brings are added to a Delta table; of
            Parquet they are in the newer files, and seen with `option("mergeSchema", "true")`.
        partition_by: columns whose values name sub-folders.
        trigger: of a stream, as for `DataStreamWriter.trigger`; every 5 seconds unless given, `{"availableNow": True}` for what is there.
        name: of the query.

    Returns:
        The running query of a stream, None for a batch.

    Raises:
        ValueError: a stream without a checkpoint.
    """
    if not frame.isStreaming:
        writer = frame.write.format(format).mode("append").partitionBy(*partition_by)
        (writer.option("mergeSchema", "true") if format == "delta" else writer).save(path)
        return None
    if checkpoint is None:
        raise ValueError("a stream needs a checkpoint: a folder where it keeps its position")
    stream = (
        frame.writeStream.option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(**(trigger or EVERY_5_S))
    )
    if name is not None:
        stream = stream.queryName(name)
    if format == "delta":
        return stream.foreachBatch(delta_writer(path, partition_by)).start()
    return stream.format(format).partitionBy(*partition_by).option("path", path).start()


def delta_writer(path: str, partition_by: Sequence[str] = (), *, application: str | None = None) -> Any:
    """A function for `foreachBatch` that appends to a Delta table, and passes over a batch that it has appended already.

    Args:
        path: the table's folder.
        partition_by: columns whose values name sub-folders.
        application: names the query for ever; the id that Spark keeps in its checkpoint unless given, so that a query with a new, empty
            checkpoint is another one.
    """

    def write(batch: DataFrame, number: int) -> None:
        query = application or batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        writer = batch.write.format("delta").mode("append").partitionBy(*partition_by)
        writer = writer.option("txnAppId", query).option("txnVersion", number)
        writer.option("mergeSchema", "true").save(path)

    return write


def realtime(writer: DataStreamWriter, checkpoint: str = "10 seconds") -> DataStreamWriter:
    """Run a query in Real-Time Mode: each record as it comes, within milliseconds.

    It is for jobs without state (projection, filter, union, join with a static table), from Spark's Kafka source (`source="kafka"`) to its
    Kafka sink, in update mode. Each partition holds a task slot for as long as the query runs.

    Args:
        writer: of a streaming DataFrame.
        checkpoint: how often the position is kept; what was read since is read again after a crash.
    """
    return writer.outputMode("update").trigger(realTime=checkpoint)
