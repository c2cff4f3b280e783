"""The frame of each case study's benchmark: both brokers up, turns, rounds, the table.

Here: `Site`, where a case runs its services, and `main`.
Not here: the load and what is measured (one module each).

A case gives a coroutine function that runs its whole story once on a site and returns its figures. The registry is Busway's on both
sides, a new one for every turn; the brokers stay up, and their topics and groups are deleted before each turn.
"""

import argparse
import asyncio
import contextlib
import datetime as dt
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.jars import ROOT, ToolMissing

from benchmarks.machine import describe, touch_memory
from benchmarks.report import Metric, Row, as_json, table
from benchmarks.subjects import BUSWAY, START, Durability
from busway import Admin

ROUNDS = 2
GONE_SECONDS = 30.0
Figures = Mapping[Metric, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a case runs once.

    Attributes:
        broker: "Busway" or "Apache Kafka".
        bootstrap_servers, schema_registry: addresses.
        folder: empty, for logs and stores; gone afterwards.
        quick: a short run, to see that it works.
    """

    broker: str
    bootstrap_servers: str
    schema_registry: str
    folder: Path
    quick: bool

    @property
    def environment(self) -> dict[str, str]:
        """What `busway run` reads the addresses from."""
        return {
            "BUSWAY_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "BUSWAY_SCHEMA_REGISTRY": self.schema_registry,
        }


Measure = Callable[[Site], Coroutine[Any, Any, Figures]]


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[str]:
    """A schema registry in a process of its own; yields its address."""
    with (folder / "registry.log").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "busway.cli", "registry", "--database", "memory:", "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if not said:
            raise RuntimeError(f"the registry did not start:\n{(folder / 'registry.log').read_text()[-2000:]}")
        yield json.loads(said)["schema_registry"]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def _empty(bootstrap_servers: str) -> None:
    async with Admin(bootstrap_servers) as admin:
        if groups := [group.group_id for group in await admin.list_groups()]:
            await admin.delete_groups(groups)
        topics = [name for name in await admin.list_topics() if not name.startswith("__")]
        if topics:
            await admin.delete_topics(topics)
        async with asyncio.timeout(GONE_SECONDS):
            while set(topics) & set(await admin.list_topics()):
                await asyncio.sleep(0.1)


def _turn(measure: Measure, broker: str, bootstrap_servers: str, *, quick: bool) -> Figures:
    asyncio.run(_empty(bootstrap_servers))
    touch_memory()
    with tempfile.TemporaryDirectory(prefix="busway-case-") as scratch:
        folder = Path(scratch)
        with registry(folder) as url:
            site = Site(
                broker=broker,
                bootstrap_servers=bootstrap_servers,
                schema_registry=url,
                folder=folder,
                quick=quick,
            )
            return asyncio.run(measure(site))


def compare(
    case: str, measure: Measure, *, rounds: int, durabilities: Sequence[Durability], quick: bool
) -> dict[str, Row]:
    """Both brokers in turns, in each durability; the rows by name."""
    rows: dict[str, Row] = {}
    for durability in durabilities:
        with contextlib.ExitStack() as running:
            subjects = [running.enter_context(start(durability)) for start in START.values()]
            for number in range(rounds):
                for subject in subjects:
                    figures = _turn(measure, subject.name, subject.bootstrap_servers, quick=quick)
                    for metric, value in figures.items():
                        row = rows.setdefault(
                            f"{durability.value} {metric.name}",
                            Row(durability=durability.value, workload=case, metric=metric),
                        )
                        (row.ours if subject.name == BUSWAY else row.theirs).append(value)
                print(f"{case}, {durability.value}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return rows


def main(case: str, measure: Measure, arguments: list[str] | None = None) -> int:
    """The command line of a case's benchmark: measures, prints the table and one line of JSON."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog=f"python -m benchmarks.case_studies.{case}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each broker (default {ROUNDS})")
    parser.add_argument(
        "--durability", choices=[durability.name.lower() for durability in Durability], help="only this durability"
    )
    parser.add_argument("--quick", action="store_true", help="one short round, as a test of the benchmark")
    given = parser.parse_args(arguments)
    durabilities = [Durability[given.durability.upper()]] if given.durability else list(Durability)
    try:
        machine = describe()
        rows = compare(
            case,
            measure,
            rounds=1 if given.quick else given.rounds,
            durabilities=durabilities,
            quick=given.quick,
        )
    except ToolMissing as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    now = dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")
    content = as_json(list(rows.values()), machine, date=now, rounds=given.rounds, quick=given.quick)
    target = ROOT / ".cache" / "bench" / f"case-{case}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(content, indent=1) + "\n")
    print(table(list(rows.values())))
    print(
        json.dumps({name: {"busway": row.ours, "kafka": row.theirs, "ratio": row.ratio} for name, row in rows.items()})
    )
    return 0
