"""`python -m benchmarks.spark`: typed topics in Spark, by both readers, beside Spark's raw Kafka source with a single `from_avro`.

Here: the data, one process for each sample, and the table.
Not here: the readers (`busway_spark`). The topic is on Busway, holds framed Avro of several writers' versions in 4
partitions, and goes to Spark's `noop` sink. Every sample is a process of its own with a JVM of its own, which reads the
topic several times: the first is cold, the others warm. The variants take turns. The raw source decodes every record
with the first version's schema, which fits the beginning of all of them: it is what the typed reader is measured
against, not a way to read such a topic. Each version has a field more and the typed reader reads all as the newest, so
it makes more columns than that; a second raw variant makes as many.
"""

import argparse
import asyncio
import io
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fastavro

from benchmarks.machine import describe
from benchmarks.subjects import Durability, busway
from benchmarks.trees import cpu_seconds_of_tree
from busway import Admin, NewTopic, Producer, RegistryClient

TOPIC = "rides"
PARTITIONS = 4
WARM_RUNS = 3
RAW = "raw kafka source, one from_avro"
SAME_COLUMNS = "the same, read as the newest version"
VARIANTS = {
    RAW: ("kafka", "raw"),
    SAME_COLUMNS: ("kafka", "raw_newest"),
    "read_topic, kafka source": ("kafka", "jvm"),
    "read_topic, busway source": ("busway", "jvm"),
    "read_topic, busway source, decoded in Python": ("busway", "python"),
    "kafka source, nothing decoded": ("kafka", "none"),
    "busway source, nothing decoded": ("busway", "none"),
}


def version(number: int) -> str:
    """The schema of a version: each has an optional field more, at the end."""
    fields: list[dict[str, Any]] = [
        {"name": "ride", "type": "long"},
        {"name": "driver", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "fare", "type": "double"},
    ]
    fields += [{"name": f"extra_{extra}", "type": ["null", "string"], "default": None} for extra in range(1, number)]
    return json.dumps({"type": "record", "name": "Ride", "fields": fields})


