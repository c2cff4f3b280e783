"""The analytics store: from events in a topic to rows in files, whatever is killed, added or damaged on the way."""

import datetime as dt
import os
import signal
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patient
from tests.support.programs import spawn

from busway import AvroCodec
from busway_spark.jobs import offload

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


def seen(numbers: range, **more: Any) -> list[dict[str, Any]]:
    """Events of these users."""
    return [{"user": user, "movie": f"m{user}", "at": AT, **more} for user in numbers]


def run_job(bus: Any, out: Path, *more: str) -> None:
    """The job in this process, on the session that runs already."""
    assert offload.main(["--topic", "seen", "--out", str(out), *bus.arguments, "--until-end", *more]) == 0


@pytest.mark.parametrize("store", ["parquet", "delta"])
def test_two_schema_versions_damage_and_tombstones_end_in_the_store(
    bus: Any, spark: Any, tmp_path: Path, store: str
) -> None:
    """Events of both versions become rows, a tombstone a row that says so, and what is no event is kept with the reason; a second run
    adds what came since, and nothing twice."""
    bus.events("seen", first_schema(), seen(range(20)))
    bus.events("seen", second_schema(), seen(range(20, 30), stars=3))
    unknown_id, damaged = b"\0" + struct.pack(">I", 999) + b"abc", b"\0" + struct.pack(">I", 1) + b"\xff\xff"
    bus.send("seen", [(b"7", value) for value in (unknown_id, damaged, b"plain text", None)])
    run_job(bus, tmp_path, "--format", store)
    rows = spark.read.format(store).load(str(tmp_path / "seen"))
    events = rows.where("not _deleted").orderBy("user").collect()
    assert [(row.user, row.movie, row.stars) for row in events] == [
        (n, f"m{n}", 3 if n >= 20 else None) for n in range(30)
    ]
    assert events[0].at.replace(tzinfo=dt.UTC) == AT
    assert {row._key for row in events} == {str(n) for n in range(30)}
    assert [row._key for row in rows.where("_deleted").collect()] == ["7"]
    reasons = [row.error for row in spark.read.format(store).load(str(tmp_path / "seen_rejected")).collect()]
    assert sorted(reason.split(":")[0].split(" is")[0] for reason in reasons) == [
        "damaged",
        "not framed",
        "schema id 999",
    ]
    bus.events("seen", second_schema(), seen(range(30, 31), stars=1))
    run_job(bus, tmp_path, "--format", store)
    again = spark.read.format(store).load(str(tmp_path / "seen"))
    assert again.count() == 32
    assert again.select("_partition", "_offset").distinct().count() == 32


def test_a_job_that_was_stopped_while_it_wrote_its_first_offsets_goes_on(bus: Any, spark: Any, tmp_path: Path) -> None:
    """What it leaves is a temporary file beside no offsets."""
    bus.events("seen", first_schema(), seen(range(3)))
    for name in ("seen", "seen_rejected"):
        offsets = tmp_path / "_checkpoints" / name / "offsets"
        offsets.mkdir(parents=True)
        (offsets / ".0.6f1c2d3e-0000-4000-8000-000000000000.tmp").write_text("v1\n")
    run_job(bus, tmp_path)
    assert spark.read.parquet(str(tmp_path / "seen")).count() == 3


def test_avro_keys_are_told_as_json(bus: Any, spark: Any, tmp_path: Path) -> None:
    """As captured tables and Confluent's serializers write them, of two schemas; a key of an id that the registry never had, and one that
    is no text, are shown in hexadecimal, and stop nothing."""
    bus.events("seen", first_schema(), seen(range(1)))
    row = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
    record_id, number_id = bus.register("seen-key", row), bus.register("seen-key", '"long"')
    value = AvroCodec(first_schema()).encode(first_schema()(**seen(range(1))[0]), b"\0" + struct.pack(">I", 1))
    keys = [
        b"\0" + struct.pack(">I", record_id) + b"\x0e",
        b"\0" + struct.pack(">I", number_id) + b"\x10",
        b"\0\0\0\x03\xe7abc",
        b"\xff\xfe",
        None,
    ]
    bus.send("seen", [(key, value) for key in keys])
    run_job(bus, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "seen")).collect()
    assert {row._key for row in rows} == {"0", '{"id":7}', "8", "0x00000003e7616263", "0xfffe", None}
    assert len(rows) == 6


