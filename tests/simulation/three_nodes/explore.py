"""Seeds of a simulated cluster on all cores.

Here: the workers, and the outcomes as they come.
Not here: printing them (`__main__`).
"""

import gc
import itertools
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.three_nodes.run import run_seed
from tests.support.programs import end_with_tests

_START: Final = "fork" if sys.platform == "linux" else "spawn"
"""How workers begin. A forked one has imported everything; no thread runs yet when they begin."""
_CHUNK: Final = 2
"""Seeds that a worker runs without a pause; at the end other workers wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedOutcome:
    """What happened in the run of a seed; `problem` is "" if everything held."""

    seed: int
    cpu_s: float
    problem: str = ""
    faults: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    virtual_s: float = 0.0
    converged_s: float = 0.0


def _begin() -> None:
    """Start a worker. It collects garbage only when `World` does, and what it has imported is not searched."""
    end_with_tests()
    gc.disable()
    gc.freeze()


def run_seeds(seeds: range) -> list[SeedOutcome]:
    """In a worker."""
    return [_outcome(seed) for seed in seeds]


def _outcome(seed: int) -> SeedOutcome:
    began = time.process_time()
    try:
        outcome = run_seed(seed)
    except Exception:  # reported with its seed; the other seeds run
        return SeedOutcome(seed=seed, cpu_s=time.process_time() - began, problem=traceback.format_exc())
    return SeedOutcome(
        seed=seed,
        cpu_s=time.process_time() - began,
        faults=dict(outcome.faults),
        counts=dict(outcome.counts),
        virtual_s=outcome.virtual_s,
        converged_s=outcome.converged_s,
    )


def outcomes(*, first: int, seconds: float, seeds: int | None, jobs: int) -> Iterator[SeedOutcome]:
    """Run seeds from `first` on, until the time is over or so many are done."""
    began, starts = time.monotonic(), itertools.count(first, _CHUNK)
    context = multiprocessing.get_context(_START)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin) as pool:
        running: set[Future[list[SeedOutcome]]] = set()
        while True:
            while len(running) < jobs * 2 and (seeds is not None or time.monotonic() - began < seconds):
                start = next(starts)
                end = start + _CHUNK if seeds is None else min(start + _CHUNK, first + seeds)
                if start >= end:
                    break
                running.add(pool.submit(run_seeds, range(start, end)))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()
