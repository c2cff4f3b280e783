"""Jobs from the command line: `busway spark`, `spark-submit`, and what the listener tells of them."""

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patient

from busway import Admin, TopicPartition
from busway_spark import LagListener, Progress, stream_topic, to_store
from busway_spark.jars import jar_paths
from busway_spark.submit import find_job, spark_submit, submit_command, zip_packages

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
JOB = '''
"""Counts rides of a driver."""
import sys
from busway_spark.job import Job, run_job

def transform(rides):
    return rides.where("error is null").groupBy("event.driver").count()

def work(job: Job) -> None:
    job.store(transform(job.read("rides")), "counts")

def main(argv=None) -> int:
    return run_job("counts", __doc__, argv, work, topics=lambda given: ["rides"])

if __name__ == "__main__":
    sys.exit(main())
'''


@dataclass
class Ride:
    """An event."""

    driver: str
    fare: float


def write_rides(bus: Any) -> None:
    """Thirty rides of three drivers."""
    bus.events("rides", Ride, [{"driver": f"d{number % 3}", "fare": 1.0} for number in range(30)])


def counts(spark: Any, out: Path) -> dict[str, int]:
    """What the job wrote."""
    return {row["driver"]: row["count"] for row in spark.read.parquet(str(out / "counts")).collect()}


def run(command: list[str], folder: Path) -> Any:
    """A command to its end."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patient(240), check=False)


def test_busway_spark_runs_a_job_of_ones_own(bus: Any, spark: Any, tmp_path: Path) -> None:
    """By the path of its module, from the folder where it is; a name that is no job is refused with those that there are."""
    write_rides(bus)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "counting.py").write_text(JOB)
    done = run(
        [sys.executable, "-m", "busway.cli", "spark", "shop.counting", "--out", "store", *bus.arguments], tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert counts(spark, tmp_path / "store") == {"d0": 10, "d1": 10, "d2": 10}
    refused = run([sys.executable, "-m", "busway.cli", "spark", "nothing"], tmp_path)
    assert refused.returncode == 1
    assert "there is no job nothing: give offload, or a module" in refused.stderr
    assert "Traceback" not in refused.stderr
    helped = run([sys.executable, "-m", "busway.cli", "spark", "offload", "--help"], tmp_path)
    assert "--max-offsets-per-trigger" in helped.stdout


def test_a_job_of_one_file_is_found_and_goes_to_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of its file, without a package around it; Spark's settings are passed to spark-submit before the job runs."""
    (tmp_path / "hourly_counts.py").write_text(JOB)
    monkeypatch.syspath_prepend(tmp_path)
    module = find_job("hourly_counts")
    assert module.__file__ == str(tmp_path / "hourly_counts.py")
    given = ["--out", "store", "--conf", "spark.executor.memory=4g", "--conf=spark.submit.deployMode=client"]
    command = submit_command(module.__name__, "spark://nowhere:7077", given, tmp_path)
    own = command[: command.index(str(tmp_path / "busway_job.py"))]
    assert [own[at + 1] for at, part in enumerate(own) if part == "--conf"][-2:] == [
        "spark.executor.memory=4g",
        "spark.submit.deployMode=client",
    ]
    assert command[-len(given) :] == given
    with zipfile.ZipFile(tmp_path / "busway-jobs.zip") as archive:
        assert {"hourly_counts.py", "busway_spark/job.py"} <= set(archive.namelist())


