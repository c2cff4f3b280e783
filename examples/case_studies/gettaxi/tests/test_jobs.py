"""The Spark jobs beside the service: a generated day in two cities, recomputed from its topics."""

import asyncio
import datetime as dt
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from gettaxi import fares, geo, matching, service, surge
from gettaxi.events import Phase, Position, Ride, Status, Surge
from gettaxi.generate import Devices
from gettaxi.traffic import Plan, Traffic
from tests.support.patience import patient

from busway import ConsumerRecord
from busway.testing import Cluster, TestBus
from busway.testing.bus import bus_on
from busway.testing.threaded import cluster_in_thread

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)


@dataclass
class Day:
    """What the service made of it.

    Attributes:
        cluster: where the topics are.
        rides: the newest record of each.
        surges: every record of the topic.
        positions: all that are stored.
    """

    cluster: Cluster
    rides: dict[str, Ride] = field(default_factory=dict)
    surges: list[Surge] = field(default_factory=list)
    positions: list[ConsumerRecord[str, Position]] = field(default_factory=list)

    @property
    def servers(self) -> dict[str, str]:
        """As `read_topic` takes them."""
        return {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "schema_registry": self.cluster.schema_registry,
        }

    @property
    def arguments(self) -> list[str]:
        """As a job's command line takes them."""
        return ["-b", self.cluster.bootstrap_servers, "-r", self.cluster.schema_registry]


@pytest.fixture(scope="module")
def day() -> Iterator[Day]:
    """Traffic with a crash in the middle and positions that were put aside, to the end of every ride."""
    with cluster_in_thread() as cluster:
        load = Day(cluster)
        asyncio.run(_live(load))
        yield load


async def _live(day: Day) -> None:
    towns = [
        Traffic(Plan(city=city, drivers=8, rides_per_minute=16, seed=7, start=NOON, half_m=750, longest_m=700))
        for city in ("berlin", "lisbon")
    ]
    async with bus_on(day.cluster, service.app) as bus:
        load = Devices(
            towns, bootstrap_servers=day.cluster.bootstrap_servers, schema_registry=day.cluster.schema_registry
        )
        async with load.running():
            await load.run(speed=None, until=lambda: towns[0].now >= NOON + dt.timedelta(seconds=120))
            crash = bus.crash(at="after-send")
            await load.run(speed=None, until=lambda: towns[0].now >= NOON + dt.timedelta(seconds=130))
            await crash
            await _put_aside(load)
            await load.run(speed=None, until=lambda: towns[0].now >= NOON + dt.timedelta(seconds=170))
            for town in towns:
                town.requests = False
            await load.run(speed=None, until=lambda: not load.open or towns[0].now > NOON + dt.timedelta(hours=2))
            await bus.settle()
            await _read(day, bus, load)


async def _put_aside(load: Devices) -> None:
    """For every ride that is on its way, a position off the map and one of another driver."""
    for ride in [ride for ride in service.rides.values() if ride.status is Status.ON_RIDE]:
        at = load.traffic[ride.city].now
        bad = Position(
            driver_id=ride.driver_id or "",
            city=ride.city,
            lat=1.0,
            lng=2.0,
            at=at,
            phase=Phase.ON_RIDE,
            ride_id=ride.ride_id,
        )
        centre = geo.CITIES[ride.city]
        other = replace(bad, driver_id="somebody", lat=centre.lat, lng=centre.lng)
        for position in (bad, other):
            await load.position_topic.send(position, position.city, timestamp_ms=int(at.timestamp() * 1000))


async def _read(day: Day, bus: TestBus, load: Devices) -> None:
    assert await bus.dead_letters(service.positions)
    day.rides = dict(service.rides)
    day.surges = [row.value for row in await bus.records(service.surges.topic) if row.value is not None]
    day.positions = [record async for record in load.app.read(load.position_topic)]


@pytest.fixture(scope="module")
def topics(day: Day, spark: Any) -> tuple[Any, Any]:
    """Positions and rides, read once."""
    from busway_spark import read_topic

    return (
        read_topic(spark, "gettaxi.positions", **day.servers).cache(),
        read_topic(spark, "gettaxi.rides", **day.servers).cache(),
    )


def test_every_fare_is_equal_to_the_cent(day: Day, topics: tuple[Any, Any]) -> None:
    """Recomputed from the topic by the job, each ride's way and fare are what the service took while it went on."""
    from gettaxi.jobs.fares import transform

    rows = transform(*topics).collect()
    fares_of_rides = {row.ride_id: (row.driver_id, row.positions, row.distance_mm, row.fare_cents) for row in rows}
    expected = {
        ride.ride_id: (ride.driver_id, ride.meter.positions, ride.meter.distance_mm, ride.fare_cents)
        for ride in day.rides.values()
        if ride.status is Status.ENDED
    }
    assert len(expected) > 20
    assert fares_of_rides == expected
    assert all(row.equal for row in rows)