def test_a_schema_that_comes_while_the_job_runs_brings_its_column(bus: Any, spark: Any, tmp_path: Path) -> None:
    """A running job meets an event of a version that was not there at its start: it is built again, and neither the event nor its new field is
    lost; an id that the registry never had is rejected and stops nothing."""
    bus.events("seen", first_schema(), seen(range(5)))
    frames: list[list[str]] = []

    class Watched:
        """The job as the frame gives it, which writes newer events after its first micro-batch."""

        def __init__(self, job: Any) -> None:
            self.job = job

        def __getattr__(self, name: str) -> Any:
            return getattr(self.job, name)

        def stream(self, topic: str, **options: Any) -> Any:
            frame = self.job.stream(topic, **options)
            frames.append(frame.select("event.*").columns)
            if len(frames) == 1:
                bus.events("seen", second_schema(), seen(range(5, 10), stars=4))
                bus.send("seen", [(b"x", b"\0\0\0\x03\xe7abc")])
            return frame

    from busway_spark.job import run_job as frame

    arguments = ["--topic", "seen", "--out", str(tmp_path), *bus.arguments, "--until-end"]
    with_topic = {"topics": lambda given: [given.topic], "add_arguments": offload._arguments}
    assert frame("offload", "", arguments, lambda job: offload.work(Watched(job)), **with_topic) == 0
    assert frames[0] == ["user", "movie", "at"]
    assert frames[-1] == ["user", "movie", "at", "stars"]
    rows = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "seen")).orderBy("user").collect()
    assert [(row.user, row.stars) for row in rows] == [(n, 4 if n >= 5 else None) for n in range(10)]
    assert [row.schema_id for row in spark.read.parquet(str(tmp_path / "seen_rejected")).collect()] == [999]


def test_a_job_that_is_killed_writes_no_row_twice_and_loses_none(bus: Any, spark: Any, tmp_path: Path) -> None:
    """SIGKILL between micro-batches, twice, then to the end: each record is there once."""
    bus.events("seen", first_schema(), seen(range(1)))
    bus.events("seen", first_schema(), seen(range(1, 3000)))
    command = [sys.executable, "-m", "busway_spark.jobs.offload", "--topic", "seen", "--out", str(tmp_path)]
    command += [*bus.arguments, "--until-end", "--max-offsets-per-trigger", "200"]
    for killed_at in (1, 4):
        with (
            (tmp_path / "said").open("w") as said,
            spawn(command, stdout=said, stderr=said, start_new_session=True) as process,
        ):
            commits = tmp_path / "_checkpoints" / "seen" / "commits"
            deadline = time.monotonic() + patient(120)
            while len(list(commits.glob("[0-9]*"))) < killed_at:
                assert process.poll() is None, (tmp_path / "said").read_text()
                assert time.monotonic() < deadline, "the job has written nothing"
                time.sleep(0.02)  # a file that another process writes announces itself by nothing else
            os.killpg(process.pid, signal.SIGKILL)
    run_job(bus, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "seen"))
    assert sorted(row.user for row in rows.select("user").collect()) == list(range(3000))
    assert rows.select("_partition", "_offset").distinct().count() == 3000


@pytest.mark.parametrize("missing", ["schema", "topic", "broker", "registry"])
def test_what_is_missing_is_told_in_one_line(bus: Any, tmp_path: Path, capfd: Any, missing: str) -> None:
    """Before a JVM starts, with the name of what is not there."""
    bus.topic("nothing")
    given = {"--topic": "nothing", "--out": str(tmp_path), "-b": bus.bootstrap_servers, "-r": bus.registry}
    change, reason = {
        "schema": ({}, "no subject nothing-value"),
        "topic": ({"--topic": "gone"}, "topic gone: the topic or partition does not exist"),
        "broker": ({"-b": "127.0.0.1:1"}, "no broker can be reached"),
        "registry": ({"-r": "http://127.0.0.1:1"}, "the schema registry at http://127.0.0.1:1 does not answer"),
    }[missing]
    given |= change
    assert offload.main([word for pair in given.items() for word in pair]) == 1
    said = capfd.readouterr().err
    assert said.startswith("offload: ")
    assert reason in said
    assert said.count("\n") == 1
