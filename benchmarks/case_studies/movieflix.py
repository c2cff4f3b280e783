"""MovieFlix: watch events a second through the service, and how soon a rating turns the recommendation.

    python -m benchmarks.case_studies.movieflix [--quick]

Here: the load and what is measured.
Not here: brokers, turns, rounds (`frame`). The service is a process of its own with a published model; events come from
this process. Throughput: all events sent as fast as they are acknowledged, until every profile has them. Latency: one
rating after another over HTTP, until the server-sent event with the new recommendation is here.
"""

import asyncio
import datetime as dt
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from kit.load import send_all
from kit.parts import BUSWAY, Parts
from movieflix import model, recommend
from movieflix.events import Complete, MovieFactors, Watched
from movieflix.ratings import EXTRACT, read, viewings
from movieflix.service import PARTITIONS

from benchmarks.case_studies.frame import Figures, Site, main
from benchmarks.report import Metric
from busway import App

MOVIES, RANK = 5_000, 8
EVENTS, RATINGS = 10_000, 100
APART_SECONDS = 0.15
"""Between two: a stream of server-sent events rests for 0.1 s after each, which would be measured instead."""
HELD = Metric(name="events held", unit="events/s", higher_is_better=True, target=1.0)
P50 = Metric(name="rating to recommendation p50", unit="ms", higher_is_better=False, target=1.0)
P99 = Metric(name="rating to recommendation p99", unit="ms", higher_is_better=False)
SETTLE_SECONDS = 60.0


def trained() -> tuple[Complete, list[MovieFactors]]:
    """A model of random vectors, always the same: how good it is makes it no slower."""
    chance = random.Random(1)
    movies = [
        MovieFactors(movie_id=movie_id, average=3.0, viewers=9, factors=[chance.gauss(0, 1) for _ in range(RANK)])
        for movie_id in range(MOVIES)
    ]
    complete = Complete(
        movies=MOVIES, checksum=recommend.checksum(movies), rank=RANK, regularisation=0.1, preferences=1, viewers=1,
        rmse=1.0, baseline_rmse=1.0, held_out=1, trained_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    )  # fmt: skip
    return complete, movies


def events(count: int) -> list[Watched]:
    """So many watch events, of the extract again and again."""
    once = list(viewings(read(EXTRACT)))
    return [once[index % len(once)] for index in range(count)]


async def pushes(client: httpx2.AsyncClient, path: str) -> AsyncIterator[Any]:
    """What a stream of server-sent events brings."""
    async with client.stream("GET", path, timeout=None) as live:
        async for line in live.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))[-1]


async def measure(site: Site) -> Figures:
    """One turn on one broker."""
    count, ratings = (EVENTS // 10, RATINGS // 10) if site.quick else (EVENTS, RATINGS)
    app = App("devices", site.bootstrap_servers, site.schema_registry)
    watched = app.topic("movieflix.watched", key=int, value=Watched, partitions=PARTITIONS)
    topic = model.declare(app)
    async with Parts(site.folder, site.environment) as parts, app:
        await model.publish(app, topic, 1, *trained())
        command = (*BUSWAY, "run", "movieflix.service:app", "--http", "127.0.0.1:0", "--log-level", "warning")
        service = await parts.start("service", *command)
        url = (await service.line()).removeprefix("movieflix ")
        async with httpx2.AsyncClient(base_url=url, timeout=20) as client:
            begun = time.perf_counter()
            await send_all(
                events(count),
                lambda watched_event: watched.send_soon(watched_event, watched_event.user_id),
                lambda _: None,
            )
            deadline = time.perf_counter() + SETTLE_SECONDS
            while sum(profile["events"] for profile in (await client.get("/profiles")).json()) < count:
                assert time.perf_counter() < deadline, service.tail()
                await asyncio.sleep(0.02)
            held = count / (time.perf_counter() - begun)
            taken = await latencies(client, ratings)
    cuts = statistics.quantiles(taken, n=100)
    return {HELD: held, P50: cuts[49], P99: cuts[98]}


async def latencies(client: httpx2.AsyncClient, count: int) -> list[float]:
    """Milliseconds from the request with a rating to the pushed recommendation."""
    pushed = pushes(client, "/users/999/next/live")
    await anext(pushed)
    taken = []
    for movie in range(count):
        await asyncio.sleep(APART_SECONDS)
        body = {"movie_id": movie, "position_s": 9, "length_s": 9, "action": "STOPPED", "rating": 1 + movie % 5}
        begun = time.perf_counter()
        (await client.post("/users/999/watched", json=body)).raise_for_status()
        await anext(pushed)
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


if __name__ == "__main__":
    sys.exit(main("movieflix", measure))
