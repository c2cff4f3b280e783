"""The Spark side of the demo: a trainer that publishes models all the time, and the store at the end.

Here: the two jobs as processes, and what became of them.
Not here: the jobs (`jobs`), whether Spark is there (`kit.spark`).
"""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kit.parts import BUSWAY, DemoFailed, Part, Parts

TRAIN_EVERY_S: Final = 2.0
DEADLINE_S: Final = 400.0
"""For each: the model of all events, the store of all events. A JVM starts in seconds, on a busy machine in many."""
_TRAINED: Final = re.compile(
    r"model (\d+): (\d+) movies, .* from (\d+) preferences .* RMSE ([\d.]+) on .* the mean has ([\d.]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What the job printed of a model.

    Attributes:
        version: of the model.
        movies, preferences: how many.
        rmse, baseline_rmse: in stars, on what was held out.
        models: how many were published until then.
    """

    version: int
    movies: int
    preferences: int
    rmse: float
    baseline_rmse: float
    models: int


class Analytics:
    """Both jobs.

    Args:
        parts: with the bus.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._trainer: Part | None = None
        self.store = parts.folder / "store"

    async def start_training(self) -> None:
        """Once there are events: train again and again."""
        command = (*BUSWAY, "spark", "movieflix.jobs.train", "--every", str(TRAIN_EVERY_S))
        self._trainer = await self._parts.start("train", *command)

    async def trained(self, preferences: int) -> Trained:
        """Wait for a model of so many preferences, then end the training.

        Raises:
            DemoFailed: it did not come.
        """
        trainer = self._trainer
        assert trainer is not None
        assert trainer.process.stdout is not None
        models = 0
        try:
            async with asyncio.timeout(DEADLINE_S):
                async for line in trainer.process.stdout:
                    if (match := _TRAINED.match(line.decode())) is None:
                        continue
                    models += 1
                    if int(match[3]) >= preferences:
                        await trainer.end()
                        return Trained(
                            version=int(match[1]),
                            movies=int(match[2]),
                            preferences=int(match[3]),
                            rmse=float(match[4]),
                            baseline_rmse=float(match[5]),
                            models=models,
                        )
        except TimeoutError:
            pass
        raise DemoFailed(f"the training brought no model of {preferences} preferences:\n{trainer.tail()}")

    async def fill_store(self) -> int:
        """All that is in the topics into the store; returns how many different events of `movieflix.watched` it holds.

        Raises:
            DemoFailed: the job failed, or the store holds an event twice.
        """
        command = (*BUSWAY, "spark", "movieflix.jobs.store", "--until-end", "--out", str(self.store))
        job = await self._parts.start("store", *command)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await job.process.communicate()
        except TimeoutError:
            raise DemoFailed(f"the store was not filled within {DEADLINE_S:.0f} s:\n{job.tail()}") from None
        if job.process.returncode:
            raise DemoFailed(f"the store was not filled:\n{job.tail()}")
        return await asyncio.to_thread(_events_in, self.store / "movieflix.watched")


def _events_in(folder: Path) -> int:
    import pyarrow.dataset

    table = pyarrow.dataset.dataset(sorted(map(str, folder.glob("*.parquet")))).to_table(["_partition", "_offset"])
    rows: list[tuple[int, int]] = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    if len(set(rows)) != len(rows):
        raise DemoFailed(f"the store holds {len(rows) - len(set(rows))} events twice")
    return len(rows)
