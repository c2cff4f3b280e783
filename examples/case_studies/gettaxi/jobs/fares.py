"""Every fare once more, from the stored positions.

    busway spark gettaxi.jobs.fares --out store
    busway spark gettaxi.jobs.fares --out store --positions store/gettaxi.positions     # from the analytics store

Here: which stored positions are of which ride.
Not here: what a ride costs, which is `fares.recompute`, the very function that the service's tests use, in whole
numbers: so the sums are equal to the cent.

`OUT/fares` has a row for each ride that has ended: what it costs by its positions, and what the service took. When one differs, the job ends
with 1.
"""

import argparse
import datetime as dt
import sys
from collections.abc import Sequence

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from busway_spark.job import Job, run_job
from gettaxi import fares
from gettaxi.events import Phase, Position, Ride, Status

POSITIONS, RIDES = "gettaxi.positions", "gettaxi.rides"
FARE = (
    "ride_id string, city string, driver_id string, positions long, distance_mm long, surge_percent long, fare_cents long, "
    "taken_cents long, equal boolean"
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def transform(positions: DataFrame, rides: DataFrame) -> DataFrame:
    """A row of `FARE` for each ride that has ended.

    Args:
        positions, rides: the topics as `read_topic` gives them.
    """
    # The newest record of a ride; its row may have been let go since.
    newest = (
        rides.where("error is null and not deleted")
        .groupBy("event.ride_id")
        .agg(F.max_by(F.struct("partition", "event"), "offset").alias("newest"))
        .select("newest.partition", "newest.event.*")
        .where(F.col("status") == Status.ENDED.value)
        .select(
            "partition",
            "ride_id",
            "city",
            "rider_id",
            F.col("driver_id").alias("ride_driver_id"),
            "surge_percent",
            "first_position_offset",
            "last_position_offset",
            F.col("fare_cents").alias("taken_cents"),
        )
    )
    metered = (
        positions.where("error is null and event.ride_id is not null")
        .where(F.col("event.phase").isin([phase.value for phase in fares.METERED]))
        .select(
            F.col("event.ride_id").alias("ride_id"),
            "partition",
            "offset",
            F.col("key").cast("string").alias("key"),
            F.unix_micros("timestamp").alias("recorded_us"),
            "event.driver_id",
            F.col("event.city").alias("position_city"),
            "event.lat",
            "event.lng",
            F.unix_micros("event.at").alias("at_us"),
            "event.phase",
        )
    )
    inside = F.col("offset").between(F.col("first_position_offset"), F.col("last_position_offset"))
    joined = newest.join(metered, ["ride_id", "partition"]).where(inside)
    return joined.groupBy("ride_id").applyInPandas(_fare, FARE)


def _fare(rows: pd.DataFrame) -> pd.DataFrame:
    """One ride's row, from its positions."""
    rows = rows.sort_values("offset")
    first = rows.iloc[0]
    ride = Ride(
        ride_id=first.ride_id,
        city=first.city,
        rider_id=first.rider_id,
        status=Status.ENDED,
        lat=0.0,
        lng=0.0,
        requested_at=_EPOCH,
        surge_percent=int(first.surge_percent),
        driver_id=first.ride_driver_id,
        first_position_offset=int(first.first_position_offset),
        last_position_offset=int(first.last_position_offset),
    )
    stored = [
        fares.Stored(
            offset=int(row.offset),
            key=row.key,
            recorded_at=_moment(row.recorded_us),
            position=Position(
                driver_id=row.driver_id,
                city=row.position_city,
                lat=row.lat,
                lng=row.lng,
                at=_moment(row.at_us),
                phase=Phase(row.phase),
                ride_id=row.ride_id,
            ),
        )
        for row in rows.itertuples()
    ]
    meter, cents = fares.recompute(ride, stored)
    taken = int(first.taken_cents)
    return pd.DataFrame(
        [
            (
                ride.ride_id,
                ride.city,
                ride.driver_id,
                meter.positions,
                meter.distance_mm,
                ride.surge_percent,
                cents,
                taken,
                cents == taken,
            )
        ],
        columns=[field.split()[0] for field in FARE.split(", ")],
    )


def _moment(microseconds: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=int(microseconds))


def from_store(rows: DataFrame) -> DataFrame:
    """What `busway spark offload` has stored, in the shape of `read_topic`."""
    fields = [name for name in rows.columns if not name.startswith("_")]
    return rows.select(
        F.struct(*fields).alias("event"),
        F.lit(None).cast("string").alias("error"),
        F.col("_deleted").alias("deleted"),
        F.col("_key").alias("key"),
        F.col("_partition").alias("partition"),
        F.col("_offset").alias("offset"),
        F.col("_timestamp").alias("timestamp"),
    )


def work(job: Job) -> None:
    """Read, recompute, store, compare."""
    if job.given.positions is None:
        positions = job.read(POSITIONS)
    else:
        positions = from_store(job.spark.read.format(job.format).load(job.given.positions))
    target = job.place("fares")
    transform(positions, job.read(RIDES)).write.format(job.format).mode("overwrite").save(target)
    compared = job.spark.read.format(job.format).load(target)
    total, differ = compared.count(), compared.where("not equal").count()
    sys.stdout.write(f"fares: {total} rides in {target}, {differ} of them not what the service took\n")
    if differ:
        raise ValueError(f"{differ} of {total} fares differ; see the rows of {target} that are not equal")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--positions", help=f"folder where offload has stored {POSITIONS}; default: the topic")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0, or 1 with one line that says what is missing or differs."""
    return run_job("fares", __doc__, argv, work, topics=lambda given: [POSITIONS, RIDES], add_arguments=_arguments)


if __name__ == "__main__":
    sys.exit(main())
