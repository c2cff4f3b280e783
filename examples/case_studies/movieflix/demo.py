"""`busway demo movieflix`: the bus, the registry and the service as processes of their own, real ratings replayed as events, a table
that changes while you look.

Here: starting, replaying, showing, counting.
Not here: the service (`service`), the events (`ratings`), the Spark jobs (`analytics`), which run where Spark is
installed and are left out, with the reason, where it is not.

Viewers go on until Ctrl-C. With `--ci` it ends by itself, when the ratings do. Meanwhile it kills the service, the registry and the bus in turn, without warning, and starts them again;
the summary shows that nothing was lost and nothing was counted twice.
"""

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from kit.command import Interrupts, run_demo, stopped_early
from kit.faults import KillsInTurn
from kit.load import send_all
from kit.parts import DemoFailed, Part, Parts, free_port
from kit.spark import missing
from kit.summary import Summary
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from busway import App
from movieflix import domain, ratings
from movieflix.analytics import Analytics, Trained
from movieflix.events import Profile, Watched
from movieflix.service import PARTITIONS
from movieflix.titles import title

LIVE_EVENTS_PER_S: Final = 60
SEED: Final = 1
PORT: Final = 8000
SETTLE_S: Final = 60.0
_AROUND_TABLE: Final = 8
"""Lines of the terminal that are not viewers."""


@dataclass(slots=True)
class Replay:
    """What was produced, and the profiles that must come of it.

    Attributes:
        total: events of the ratings; None for viewers who go on.
    """

    total: int | None
    produced: int = 0
    expected: dict[int, Profile] = field(default_factory=dict)
    seen: dict[int, set[int]] = field(default_factory=dict)
    rated: int = 0
    trained: Trained | None = None
    stored: int = 0

    def note(self, event: Watched) -> None:
        """An event was acknowledged."""
        before = self.expected.get(event.user_id) or Profile(user_id=event.user_id)
        self.expected[event.user_id] = domain.apply(before, event, before.last_offset + 1)
        self.seen.setdefault(event.user_id, set()).add(event.movie_id)
        self.rated += event.rating is not None
        self.produced += 1


@dataclass(slots=True)
class Demo:
    """The parts, and how fast it goes."""

    parts: Parts
    service: Part
    url: str
    ci: bool
    analytics: Analytics | None
    left_out: str | None
    """Why there is no Spark."""
    kills: KillsInTurn

    @classmethod
    async def start(cls, parts: Parts, *, ci: bool, spark: bool) -> "Demo":
        """Bus and registry, then the service with its page."""
        left_out = await asyncio.to_thread(missing) if spark else "--without-spark"
        await parts.start_bus()
        service = await parts.start_app(
            "service",
            "movieflix.service:app",
            BUSWAY_HTTP_PORT=str(free_port(0 if ci else PORT)),
            MOVIEFLIX_INSTANCE="one",
        )
        url = (await service.line()).removeprefix("movieflix ")
        kills = KillsInTurn([service, parts.registry, parts.bus] if ci else [])
        return cls(parts, service, url, ci, None if left_out else Analytics(parts), left_out, kills)

    async def replay(self, replay: "Replay", stopped: Callable[[], bool]) -> None:
        """Send all events, at a pace an eye can follow unless in CI; there, viewers go on until it is stopped."""
        app = App(
            "movieflix-replay",
            bootstrap_servers=self.parts.bootstrap_servers,
            schema_registry=self.parts.schema_registry,
        )
        watched = app.topic("movieflix.watched", key=int, value=Watched, partitions=PARTITIONS)
        async with app, self.kills:
            known = list(ratings.read(ratings.source()))
            events: Iterable[Watched] = ratings.viewings(known)
            if replay.total is None:
                events = itertools.chain(events, ratings.later(known, SEED))
            await send_all(
                itertools.takewhile(lambda event: not stopped(), events),
                self.kills.during(lambda event: watched.send_soon(event, key=event.user_id), replay.total or 1),
                replay.note,
                per_s=None if self.ci else LIVE_EVENTS_PER_S,
            )


