"""Seeds on all cores.

Here: the workers, and the outcomes as they come.
Not here: what is made of them (`__main__`, `test_planted`).
"""

import itertools
import multiprocessing
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Final, NamedTuple

from tests.simulation.checks import Anomaly
from tests.simulation.drawing import draw
from tests.simulation.planted import BY_NAME
from tests.simulation.planting import Planted, planted
from tests.simulation.scenario import run_plan
from tests.support.programs import end_with_tests

_CHUNK: Final = 5
"""Seeds that a worker runs at a stretch."""


_FRAME: Final = re.compile(r'File "([^"]+)", line')


class Rotten(Exception):
    """A planted bug does not run in the code of today."""


class SeedOutcome(NamedTuple):
    """What became of one seed."""

    seed: int
    anomalies: list[str]
    counts: dict[str, int]


def run_seeds(seeds: range, plant: str | None, about: str = "") -> list[SeedOutcome]:
    """In a worker: the anomalies and counts of each seed; with a planted bug, up to the one that finds it."""
    outcomes = []
    with planted(BY_NAME[plant] if plant else None):
        for seed in seeds:
            verdict = run_plan(draw(seed, about))
            outcomes.append(SeedOutcome(seed, [str(anomaly) for anomaly in verdict.anomalies], dict(verdict.counts)))
            if plant and verdict.anomalies:
                break
    return outcomes


class Search(NamedTuple):
    """How a planted bug was found: after how many seeds and seconds of CPU, and as what; "" when it was not."""

    bug: str
    seeds: int
    cpu_s: float
    anomaly: str


def search(bug: str, seconds: float) -> Search:
    """In a worker: run seeds from 0 on until one finds the bug, or the time is over."""
    began, seeds = time.process_time(), 0
    with planted(BY_NAME[bug]):
        while time.process_time() - began < seconds:
            anomalies = run_plan(draw(seeds, BY_NAME[bug].about)).anomalies
            seeds += 1
            check_plant(bug, anomalies)
            if anomalies:
                return Search(bug, seeds, time.process_time() - began, anomalies[0].name)
    return Search(bug, seeds, time.process_time() - began, "")


def check_plant(bug: str, anomalies: Iterable[Anomaly]) -> None:
    """Raise Rotten where a traceback ends in planted code: the product has changed, and the bug is no longer the one described."""
    for anomaly in anomalies:
        places = _FRAME.findall(anomaly.text)
        if places and "/simulation/planted" in places[-1]:
            raise Rotten(f"the planted bug “{bug}” fails by itself; plant it where the code is now:\n{anomaly.text}")


def _workers(jobs: int) -> ProcessPoolExecutor:
    """Processes that are gone when this one is, however it went."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_tests)


def searches(bugs: Iterable[Planted], *, seconds: float, jobs: int) -> Iterator[Search]:
    """Search for each bug, so many at a time, for so many seconds of CPU at most."""
    with _workers(jobs) as pool:
        yield from pool.map(search, [bug.name for bug in bugs], itertools.repeat(seconds))


def outcomes(
    *, first: int, seconds: float, seeds: int | None, jobs: int, plant: str | None, about: str = ""
) -> Iterator[SeedOutcome]:
    """Seeds from `first` on, on all cores, until the time is over or so many are done."""
    began = time.monotonic()
    starts = itertools.count(first, _CHUNK)
    with _workers(jobs) as pool:
        running: set[Future[list[SeedOutcome]]] = set()
        try:
            while True:
                more = time.monotonic() - began < seconds if seeds is None else True
                while more and len(running) < jobs * 2:
                    start = next(starts)
                    end = start + _CHUNK if seeds is None else min(start + _CHUNK, first + seeds)
                    if start >= end:
                        break
                    running.add(pool.submit(run_seeds, range(start, end), plant, about))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        finally:
            for future in running:
                future.cancel()
