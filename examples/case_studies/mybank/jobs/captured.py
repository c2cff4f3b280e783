"""Captured tables as DataFrames.

Here: rows out of Debezium's envelopes, and the newest row of each key.
Not here: what the jobs make of them.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

TRANSACTIONS: Final = "mybank.public.transactions"
ACCOUNTS: Final = "mybank.public.accounts"
THRESHOLDS: Final = "mybank.thresholds"


def rows(changes: DataFrame) -> DataFrame:
    """The row of each change of `transactions` that has one, with its time as a timestamp and where it is in the topic.

    Args:
        changes: as `read_topic` and `stream_topic` return the captured topic.
    """
    return changes.where(F.col("error").isNull() & F.col("event.after").isNotNull()).select(
        "event.after.id",
        "event.after.account_id",
        "event.after.kind",
        F.col("event.after.amount").cast("decimal(14,2)").alias("amount"),
        "event.after.currency",
        F.to_timestamp("event.after.booked_at").alias("booked_at"),
        F.timestamp_micros("event.source.ts_us").alias("committed_at"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
    )


def newest(frame: DataFrame, *keys: str) -> DataFrame:
    """Of the records of each key the last one; with it a captured table, or a compacted topic, is as it is now."""
    last = Window.partitionBy(*keys).orderBy(F.col("_partition").desc(), F.col("_offset").desc())
    return frame.withColumn("_place", F.row_number().over(last)).where("_place = 1").drop("_place")


def accounts(changes: DataFrame) -> DataFrame:
    """`accounts` as it is now: `id`, `account_currency`.

    Args:
        changes: as `read_topic` returns the captured topic.
    """
    state = changes.where(F.col("error").isNull() & ~F.col("deleted")).select(
        F.coalesce("event.after.id", "event.before.id").alias("id"),
        F.col("event.after.currency").alias("account_currency"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
    )
    return newest(state, "id").where(F.col("account_currency").isNotNull()).select("id", "account_currency")


def possible(transactions: DataFrame, accounts: DataFrame) -> DataFrame:
    """The transactions that can be true, by the same rules as `domain.booked`: what the service puts aside is not counted here either."""
    known = accounts.withColumnRenamed("id", "account_id")
    return (
        transactions.join(known, "account_id")
        .where("currency = account_currency AND amount > 0 AND booked_at IS NOT NULL")
        .where(F.col("kind").isin("TRANSFER", "CARD", "WITHDRAWAL", "DEPOSIT"))
        .drop("account_currency")
    )
