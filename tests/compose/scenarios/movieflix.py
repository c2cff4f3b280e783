"""Viewers of MovieFlix: each watches one movie in steps, tells where it is, and finds that again."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Final

import httpx2
from tests.compose.scenarios import eventually

VIEWERS: Final = 40
STEPS: Final = 10
LENGTH_S: Final = 6000
_first_viewer: Final[Iterator[int]] = itertools.count(1, VIEWERS)


class MovieFlix:
    """Forty viewers at once; see `Scenario`."""

    service = "movieflix"

    def __init__(self) -> None:
        self.half_way = asyncio.Event()
        first = next(_first_viewer)
        self._viewers = range(first, first + VIEWERS)
        self._places: set[tuple[int, int]] = set()

    async def prepare(self, http: httpx2.AsyncClient) -> None:
        """Viewers need nothing."""

    async def load(self, http: httpx2.AsyncClient) -> None:
        """All viewers at once, each one step after the other."""
        async with asyncio.TaskGroup() as tasks:
            for viewer in self._viewers:
                tasks.create_task(self._watch(http, viewer))

    async def _watch(self, http: httpx2.AsyncClient, viewer: int) -> None:
        for step in range(1, STEPS + 1):
            watched = {"movie_id": viewer, "position_s": 60 * step, "length_s": LENGTH_S, "played_s": 60}
            answer = await http.post(f"/users/{viewer}/watched", json=watched)
            assert answer.status_code == 202, answer.text
            placed = answer.json()
            self._places.add((placed["partition"], placed["offset"]))
            if len(self._places) >= VIEWERS * STEPS / 2:
                self.half_way.set()

    async def exact(self, http: httpx2.AsyncClient) -> None:
        """Every step is in its viewer's profile once, and the last one is where the movie goes on."""
        assert len(self._places) == VIEWERS * STEPS

        async def all_in() -> bool:
            responses = await asyncio.gather(*(http.get(f"/users/{viewer}") for viewer in self._viewers))
            return all(response.status_code == 200 and response.json()["events"] >= STEPS for response in responses)

        await eventually(all_in)
        for viewer in self._viewers:
            profile = (await http.get(f"/users/{viewer}")).json()
            assert (profile["events"], profile["watched_s"]) == (STEPS, 60 * STEPS)
            (resume,) = (await http.get(f"/users/{viewer}/resume")).json()
            assert (resume["movie_id"], resume["position_s"]) == (viewer, 60 * STEPS)
