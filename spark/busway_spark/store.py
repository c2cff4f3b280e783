"""Exactly-once writing to an analytics store.

Here: streams and batches into Parquet and Delta, Real-Time Mode's trigger.

Parquet: Spark's file sink logs each micro-batch's files in `_spark_metadata`; reading the folder as a whole ignores
files left by killed tasks. Delta: each micro-batch is a transaction with the query's id and the batch's number, so a
repeated batch is skipped (`txnAppId`, `txnVersion`).
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
    """Append rows to a table of files. Return the running query of a stream, None for a batch.

    Args:
        checkpoint: folder for a stream's position, a different one for each query.
        format: parquet, or delta for a session with `delta=True`. New columns of events are added to a Delta table; in
            Parquet they are in the newer files, and visible with `option("mergeSchema", "true")`.
        partition_by: columns whose values name sub-folders.
        trigger: as for `DataStreamWriter.trigger`; by default every 5 seconds, `{"availableNow": True}` up to the
            current end.

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
    """Make a function for `foreachBatch` that appends to a Delta table. It skips batches appended already.

    Args:
        partition_by: columns whose values name sub-folders.
        application: permanent id of the query; by default the one in Spark's checkpoint.
    """

    def write(batch: DataFrame, number: int) -> None:
        query = application or batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        writer = batch.write.format("delta").mode("append").partitionBy(*partition_by)
        writer = writer.option("txnAppId", query).option("txnVersion", number)
        writer.option("mergeSchema", "true").save(path)

    return write


def realtime(writer: DataStreamWriter, checkpoint: str = "10 seconds") -> DataStreamWriter:
    """Run a query in Real-Time Mode: each record within milliseconds.

    For stateless jobs (projection, filter, union, join with a static table), from Spark's Kafka source
    (`source="kafka"`) to its Kafka sink, in update mode. Each partition holds a task slot.

    Args:
        checkpoint: interval of storing the position; later records are read again after a crash.
    """
    return writer.outputMode("update").trigger(realTime=checkpoint)
