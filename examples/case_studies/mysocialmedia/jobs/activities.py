"""The activities that count, as columns.

Here: what the live path would not put among the dead letters, in Spark's terms.
Not here: totals (`totals`), trending (`trending`).
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from mysocialmedia.domain import AHEAD_MOST, ID_MOST, TEXT_MOST

TOPIC: Final = "mysocialmedia.activity"


def possible(decoded: DataFrame) -> DataFrame:
    """The activities that make sense by themselves: `domain.check`, and the key is the post's id.

    Args:
        decoded: as `read_topic` and `stream_topic` return it.

    Returns:
        Columns kind, post_id, user_id, at, comment_id, text, offset.
    """
    event = decoded.where(F.col("error").isNull() & ~F.col("deleted")).select(
        "event.*", "offset", "timestamp", F.col("key").cast("string").alias("key")
    )
    text, kind = F.col("text"), F.col("kind")
    return event.where(
        (F.col("key") == F.col("post_id"))
        & _is_id("post_id")
        & _is_id("user_id")
        & (~kind.isin("COMMENTED", "COMMENT_DELETED") | F.coalesce(_is_id("comment_id"), F.lit(False)))
        & (~kind.isin("POSTED", "COMMENTED") | F.coalesce(F.length(text) > 0, F.lit(False)))
        & (F.coalesce(F.length(text), F.lit(0)) <= TEXT_MOST)
        & (F.col("at") <= F.col("timestamp") + F.lit(AHEAD_MOST))
    ).drop("key", "timestamp")


def _is_id(name: str) -> Column:
    column = F.col(name)
    return (F.length(column) > 0) & (F.length(column) <= ID_MOST) & ~F.contains(column, F.lit("/"))
