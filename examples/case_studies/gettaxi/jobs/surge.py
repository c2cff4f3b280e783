"""Supply and demand for each cell, in sliding windows of event time: what the service publishes, over all that is stored.

    busway spark gettaxi.jobs.surge --out store --until-end

Here: the windows in Spark's terms, watermark and all.
Not here: how long they are, what a cell is, what a price is: those are `surge` and `geo`, the service's own.

`OUT/surge` has a row for each cell and window, written once the watermark has passed the window's end.
"""

import datetime as dt
import sys
from collections.abc import Sequence

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming import StreamingQuery

from busway_spark.job import Job, run_job
from gettaxi import geo, matching, surge
from gettaxi.events import Phase

POSITIONS, RIDES = "gettaxi.positions", "gettaxi.rides"


def _seconds(length: dt.timedelta) -> str:
    return f"{length.total_seconds():g} seconds"


def _cells(city: pd.Series, lat: pd.Series, lng: pd.Series) -> pd.Series:
    """The cell that has a price; null for a place that the service would refuse."""
    return pd.Series([_cell_of(*place) for place in zip(city, lat, lng, strict=True)], dtype="object")


def _cell_of(city: str, lat: float, lng: float) -> str | None:
    try:
        geo.check(city, lat, lng)
    except geo.OffTheMap:
        return None
    return geo.surge_cell(lat, lng)


def _percents(demand: pd.Series, supply: pd.Series) -> pd.Series:
    """What prices are multiplied by."""
    return pd.Series([surge.percent(*both) for both in zip(demand, supply, strict=True)], dtype="int64")


def transform(positions: DataFrame, rides: DataFrame) -> DataFrame:
    """A row for each cell and window: city, cell, window_start, window_end, demand, supply, percent.

    Args:
        positions, rides: the topics, both as `read_topic` or both as `stream_topic` gives them.
    """
    # Made here and not at import, which workers do, too, and have no session.
    cell, percent = F.pandas_udf(_cells, "string"), F.pandas_udf(_percents, "long")
    ahead = F.unix_micros("event.at") - F.unix_micros("timestamp")
    supply = (
        positions.where("error is null and not deleted and cast(key as string) = event.city")
        .where((F.col("event.phase") == Phase.FREE.value) & (F.col("event.driver_id") != ""))
        .where(ahead <= int(matching.AHEAD_AT_MOST.total_seconds() * 1_000_000))
        .select(
            "event.city",
            "event.at",
            cell("event.city", "event.lat", "event.lng").alias("cell"),
            F.col("event.driver_id").alias("driver_id"),
            F.lit(None).cast("string").alias("ride_id"),
        )
    )
    # Every record of a ride tells of its request; the set below counts it once.
    demand = rides.where("error is null and not deleted").select(
        "event.city",
        F.col("event.requested_at").alias("at"),
        cell("event.city", "event.lat", "event.lng").alias("cell"),
        F.lit(None).cast("string").alias("driver_id"),
        F.col("event.ride_id").alias("ride_id"),
    )
    window = F.window("at", _seconds(surge.WINDOW), _seconds(surge.SLIDE))
    counted = (
        supply.unionByName(demand)
        .where("cell is not null")
        .withWatermark("at", _seconds(surge.LATENESS))
        .groupBy(window.alias("window"), "city", "cell")
        .agg(F.size(F.collect_set("ride_id")).alias("demand"), F.size(F.collect_set("driver_id")).alias("supply"))
    )
    return counted.select(
        "city",
        "cell",
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "demand",
        "supply",
        percent("demand", "supply").alias("percent"),
    )


def work(job: Job) -> None:
    """One query into the store."""

    def start() -> list[StreamingQuery | None]:
        return [job.store(transform(job.stream(POSITIONS), job.stream(RIDES)), "surge")]

    for query in job.run(start, topics=[POSITIONS, RIDES]):
        records = sum(progress.numInputRows for progress in query.recentProgress)
        sys.stdout.write(f"surge: read {records} records into {job.place('surge')}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0, or 1 with one line that says what is missing."""
    return run_job("surge", __doc__, argv, work, topics=lambda given: [POSITIONS, RIDES])


if __name__ == "__main__":
    sys.exit(main())
