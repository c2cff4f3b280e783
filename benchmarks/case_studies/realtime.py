"""How long a record takes through a Spark job, in Real-Time Mode and in micro-batches: `python -m benchmarks.spark --latency`.

Here: the load, the clock, the table.
Not here: the job, which is MyBank's `mybank.jobs.large`, as it is; throughput (`spark`).

Captured transactions go to the job's topic at an even pace, one acknowledged before the next is sent; the job decodes them, keeps the
large ones and writes them to another topic, where a consumer of ours reads them. A latency is the time from before a record is sent until
it has been read again: producer, broker, Spark, broker, consumer, all on this machine. Records of a warm-up are not counted. The modes take
turns, each in a process of its own with a JVM of its own. Micro-batches follow one upon the other without a pause.
"""

import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mybank.jobs.captured import TRANSACTIONS
from mybank.tests.captured import Captured

from benchmarks.subjects import Durability, busway
from benchmarks.trees import cpu_seconds_of_tree
from busway import Admin, App, Consumer, NewTopic
from busway_spark.job import MICRO_BATCH, REALTIME

TO: Final = "mybank.large"
PARTITIONS: Final = 2
PER_S: Final = 200
START_S: Final = 120.0
WARM_UP_S: Final = 20.0
WINDOW_S: Final = 30.0
WAIT_S: Final = 30.0
AMOUNT: Final = "250000.00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One turn of a mode.

    Attributes:
        latencies_ms: of the window's records, in the order of their sending.
        cores: CPU seconds of the job's processes for each second of the window.
    """

    latencies_ms: list[float]
    cores: float


class _Load:
    """Sends and hears of each record by its id."""

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self.sent: dict[int, float] = {}
        self.heard: dict[int, float] = {}
        self.news = asyncio.Event()

    async def send(self, seconds: float) -> list[int]:
        """At an even pace; the ids."""
        begun, ids = time.perf_counter(), []
        for turn in range(int(seconds * PER_S)):
            await asyncio.sleep(max(0.0, begun + turn / PER_S - time.perf_counter()))
            number = len(self.sent)
            self.sent[number] = time.perf_counter()
            await self._captured.transaction(number, AMOUNT, account=f"account-{number % 50}")
            ids.append(number)
        return ids

    async def hear(self, bootstrap_servers: str) -> None:
        """Until it is cancelled."""
        async with Consumer(TO, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
            while True:
                record = await consumer.getone()
                self.heard.setdefault(json.loads(record.value or b"")["id"], time.perf_counter())
                self.news.set()

    async def all_of(self, ids: list[int], seconds: float) -> None:
        """Wait until they have been heard of."""
        async with asyncio.timeout(seconds):
            while not self.heard.keys() >= set(ids):
                self.news.clear()
                await self.news.wait()


async def sample(mode: str, bootstrap_servers: str, registry: str) -> Sample:
    """One turn, on topics of its own."""
    async with Admin(bootstrap_servers) as admin:
        for topic in (TRANSACTIONS, TO):
            if topic in await admin.list_topics():
                await admin.delete_topics([topic])
            await admin.create_topics([NewTopic(topic, PARTITIONS)])
    app = App("bank", bootstrap_servers, registry)
    with tempfile.TemporaryDirectory(prefix="busway-latency-") as folder:
        async with app, Captured(app) as captured:
            load = _Load(captured)
            first = await load.send(1 / PER_S)  # registers the schema, which the job asks for
            listening = asyncio.ensure_future(load.hear(bootstrap_servers))
            job = await _start(mode, bootstrap_servers, registry, Path(folder))
            try:
                await load.all_of(first, START_S)
                await load.send(WARM_UP_S)
                before = cpu_seconds_of_tree(job.pid)
                window = await load.send(WINDOW_S)
                cores = (cpu_seconds_of_tree(job.pid) - before) / WINDOW_S
                await load.all_of(window, WAIT_S)
            except TimeoutError:
                raise SystemExit(f"{mode}: records are missing; the job's log:\n{_tail(Path(folder))}") from None
            finally:
                listening.cancel()
                os.killpg(job.pid, signal.SIGKILL)
                await job.wait()
    return Sample(latencies_ms=[(load.heard[probe] - load.sent[probe]) * 1000 for probe in window], cores=cores)


async def _start(mode: str, bootstrap_servers: str, registry: str, folder: Path) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "mybank.jobs.large", "--mode", mode, "--to", TO, "--master", "local[4]"]
    command += ["--bootstrap-servers", bootstrap_servers, "--registry", registry, "--out", str(folder)]
    with (folder / "job.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *command,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )


def _tail(folder: Path) -> str:
    return (folder / "job.log").read_text()[-2000:]


def measure(rounds: int) -> dict[str, list[Sample]]:
    """Samples of both modes, taken in turns."""
    from busway_registry.config import RegistryConfig
    from busway_registry.server import RegistryServer

    samples: dict[str, list[Sample]] = {REALTIME: [], MICRO_BATCH: []}

    async def turns(bootstrap_servers: str) -> None:
        async with RegistryServer(RegistryConfig(port=0, database="memory:")) as registry:
            for _ in range(rounds):
                for mode, taken in samples.items():
                    taken.append(await sample(mode, bootstrap_servers, registry.url))
                    sys.stderr.write(f"{mode}: {row(taken[-1])}\n")

    with busway(Durability.OS) as subject:
        asyncio.run(turns(subject.bootstrap_servers))
    return samples


def row(sample: Sample) -> dict[str, float]:
    """Percentiles in milliseconds, and CPU cores."""
    ordered = sorted(sample.latencies_ms)
    at = {f"p{percent}": ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] for percent in (50, 95, 99)}
    return {name: round(value, 1) for name, value in {**at, "max": ordered[-1]}.items()} | {
        "cores": round(sample.cores, 2)
    }


def report(samples: dict[str, list[Sample]]) -> str:
    """A Markdown table: medians of the rounds, and the range of the p50."""
    lines = ["| mode | p50, ms | of rounds | p95 | p99 | max | CPU cores |", "|---|---|---|---|---|---|---|"]
    for mode, taken in samples.items():
        rows = [row(sample) for sample in taken]
        middle: dict[str, Any] = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        p50s = sorted(row["p50"] for row in rows)
        lines.append(
            f"| {mode} | {middle['p50']:.1f} | {p50s[0]:.1f} to {p50s[-1]:.1f} | {middle['p95']:.1f} | {middle['p99']:.1f} "
            f"| {middle['max']:.1f} | {middle['cores']:.2f} |"
        )
    return "\n".join(lines)