async def run(interrupts: Interrupts, *, ci: bool, spark: bool) -> int:
    """The whole demo; 0 when nothing was lost or doubled."""
    console = Console()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="movieflix-") as folder:
        async with Parts(Path(folder), hurry=interrupts.hurry) as parts, httpx2.AsyncClient(timeout=5) as client:
            started: list[Demo] = []

            async def start() -> None:
                started.append(await Demo.start(parts, ci=ci, spark=spark))

            if not await interrupts.until_stop(start()):
                return stopped_early(begun).show(console)
            (demo,) = started
            console.print(
                f"bus       {parts.bootstrap_servers}\nregistry  {parts.schema_registry}\npage      [bold]{demo.url}[/bold]\n"
                f"ratings   {_shown(ratings.source())}\n"
                + (
                    f"Spark     left out: {escape(demo.left_out)}"
                    if demo.left_out
                    else "Spark     trains models as events come"
                )
            )
            total = sum(1 for _ in ratings.viewings(ratings.read(ratings.source())))
            replay = Replay(total if ci else None)
            profiles = await _watch(demo, replay, client, console, interrupts)
            summary = _summary(demo, replay, profiles, stopped=interrupts.stop.is_set())
            if demo.left_out:
                summary.figure("left out", f"training, models and analytics store: {demo.left_out}")
            elif ci and not interrupts.stop.is_set():
                await _recommended(demo, replay, client, summary)
                summary.figure("events in the store", replay.stored, must_be=replay.total)
            summary.figure("took", f"{time.monotonic() - begun:.1f} s")
            return summary.show(console)


async def _watch(
    demo: Demo, replay: Replay, client: httpx2.AsyncClient, console: Console, interrupts: Interrupts
) -> list[dict[str, Any]]:
    """Replay while the table follows, until the end or Ctrl-C and all is handled; returns the last profiles."""
    stopped = interrupts.stop.is_set
    producing = asyncio.ensure_future(demo.replay(replay, stopped))
    training = False
    profiles: list[dict[str, Any]] = []
    deadline: float | None = None
    shown: Any = contextlib.nullcontext() if demo.ci else Live(console=console, refresh_per_second=8)
    try:
        with shown as live:
            while True:
                if producing.done():
                    producing.result()
                    deadline = deadline or time.monotonic() + SETTLE_S
                # In CI once nothing is killed any more: a job that is started needs a registry.
                if demo.analytics is not None and (producing.done() if demo.ci else replay.produced) and not training:
                    await demo.analytics.start_training()
                    training = True
                with contextlib.suppress(httpx2.HTTPError):
                    profiles = (await client.get(f"{demo.url}/profiles")).json()
                if live is not None:
                    live.update(_screen(demo, replay, profiles, console.height))
                handled = sum(profile["events"] for profile in profiles)
                if producing.done() and handled >= replay.produced:
                    break
                if interrupts.hurry.is_set() or (deadline is not None and time.monotonic() > deadline):
                    break
                demo.service.check()
                await asyncio.sleep(0.1)
            if demo.analytics is not None and training and demo.ci and not stopped():
                replay.trained = await demo.analytics.trained(replay.rated)
                replay.stored = await demo.analytics.fill_store()
                await _serves(demo, client, replay.trained.version)
    finally:
        producing.cancel()
        await asyncio.wait([producing])
    return profiles


async def _serves(demo: Demo, client: httpx2.AsyncClient, version: int) -> None:
    """Wait until the service serves that model.

    Raises:
        DemoFailed: it does not.
    """
    deadline = time.monotonic() + SETTLE_S
    while (await client.get(f"{demo.url}/model")).json()["version"] != version:
        if time.monotonic() > deadline:
            raise DemoFailed(f"model {version} was not served within {SETTLE_S:.0f} s:\n{demo.service.tail()}")
        await asyncio.sleep(0.1)