def test_the_job_tells_when_a_fare_is_not_what_its_positions_say(
    day: Day, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the analytics store the job finds all equal; with positions that are missing there it ends with 1 and says so."""
    from gettaxi.jobs import fares as job

    from busway_spark.jobs import offload

    monkeypatch.setattr(spark.__class__, "stop", lambda self: None)
    common = [*day.arguments, "--out", str(tmp_path)]
    assert offload.main([*common, "--until-end", "--topic", "gettaxi.positions"]) == 0
    store = tmp_path / "gettaxi.positions"
    assert job.main([*common, "--positions", str(store)]) == 0
    ended = [ride for ride in day.rides.values() if ride.status is Status.ENDED]
    assert f"{len(ended)} rides" in capsys.readouterr().out
    begun, ride_id = ended[0].first_position_offset, ended[0].ride_id
    torn = tmp_path / "torn"
    spark.read.parquet(str(store)).where(f"not (_offset > {begun} and ride_id = '{ride_id}')").write.parquet(str(torn))
    assert job.main([*common, "--positions", str(torn)]) == 1
    assert f"1 of {len(ended)} fares differ" in capsys.readouterr().err


def test_a_cluster_runs_the_job(day: Day, spark: Any, tmp_path: Path) -> None:
    """By `spark-submit` on a master and a worker of Spark's standalone kind, whose executor is a process of its own and has the case study
    from what is submitted: every fare is equal, and the table is Delta's."""
    from busway_spark.submit import submit_command

    arguments = [*day.arguments, "--out", str(tmp_path / "store"), "--format=delta"]
    command = submit_command("gettaxi.jobs.fares", "local-cluster[1,2,1024]", arguments, tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=patient(240), check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    ended = [ride.ride_id for ride in day.rides.values() if ride.status is Status.ENDED]
    assert f"fares: {len(ended)} rides" in done.stdout
    rows = spark.read.format("delta").load(str(tmp_path / "store" / "fares")).collect()
    assert sorted(row.ride_id for row in rows) == sorted(ended)


def windows_of(day: Day) -> dict[tuple[str, dt.datetime], tuple[int, int, int]]:
    """The service's own windows over all that is stored, city by city: (cell, end) → demand, supply, percent."""
    by_cell = {}
    for city in ("berlin", "lisbon"):
        windows = surge.Windows(NOON - dt.timedelta(hours=1))
        for ride in day.rides.values():
            if ride.city == city:
                windows.demand(geo.surge_cell(ride.lat, ride.lng), ride.requested_at, ride.ride_id)
        for record in day.positions:
            position = record.value
            assert position is not None
            if position.city != city or position.phase is not Phase.FREE:
                continue
            recorded_at = dt.datetime.fromtimestamp(record.timestamp_ms / 1000, dt.UTC)
            matching.check_position(position, key=record.key, recorded_at=recorded_at)
            windows.supply(geo.surge_cell(position.lat, position.lng), position.at, position.driver_id)
        for window in windows.pass_time(NOON + dt.timedelta(days=1)):
            by_cell[window.cell, window.end] = (window.demand, window.supply, window.percent)
    return by_cell


def test_the_windows_are_those_of_the_service(day: Day, topics: tuple[Any, Any]) -> None:
    """Each window that Spark makes is the one that the service's core makes, and all that the service published are among them."""
    from gettaxi.jobs.surge import transform

    rows = transform(*topics).collect()
    windows = {(row.cell, row.window_end.replace(tzinfo=dt.UTC)): (row.demand, row.supply, row.percent) for row in rows}
    assert windows == windows_of(day)
    assert max(percent for _, _, percent in windows.values()) > 100
    published = {(row.cell, row.window_end): (row.demand, row.supply, row.percent) for row in day.surges}
    assert len(published) > 20
    assert published == {key: windows[key] for key in published}


def test_the_stream_writes_complete_windows_once(
    day: Day, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job as a stream, in two runs over one checkpoint: each window that the watermark has passed is in the store, once."""
    from gettaxi.jobs import surge as job

    monkeypatch.setattr(spark.__class__, "stop", lambda self: None)
    arguments = [*day.arguments, "--out", str(tmp_path), "--until-end"]
    assert job.main(arguments) == 0
    assert job.main(arguments) == 0
    rows = spark.read.parquet(str(tmp_path / "surge")).collect()
    windows = {(row.cell, row.window_end.replace(tzinfo=dt.UTC)): (row.demand, row.supply, row.percent) for row in rows}
    assert len(windows) == len(rows)
    newest = max(record.value.at for record in day.positions if record.value is not None)
    complete = {
        key: counts for key, counts in windows_of(day).items() if key[1] <= newest - surge.LATENESS - surge.SLIDE
    }
    assert {key: windows.get(key) for key in complete} == complete


def test_what_belongs_to_a_ride_needs_no_spark(day: Day) -> None:
    """The function that the job groups by, over the records as they are."""
    for ride in day.rides.values():
        if ride.status is Status.ENDED:
            stored = [
                fares.Stored(
                    offset=record.offset,
                    key=record.key,
                    recorded_at=dt.datetime.fromtimestamp(record.timestamp_ms / 1000, dt.UTC),
                    position=record.value,
                )
                for record in day.positions
                if record.key == ride.city
            ]
            assert fares.recompute(ride, stored) == (ride.meter, ride.fare_cents)