async def fill(bootstrap_servers: str, registry_url: str, records: int, versions: int) -> None:
    """Register the versions and write the records, all versions in turn."""
    async with RegistryClient(registry_url) as registry:
        ids = [await registry.register(f"{TOPIC}-value", version(number)) for number in range(1, versions + 1)]
    async with Admin(bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
    schemas = [fastavro.parse_schema(json.loads(version(number))) for number in range(1, versions + 1)]
    async with Producer(bootstrap_servers, linger_ms=20, batch_size=256 * 1024) as producer:
        for number in range(records):
            chosen = number % versions
            out = io.BytesIO()
            out.write(struct.pack(">bI", 0, ids[chosen]))
            ride = {
                "ride": number,
                "driver": f"driver-{number % 5000}",
                "at": 1_770_000_000_000_000 + number,
                "fare": 7.5,
            }
            fastavro.schemaless_writer(out, schemas[chosen], ride | ({"extra_1": "x"} if chosen else {}))
            await producer.send(TOPIC, out.getvalue(), b"%d" % (number % 5000), partition=number % PARTITIONS)


def sample(variant: str, bootstrap_servers: str, registry_url: str, versions: int, runs: int) -> list[dict[str, float]]:
    """Read the topic some times in this process; seconds, CPU seconds of this process and its children, and seconds of planning."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
    from pyspark.sql.avro.functions import from_avro

    from busway_spark.avro import available_decoder
    from busway_spark.session import session
    from busway_spark.topics import read_topic

    source, decoder = VARIANTS[variant]
    spark = session("benchmark", settings={"spark.log.level": "ERROR"})
    available_decoder(spark)
    servers = {"bootstrap_servers": bootstrap_servers, "schema_registry": registry_url}
    figures = []
    for _ in range(runs):
        begun, cpu = time.perf_counter(), cpu_seconds_of_tree(os.getpid())
        if decoder in {"raw", "raw_newest", "none"}:
            options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": TOPIC, "includeHeaders": "true"}
            options |= {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
            frame = spark.read.format(source).options(**options).load()
            if decoder != "none":
                reader = {"avroSchema": version(versions)} if decoder == "raw_newest" else {}
                body = F.substring("value", 6, 2**31 - 1)
                frame = frame.withColumn("event", from_avro(body, version(1), {"mode": "PERMISSIVE", **reader}))
        else:
            frame = read_topic(spark, TOPIC, source=source, decoder=decoder, **servers)
        frame._jdf.queryExecution().executedPlan()
        planned = time.perf_counter() - begun
        frame.write.format("noop").mode("overwrite").save()
        took = time.perf_counter() - begun
        figures.append({"seconds": took, "cpu": cpu_seconds_of_tree(os.getpid()) - cpu, "planned": planned})
    spark.stop()
    return figures


def measure(records: int, versions: int, rounds: int, variants: list[str]) -> dict[str, list[list[dict[str, float]]]]:
    """Samples of each variant, taken in turns."""
    from busway_registry.config import RegistryConfig
    from busway_registry.server import RegistryServer

    samples: dict[str, list[list[dict[str, float]]]] = {variant: [] for variant in variants}

    async def all_of_it(bootstrap_servers: str) -> None:
        async with RegistryServer(RegistryConfig(port=0, database="memory:")) as registry:
            await fill(bootstrap_servers, registry.url, records, versions)
            for _ in range(rounds):
                for variant in variants:
                    command = [sys.executable, "-m", "benchmarks.spark", "--sample", variant]
                    command += ["--servers", bootstrap_servers, "--registry", registry.url, "--ids", str(versions)]
                    child = await asyncio.create_subprocess_exec(
                        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                    )
                    said, _ = await child.communicate()
                    samples[variant].append(json.loads(said))
                    warm = samples[variant][-1][-1]
                    sys.stderr.write(
                        f"{versions} ids, {variant}: {records / warm['seconds'] / 1000:.0f} k rows/s warm\n"
                    )

    with busway(Durability.OS) as subject:
        asyncio.run(all_of_it(subject.bootstrap_servers))
    return samples


def report(samples: dict[str, list[list[dict[str, float]]]], records: int, versions: int) -> str:
    """A Markdown table: medians of the rounds, and the ratio to the raw source in the same round."""
    lines = [
        "| ids | reader | cold, k rows/s | warm, k rows/s | warm, of the raw source | of rounds | k rows/CPU-s | planning, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    warm = {variant: [_best(run) for run in runs] for variant, runs in samples.items()}
    for variant, runs in samples.items():
        ratios = [
            raw["seconds"] / own_run["seconds"] for raw, own_run in zip(warm.get(RAW, []), warm[variant], strict=False)
        ]
        cold = records / statistics.median(run[0]["seconds"] for run in runs) / 1000
        speed = records / statistics.median(run["seconds"] for run in warm[variant]) / 1000
        cpu = records / statistics.median(run["cpu"] for run in warm[variant]) / 1000
        planning = statistics.median(run["planned"] for run in warm[variant])
        ratio = f"{statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f}" if ratios else " | "
        lines.append(f"| {versions} | {variant} | {cold:.0f} | {speed:.0f} | {ratio} | {cpu:.0f} | {planning:.2f} |")
    return "\n".join(lines)


def _best(run: list[dict[str, float]]) -> dict[str, float]:
    return min(run[1:], key=lambda run: run["seconds"])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="benchmarks.spark", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ids", type=int, nargs="*", default=[2, 10, 50], help="numbers of writers' versions")
    parser.add_argument("--json", type=Path, help="file for all samples")
    parser.add_argument("--sample", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    parser.add_argument("--registry", help=argparse.SUPPRESS)
    parser.add_argument(
        "--latency", action="store_true", help="measure a job's latency instead, see benchmarks.case_studies.realtime"
    )
    given = parser.parse_args()
    if given.latency:
        return latency(given.rounds, given.json)
    if given.sample:
        print(json.dumps(sample(given.sample, given.servers, given.registry, given.ids[0], WARM_RUNS + 1)))
        return 0
    gathered: dict[int, Any] = {}
    for ids in given.ids:
        variants = list(VARIANTS) if ids == given.ids[0] else list(VARIANTS)[:4]
        gathered[ids] = measure(given.records, ids, given.rounds, variants)
        print(report(gathered[ids], given.records, ids), flush=True)
    keep(gathered, given.json or Path(tempfile.gettempdir()) / "busway-spark-benchmark.json")
    return 0


def latency(rounds: int, where: Path | None) -> int:
    """Real-Time Mode beside micro-batches."""
    from benchmarks.case_studies import realtime

    samples = realtime.measure(rounds)
    print(realtime.report(samples))
    gathered = {mode: [asdict(sample) for sample in taken] for mode, taken in samples.items()}
    keep(gathered, where or Path(tempfile.gettempdir()) / "busway-spark-latency.json")
    return 0


def keep(gathered: Any, where: Path) -> None:
    """Tell the machine, and where all samples are."""
    print("\n".join(f"{name}: {value}" for name, value in describe().items()))
    where.write_text(json.dumps(gathered))
    print(f"all samples: {where}")


if __name__ == "__main__":
    sys.exit(main())
