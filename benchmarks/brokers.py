"""`python -m benchmarks.brokers`: Busway and Apache Kafka 4.3.1 side by side, in turns, on the same clients.

Here: durabilities, rounds, turns, and the options.
Not here: the loads (`workloads`), the arithmetic (`report`). Both brokers stay up while a durability is measured and
take turns, so that what else the machine does hits both alike; the ratio is taken in each round, and the table shows
the median of the rounds.
"""

import argparse
import contextlib
import datetime as dt
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.jars import ROOT, ToolMissing

from benchmarks.clients import LoadFailed
from benchmarks.machine import describe, load_average, touch_memory
from benchmarks.report import Row, as_json, table
from benchmarks.subjects import BUSWAY, START, Durability, Start, Subject
from benchmarks.workloads import LOADED, Figures, Workload, loads, started

START_NAME = "start"
ROUNDS = 3
IDLE_SECONDS = 3.0


class Bench:
    """One run of the benchmark, gathering its rows.

    Args:
        chosen: what is measured; a load that has `durabilities` is measured in those alone.
        starts: whether the start of the brokers is measured too, in processes of their own where there is time for it.
        subjects: how each is started, in the order of their turns.
    """

    def __init__(
        self,
        chosen: Sequence[Workload],
        *,
        rounds: int,
        quick: bool,
        starts: bool,
        subjects: Mapping[str, Start] = START,
    ) -> None:
        self._chosen = chosen
        self._subjects = subjects
        self._rounds = rounds
        self._quick = quick
        self._starting = starts
        self._rows: dict[tuple[str, str, str, str], Row] = {}

    @property
    def rows(self) -> list[Row]:
        """What was measured, in the order in which it was."""
        return list(self._rows.values())

    def run(self) -> None:
        """Measure everything asked for."""
        if self._starting and not (self._quick and self._chosen):
            for number in range(self._rounds):
                self._starts(number)
        for durability in Durability:
            chosen = [load for load in self._chosen if self._measured(load, durability)]
            if chosen:
                self._loads(durability, chosen)

    def _measured(self, load: Workload, durability: Durability) -> bool:
        """A quick run starts no JVM for the client where what goes over the wire is the same."""
        if self._quick and "java" in load.name and durability is Durability.FLUSH:
            return False
        return durability in getattr(load, "durabilities", Durability)

    def _starts(self, number: int) -> None:
        for start in self._subjects.values():
            with start(Durability.OS) as subject:
                self._started(subject)
        _say(f"start: round {number + 1} of {self._rounds}")

    def _loads(self, durability: Durability, chosen: list[Workload]) -> None:
        with contextlib.ExitStack() as running:
            subjects = []
            for start in self._subjects.values():
                subjects.append(running.enter_context(start(durability)))
                if self._quick and self._starting and durability is Durability.OS:
                    self._started(subjects[-1])
            for load in chosen:  # one after the other: what a later one needs set up burdens no earlier one
                for subject in subjects:
                    load.prepare(subject)
                warm_up = not self._quick and getattr(load, "warms_up", True)
                for number in range(-1 if warm_up else 0, self._rounds):
                    for subject in subjects:
                        self._turn(durability, load, subject, counted=number >= 0)
                _say(f"{durability.value}: {load.name}")
            for subject in subjects:
                self._note(durability.value, "all of the above", subject.name, {LOADED: subject.resident_mib()})

    def _started(self, subject: Subject) -> None:
        self._note("any", START_NAME, subject.name, started(subject, 0.5 if self._quick else IDLE_SECONDS))

    def _turn(self, durability: Durability, load: Workload, subject: Subject, *, counted: bool) -> None:
        if not self._quick:
            os.sync()
            touch_memory()
        try:
            figures = load.measure(subject)
        except LoadFailed as problem:
            raise LoadFailed(f"{load.name} on {subject.name}: {problem}") from problem
        if counted:
            self._note(durability.value, load.name, subject.name, figures)

    def _note(self, durability: str, workload: str, subject: str, figures: Figures) -> None:
        for metric, value in figures.items():
            key = (durability, workload, metric.name, metric.unit)
            row = self._rows.setdefault(key, Row(durability=durability, workload=workload, metric=metric))
            (row.ours if subject == BUSWAY else row.theirs).append(value)


class Stopped(Exception):
    """A signal ended the run."""


def _stop(*_: object) -> None:
    raise Stopped


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def command(
    name: str,
    about: str,
    loads: Callable[..., Sequence[Workload]],
    arguments: list[str] | None,
    *,
    starts: bool,
    subjects: Mapping[str, Start] = START,
) -> int:
    """A program of this kind: its options, its run, its table, its JSON.

    Args:
        loads: every workload, shorter ones with `quick`.
        starts: whether it measures the start of the brokers, too.
    """
    names = [*([START_NAME] if starts else []), *(load.name for load in loads(quick=False))]
    parser = argparse.ArgumentParser(allow_abbrev=False, prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument(
        "--quick", action="store_true", help="one short round without warm-up, as a test of the benchmark"
    )
    parser.add_argument("--rounds", type=int, help=f"turns of each broker (default {ROUNDS})")
    parser.add_argument(
        "--only", default="", metavar="NAME", help=f"only workloads with this in their name: {', '.join(names)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the figures (default below .cache/bench)")
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not any(options.only in name for name in names):
        parser.error(f"no workload has {options.only!r} in its name: {', '.join(names)}")
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    chosen = [load for load in loads(quick=options.quick) if options.only in load.name]
    bench = Bench(
        chosen,
        rounds=rounds,
        quick=options.quick,
        starts=starts and options.only in START_NAME,
        subjects=subjects,
    )
    now = dt.datetime.now(tz=dt.UTC)
    target = options.json or ROOT / ".cache" / "bench" / f"{name}-{now:%Y%m%d-%H%M%S}.json"
    return _measure(bench, target, date=now.isoformat(timespec="seconds"), rounds=rounds, quick=options.quick)


def _measure(bench: Bench, target: Path, **about: Any) -> int:
    machine: dict[str, str] = {}
    code = 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        machine = {"date": about["date"], **describe()}
        bench.run()
    except ToolMissing as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    except LoadFailed as problem:
        _say(f"{problem}; this is what was measured until now")
        code = 1
    except Stopped:
        _say("stopped; this is what was measured until now")
    machine["load average at the end"] = load_average()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(as_json(bench.rows, machine, **about), indent=1) + "\n")
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    print(f"\n{table(bench.rows)}\n\nwritten to {target}")
    return code


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the JSON."""
    assert __doc__ is not None
    return command("brokers", __doc__.split("\n\n")[0], loads, arguments, starts=True)


if __name__ == "__main__":
    sys.exit(main())