def test_spark_submit_runs_a_job(bus: Any, spark: Any, tmp_path: Path) -> None:
    """With the packages as --py-files and nothing of this checkout on the path."""
    write_rides(bus)
    (tmp_path / "job.py").write_text(JOB)
    zip_packages(tmp_path / "busway.zip", ["busway_protocol", "busway", "busway_spark"])
    jars = ",".join(str(path) for path in jar_paths())
    command = [spark_submit(), "--master", "local[2]", "--jars", jars, "--py-files", "busway.zip", "job.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [*command, "--out", "store", *bus.arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(240),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert counts(spark, tmp_path / "store") == {"d0": 10, "d1": 10, "d2": 10}


@pytest.mark.parametrize("source", ["kafka", "busway"])
def test_lag_is_told_to_people_prometheus_and_group_tools(bus: Any, spark: Any, tmp_path: Path, source: str) -> None:
    """Each micro-batch: offsets behind the end, rates, a text file for Prometheus, and committed offsets of a group."""
    write_rides(bus)
    progress: list[Progress] = []
    figures = tmp_path / "busway.prom"
    listener = LagListener(
        callback=progress.append, text_file=str(figures), group="spark-{query}", bootstrap_servers=bus.bootstrap_servers
    )
    spark.streams.addListener(listener)
    try:
        frame = stream_topic(spark, "rides", max_offsets_per_trigger=12, source=source, **bus.servers)
        checkpoint = str(tmp_path / "checkpoint")
        query = to_store(
            frame, str(tmp_path / "rows"), checkpoint=checkpoint, name="rides", trigger={"availableNow": True}
        )
        query.awaitTermination()
        # Spark tells listeners in a thread of its own; the last report is there when the removal has gone through the same queue.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    batches = [report for report in progress if report.rows]
    assert sum(report.rows for report in batches) == 30
    # The kafka source tells the end as it was when the query began, ours as well; the first batch is behind, the last is not.
    assert batches[0].behind_total >= 30 - 14
    assert batches[-1].behind_total == 0
    assert 'busway_spark_offsets_behind_latest{query="rides"} 0.0' in figures.read_text()
    assert listener.commit_problem is None

    async def committed() -> Any:
        async with Admin(bus.bootstrap_servers) as admin:
            return await admin.list_group_offsets("spark-rides")

    offsets = {partition: committed_offset.offset for partition, committed_offset in bus.run(committed()).items()}
    assert offsets == batches[-1].offsets
    assert set(offsets) == {TopicPartition("rides", 0), TopicPartition("rides", 1)}
    assert sum(offsets.values()) == 30


def test_a_batch_that_delta_has_is_passed_over(spark: Any, tmp_path: Path) -> None:
    """A micro-batch that is run again after a crash adds nothing; another query's batch of the same number does."""
    from busway_spark import delta_writer

    rows, path = spark.range(5), str(tmp_path / "table")
    for application, number in (("one", 0), ("one", 0), ("one", 1), ("two", 0)):
        delta_writer(path, application=application)(rows, number)
    assert spark.read.format("delta").load(path).count() == 15


def test_transform_with_state_keeps_a_running_total(bus: Any, spark: Any, tmp_path: Path) -> None:
    """Spark's stateful operator in Python on a topic: totals over two runs of the query, from its checkpoint."""
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Total(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.total = handle.getValueState("total", "fare double")

        def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:
            before = self.total.get()[0] if self.total.exists() else 0.0
            now = before + sum(float(frame.fare.sum()) for frame in rows)
            self.total.update((now,))
            yield pd.DataFrame({"driver": [key[0]], "total": [now]})

        def close(self) -> None:
            pass

    by_driver: dict[str, float] = {}
    for _ in range(2):
        write_rides(bus)
        rides = stream_topic(spark, "rides", **bus.servers).select("event.driver", "event.fare")
        totals = rides.groupBy("driver").transformWithStateInPandas(
            Total(), "driver string, total double", "update", "none"
        )
        query = (
            totals.writeStream.foreachBatch(
                lambda batch, _: by_driver.update({row.driver: row.total for row in batch.collect()})
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .outputMode("update")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert by_driver == {"d0": 20.0, "d1": 20.0, "d2": 20.0}


def test_a_stream_that_begins_anew_writes_anew_to_delta(bus: Any, spark: Any, tmp_path: Path) -> None:
    """With its checkpoint a second run adds nothing; with that checkpoint removed it is another query, whose first batch counts."""
    write_rides(bus)
    checkpoint, path = tmp_path / "checkpoint", str(tmp_path / "table")

    def rows_after_a_run() -> int:
        frame = stream_topic(spark, "rides", **bus.servers).select("event.*")
        query = to_store(frame, path, format="delta", checkpoint=str(checkpoint), trigger={"availableNow": True})
        query.awaitTermination()
        return spark.read.format("delta").load(path).count()

    assert [rows_after_a_run(), rows_after_a_run()] == [30, 30]
    shutil.rmtree(checkpoint)
    assert rows_after_a_run() == 60
