"""What exactly once costs, in `busway.App`, Kafka Streams and Quix Streams on the same broker: `python -m benchmarks.exactly_once`.

Here: the service of Busway, how those of the others (`rivals`) are started, and the comparison.
Not here: handlers that write nothing, beside other libraries (`handlers`).

As in `handlers`, each turn is a process of its own that is the only member of a new group, and 100,000 small JSON records in four
partitions are there before it starts. Each is parsed, and one that says the same is written with the same key. Everything is as each
library has it by default; `concurrency` is Busway's number of calls at a time in one partition, the others have one. The clock runs from
the first record that is handled until the service has stopped with all of them committed, which is checked: that so many can be read
as committed of what was written, and that the offset of each partition is its end.
"""

import argparse
import asyncio
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from tests.support.apache_kafka import JDK
from tools.jars import ROOT, need, streams_libs

from benchmarks.handlers import PARTITIONS, TOPIC, TURN_S, Progress, Ride, fill
from benchmarks.subjects import BUSWAY, KAFKA, START, Durability
from busway import Admin, App, NewTopic, read_to_end

RIVALS: Final = Path(__file__).with_name("rivals")
QUIX: Final = "quixstreams==3.28.1"
TURNS: Final = {
    "Busway, at least once": ("busway", "at_least_once", 1),
    "Busway, exactly once": ("busway", "exactly_once", 1),
    "Busway, at least once, concurrency 64": ("busway", "at_least_once", 64),
    "Busway, exactly once, concurrency 64": ("busway", "exactly_once", 64),
    "Kafka Streams, at_least_once": ("streams", "at_least_once", 1),
    "Kafka Streams, exactly_once_v2": ("streams", "exactly_once_v2", 1),
    "Quix Streams, at-least-once": ("quix", "at-least-once", 1),
    "Quix Streams, exactly-once": ("quix", "exactly-once", 1),
}
"""Whose, with which guarantee, and how many calls at a time."""
OURS: Final = "Busway, exactly once"


async def serve(bootstrap: str, group: str, results: str, guarantee: Any, records: int, concurrency: int) -> None:
    """Busway's turn: handle all records; prints seconds and seconds of processor time."""
    progress = Progress(records)
    app = App(group, bootstrap)
    rides = app.topic(TOPIC, value=Ride, format="json")
    fares = app.topic(results, value=Ride, format="json")

    @app.publish(fares)
    @app.subscribe(rides, guarantee=guarantee, concurrency=concurrency)
    async def price(ride: Ride) -> Ride:
        progress.count_record()
        return ride

    async with app:
        await progress.done.wait()
    print(json.dumps({"seconds": time.monotonic() - progress.began, "cpu_s": time.process_time() - progress.cpu_began}))


def command_of(name: str, given: list[str]) -> list[str]:
    """What runs a turn: bootstrap, group, topic, topic of results, guarantee, records, and a folder to work in are given to it."""
    whose, _, concurrency = TURNS[name]
    if whose == "streams":
        jars = f"{streams_libs()}/*"
        return [need("java", JDK), "-Xmx1g", "-cp", jars, str(RIVALS / "StreamsService.java"), *given]
    if whose == "quix":
        return [str(quix_python()), str(RIVALS / "quix_service.py"), *given]
    return [sys.executable, "-m", "benchmarks.exactly_once", "--turn", *given, "--concurrency", str(concurrency)]


def quix_python() -> Path:
    """An interpreter that has Quix Streams, whose client is older than the one that the others here are measured with."""
    folder = ROOT / ".cache" / QUIX
    python = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", QUIX], check=True)
        (folder / ".complete").touch()
    return python


async def make_topic(bootstrap: str, name: str) -> None:
    """Where a turn's results go."""
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS)])


async def check(bootstrap: str, group: str, results: str, records: int) -> str:
    """What is wrong with what a turn left behind; empty if nothing is."""
    async with Admin(bootstrap) as admin:
        committed = sum(committed.offset for committed in (await admin.list_group_offsets(group)).values())
    written = 0
    async for _ in read_to_end(bootstrap, results, isolation_level="read_committed"):
        written += 1
    if committed >= records and written == records:
        return ""
    return f"{committed} committed and {written} written of {records}"


def take_turn(name: str, bootstrap: str, records: int) -> dict[str, float]:
    """One service from its start to its end; seconds and seconds of processor time."""
    group = f"bench-{uuid4().hex[:8]}"
    results = f"{group}-fares"
    asyncio.run(make_topic(bootstrap, results))
    with tempfile.TemporaryDirectory() as folder:
        command = command_of(name, [bootstrap, group, TOPIC, results, TURNS[name][1], str(records), folder])
        done = subprocess.run(command, capture_output=True, text=True, timeout=TURN_S, check=False)
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    if problem := asyncio.run(check(bootstrap, group, results, records)):
        print(f"{name}: {problem}", file=sys.stderr)
    sample: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return sample


def compare(broker: str, records: int, rounds: int, names: list[str]) -> None:
    """The turns of all, round by round, and a table of medians."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with START[broker](Durability.OS) as subject:
        asyncio.run(fill(subject.bootstrap_servers, records))
        for number in range(rounds):
            for name in names:
                sample = take_turn(name, subject.bootstrap_servers, records)
                samples[name].append(sample)
                rate = f"{records / sample['seconds']:,.0f}/s"
                print(f"{broker}, round {number + 1}, {name}: {rate}", file=sys.stderr, flush=True)
    print(f"On {broker}:\n\n| service | read, handled, written/s | CPU s per 100,000 | {OURS} is times as fast |")
    print("|---|---|---|---|")
    for name in names:
        rate = statistics.median(records / sample["seconds"] for sample in samples[name])
        cpu_s = statistics.median(sample["cpu_s"] * 100_000 / records for sample in samples[name])
        pairs = zip(samples[OURS], samples[name], strict=True) if OURS in samples else ()
        ratios = [other["seconds"] / ours["seconds"] for ours, other in pairs]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else ""
        print(f"| {name} | {rate:,.0f} | {cpu_s:.2f} | {ratio} |")
    print()


def main() -> None:
    """Compare, or take one turn."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.partition(":")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--broker", choices=(BUSWAY, KAFKA), action="append", help="only on this broker; repeatable")
    parser.add_argument("--only", choices=list(TURNS), action="append", help="only these services; repeatable")
    parser.add_argument("--turn", nargs=7, help=argparse.SUPPRESS)
    parser.add_argument("--concurrency", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turn is None:
        for broker in given.broker or (BUSWAY, KAFKA):
            compare(broker, given.records, given.rounds, given.only or list(TURNS))
        return
    logging.disable(logging.CRITICAL)
    bootstrap, group, _, results, guarantee, records, _ = given.turn
    asyncio.run(serve(bootstrap, group, results, guarantee, int(records), given.concurrency))


if __name__ == "__main__":
    main()
