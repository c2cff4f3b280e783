"""The analytics store, from events in a topic to rows in Parquet, by Spark's own Kafka source."""

import datetime as dt
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from busway import App, Producer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def first_schema() -> type:
    """The event as it was at first."""

    @dataclass
    class Seen:
        user: int
        movie: str
        at: dt.datetime

    return Seen


def second_schema() -> type:
    """The event with a field more."""

    @dataclass
    class Seen:
        user: int
        movie: str
        at: dt.datetime
        stars: int | None = None

    return Seen


async def write(bus: Any, kind: type, events: list[dict[str, Any]]) -> None:
    """Write events of one schema version."""
    app = App("writer", bus.bootstrap_servers, bus.registry)
    topic = app.topic("seen", key=int, value=kind, partitions=2)
    async with app:
        for event in events:
            await topic.send(kind(**event), key=event["user"])


async def write_raw(bus: Any, values: list[bytes | None]) -> None:
    """Write bytes as they are."""
    async with Producer(bus.bootstrap_servers) as producer:
        for value in values:
            await producer.send_and_wait("seen", value, b"7")


def run_job(bus: Any, out: Path) -> None:
    """The job in this process, on the session that runs already."""
    given = ["--topic", "seen", "--out", str(out), "--bootstrap-servers", bus.bootstrap_servers]
    from busway_spark.jobs import topic_to_parquet

    assert topic_to_parquet.main([*given, "--registry", bus.registry, "--until-end"]) == 0


def test_two_schema_versions_damage_and_tombstones_end_in_the_store(bus: Any, spark: Any, tmp_path: Path) -> None:
    """Events of both versions become rows, a tombstone a row that says so, and what is no event is kept with the reason; a second run
    adds what came since, and nothing twice."""
    bus.run(write(bus, first_schema(), [{"user": n, "movie": f"m{n}", "at": AT} for n in range(20)]))
    newer = [{"user": n, "movie": f"m{n}", "at": AT, "stars": n % 5} for n in range(20, 30)]
    bus.run(write(bus, second_schema(), newer))
    unknown_id = b"\0" + struct.pack(">I", 999) + b"abc"
    damaged = b"\0" + struct.pack(">I", 1) + b"\xff\xff"
    bus.run(write_raw(bus, [unknown_id, damaged, b"plain text", None]))
    run_job(bus, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "seen"))
    events = rows.where("not _deleted").orderBy("user").collect()
    assert [(row.user, row.movie, row.stars) for row in events] == [
        (n, f"m{n}", n % 5 if n >= 20 else None) for n in range(30)
    ]
    assert events[0].at.replace(tzinfo=dt.UTC) == AT
    assert {row._key for row in events} == {str(n) for n in range(30)}
    assert [row._key for row in rows.where("_deleted").collect()] == ["7"]
    reasons = sorted(row.error for row in spark.read.parquet(str(tmp_path / "seen_rejected")).collect())
    assert [reason.split(":")[0].split(" was")[0] for reason in reasons] == ["damaged", "not framed", "schema id 999"]
    bus.run(write(bus, second_schema(), [{"user": 30, "movie": "late", "at": AT, "stars": 1}]))
    run_job(bus, tmp_path)
    again = spark.read.parquet(str(tmp_path / "seen"))
    assert again.count() == 32
    assert again.select("_partition", "_offset").distinct().count() == 32


def test_a_topic_without_a_schema_is_refused_by_its_subject(bus: Any, tmp_path: Path) -> None:
    """The job ends with one line that names the subject."""
    command = [sys.executable, "-m", "busway_spark.jobs.topic_to_parquet", "--topic", "nothing", "--out", str(tmp_path)]
    command += ["--bootstrap-servers", bus.bootstrap_servers, "--registry", bus.registry, "--until-end"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert "no subject nothing-value" in done.stderr
    assert "Traceback" not in done.stderr