def _screen(demo: Demo, replay: Replay, profiles: list[dict[str, Any]], lines: int) -> Group:
    """The address and the progress first, so that a small terminal cuts off viewers and not those."""
    handled = sum(profile["events"] for profile in profiles)
    table = Table(header_style="bold", expand=False)
    for name in ("viewer", "events", "started", "finished", "hours", "stars", "go on with"):
        left = name in {"viewer", "go on with"}
        # Where there is too little room the last column gives way, not the figures.
        least = 7 if name == "viewer" else 0 if name == "go on with" else len(name)
        table.add_column(name, justify="left" if left else "right", no_wrap=True, min_width=least)
    for profile in sorted(profiles, key=lambda profile: -profile["events"])[: max(lines - _AROUND_TABLE, 3)]:
        first = profile["resume"][0] if profile["resume"] else None
        table.add_row(
            f"user {profile['user_id']}",
            str(profile["events"]),
            str(profile["started"]),
            str(profile["finished"]),
            f"{profile['watched_s'] / 3600:.1f}",
            f"{profile['rating_sum'] / profile['ratings']:.1f}" if profile["ratings"] else "-",
            f"{title(first['movie_id'])} at {100 * first['position_s'] // first['length_s']} %" if first else "-",
        )
    progress = Table.grid(padding=(0, 1))
    for name, value in (("produced", replay.produced), ("handled", handled)):
        progress.add_row(name, f"{value:,}")
    return Group(Text(f"page {demo.url}   Ctrl-C ends"), progress, table)


def _summary(demo: Demo, replay: Replay, profiles: list[dict[str, Any]], *, stopped: bool) -> Summary:
    served = {profile["user_id"]: profile for profile in profiles}
    lost = doubled = wrong = 0
    for user_id, expected in replay.expected.items():
        got = served.get(user_id, {"events": 0, "watched_s": 0, "finished": 0})
        lost += max(expected.events - got["events"], 0)
        doubled += max(got["events"] - expected.events, 0)
        wrong += (expected.watched_s, expected.finished) != (got["watched_s"], got["finished"])
    summary = Summary()
    summary.figure("events produced", replay.produced, must_be=None if stopped else replay.total)
    summary.figure("events handled", sum(profile["events"] for profile in profiles))
    summary.figure("lost", lost, must_be=0)
    summary.figure("doubled", doubled, must_be=0)
    summary.figure("viewers", len(served))
    summary.figure("profiles that are wrong", wrong, must_be=0)
    if not stopped:
        demo.kills.tell(summary)
    return summary


async def _recommended(demo: Demo, replay: Replay, client: httpx2.AsyncClient, summary: Summary) -> None:
    """What the service recommends by the last model."""
    trained, viewers = replay.trained, sorted(replay.expected)
    assert trained is not None
    seen = by_taste = 0
    versions = set()
    for user_id in viewers:
        answer = (await client.get(f"{demo.url}/users/{user_id}/next", params={"count": 100})).json()
        versions.add(answer["version"])
        by_taste += answer["by"] == "taste"
        seen += len({movie["movie_id"] for movie in answer["movies"]} & replay.seen[user_id])
    summary.figure("models published", trained.models)
    summary.figure("model", f"{trained.version}: {trained.movies} movies, {trained.preferences} preferences")
    summary.figure("RMSE", f"{trained.rmse:.3f} on what was held out; the mean has {trained.baseline_rmse:.3f}")
    summary.figure("model served", versions, must_be={trained.version})
    summary.figure("viewers with a taste", by_taste, must_be=len(viewers))
    summary.figure("seen, and recommended", seen, must_be=0)


def _shown(path: Path) -> str:
    return (
        "MovieLens sample inside pyspark"
        if "pyspark" in path.parts
        else f"extract {path.name} (Apache Spark's MovieLens sample)"
    )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="busway demo movieflix")
    parser.add_argument("--ci", action="store_true", help="print a summary and exit")
    parser.add_argument(
        "--without-spark", action="store_true", help="leave out training and store even if Spark is installed"
    )
    given = parser.parse_args()
    ci = given.ci or not sys.stdout.isatty()
    return run_demo(lambda interrupts: run(interrupts, ci=ci, spark=not given.without_spark))


if __name__ == "__main__":
    sys.exit(main())
