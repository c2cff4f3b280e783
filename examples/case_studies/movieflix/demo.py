"""`busway demo movieflix`: the bus, the registry and the service as processes of their own, real ratings replayed as events, a table
that changes while you look.

What lives here: starting, replaying, showing, counting. What does not: the service (`service`), the events (`ratings`).

With `--ci` it ends by itself. It then kills the service half way, without warning, and starts it again; the summary shows that
nothing was lost and nothing was counted twice.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from busway import App, BuswayError
from movieflix import domain, ratings
from movieflix.events import Profile, Watched
from movieflix.service import PARTITIONS

LIVE_EVENTS_PER_S: Final = 200
PORT: Final = 8000
SETTLE_S: Final = 60.0
_AROUND_TABLE: Final = 8
"""Lines of the terminal that are not viewers."""
START_S: Final = 30.0
_CASES: Final = Path(__file__).resolve().parent.parent
BUSWAY: Final = (sys.executable, "-m", "busway.cli")


class DemoFailed(Exception):
    """A part did not start or did not get on; the text holds the end of what it printed."""


@dataclass(slots=True)
class Part:
    """A process, and what it has printed."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    async def line(self) -> str:
        """Its next line of output.

        Raises:
            DemoFailed: it ended, or said nothing for too long.
        """
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                found = await self.process.stdout.readline()
        except TimeoutError:
            raise DemoFailed(f"{self.name} said nothing for {START_S:.0f} s:\n{self.tail()}") from None
        if not found:
            raise DemoFailed(f"{self.name} ended at once:\n{self.tail()}")
        return found.decode().strip()

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:]

    async def end(self, number: signal.Signals) -> None:
        """Send a signal and wait for the end."""
        if self.process.returncode is None:
            self.process.send_signal(number)
            try:
                async with asyncio.timeout(20):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


@dataclass(slots=True)
class Replay:
    """What was produced, and the profiles that must come of it."""

    total: int
    produced: int = 0
    expected: dict[int, Profile] = field(default_factory=dict)

    def note(self, event: Watched) -> None:
        """An event was acknowledged."""
        before = self.expected.get(event.user_id) or Profile(user_id=event.user_id)
        self.expected[event.user_id] = domain.apply(before, event, before.last_offset + 1)
        self.produced += 1


class Demo:
    """All parts together."""

    def __init__(self, folder: Path, *, ci: bool) -> None:
        self._folder = folder
        self._ci = ci
        self._environment = {**os.environ, "MOVIEFLIX_INSTANCE": "one"}
        self._parts: list[Part] = []
        self.bootstrap = self.registry = self.url = ""
        self.kills = 0

    async def start(self, name: str, *command: str) -> Part:
        """Start a part; its errors go to a log of its own."""
        log = self._folder / f"{name}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                stdin=asyncio.subprocess.DEVNULL,
                env=self._environment,
                cwd=_CASES,
                start_new_session=True,  # Ctrl-C is for us; we then end the parts in order
            )
        part = Part(name, process, log)
        self._parts.append(part)
        return part

    async def end(self) -> None:
        """End all parts, the last one first."""
        for part in reversed(self._parts):
            await part.end(signal.SIGINT)

    async def start_bus(self) -> Part:
        """Bus and registry on free ports, on data of their own."""
        data = str(self._folder / "data")
        bus = await self.start("bus", *BUSWAY, "up", "--data", data, "--port", "0", "--registry-port", "0", "--json")
        found = json.loads(await bus.line())
        self.bootstrap, self.registry = found["bootstrap_servers"], found["schema_registry"]
        self._environment |= {"BUSWAY_BOOTSTRAP_SERVERS": self.bootstrap, "BUSWAY_SCHEMA_REGISTRY": self.registry}
        return bus

    async def start_service(self) -> Part:
        """The service with its page."""
        self._environment["MOVIEFLIX_PORT"] = self.url.rpartition(":")[2] or str(_free(PORT))
        service = await self.start("service", *BUSWAY, "run", "movieflix.service:app", "--log-level", "warning")
        self.url = (await service.line()).removeprefix("movieflix ")
        return service

    async def replay(self, replay: Replay) -> None:
        """Produce all events, each awaited in groups, at a pace an eye can follow unless in CI."""
        app = App("movieflix-replay", bootstrap_servers=self.bootstrap, schema_registry=self.registry)
        watched = app.topic("movieflix.watched", key=int, value=Watched, partitions=PARTITIONS)
        group = 200 if self._ci else LIVE_EVENTS_PER_S // 10
        async with app:
            waiting: list[tuple[Watched, asyncio.Future[Any]]] = []
            for event in ratings.viewings(ratings.read(ratings.source())):
                waiting.append((event, await watched.send_soon(event, key=event.user_id)))
                if len(waiting) >= group:
                    await _acknowledged(waiting, replay)
                    await asyncio.sleep(0 if self._ci else 0.1)
            await _acknowledged(waiting, replay)


async def _acknowledged(waiting: list[tuple[Watched, "asyncio.Future[Any]"]], replay: Replay) -> None:
    for event, future in waiting:
        await future
        replay.note(event)
    waiting.clear()


async def run(*, ci: bool) -> int:
    """The whole demo; 0 when nothing was lost or doubled."""
    console = Console()
    begun = time.monotonic()
    whole = asyncio.current_task()
    assert whole is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        # However this ends, the parts are ended too: they are processes of their own and would stay.
        asyncio.get_running_loop().add_signal_handler(number, whole.cancel)
    with tempfile.TemporaryDirectory(prefix="movieflix-") as folder:
        demo = Demo(Path(folder), ci=ci)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(demo.end)
            await demo.start_bus()
            holder = [await demo.start_service()]
            console.print(
                f"bus       {demo.bootstrap}\nregistry  {demo.registry}\npage      [bold]{demo.url}[/bold]\n"
                f"ratings   {_shown(ratings.source())}"
            )
            total = sum(1 for _ in ratings.viewings(ratings.read(ratings.source())))
            replay = Replay(total)
            client = await stack.enter_async_context(httpx2.AsyncClient(timeout=5))
            found = await _watch(demo, replay, holder, client, console)
            return _summary(console, demo, replay, found, time.monotonic() - begun)


async def _watch(
    demo: Demo, replay: Replay, holder: list[Part], client: httpx2.AsyncClient, console: Console
) -> list[dict[str, Any]]:
    """Replay while the table follows; returns the last profiles."""
    producing = asyncio.ensure_future(demo.replay(replay))
    found: list[dict[str, Any]] = []
    deadline: float | None = None
    shown: Any = contextlib.nullcontext() if demo._ci else Live(console=console, refresh_per_second=8)
    try:
        with shown as live:
            while True:
                if producing.done():
                    producing.result()
                    deadline = deadline or time.monotonic() + SETTLE_S
                if demo._ci and not demo.kills and replay.produced * 2 >= replay.total:
                    holder[0] = await _kill_and_restart(demo, holder[0])
                with contextlib.suppress(httpx2.HTTPError):
                    found = (await client.get(f"{demo.url}/profiles")).json()
                if live is not None:
                    live.update(_picture(demo, replay, found, console.height))
                handled = sum(one["events"] for one in found)
                if producing.done() and handled >= replay.produced:
                    break
                if deadline is not None and time.monotonic() > deadline:
                    break
                if holder[0].process.returncode is not None:
                    raise DemoFailed(f"the service ended:\n{holder[0].tail()}")
                await asyncio.sleep(0.1)
            if not demo._ci:
                if live is not None:
                    live.update(_picture(demo, replay, found, console.height), refresh=True)
                await _until_interrupted()
    finally:
        producing.cancel()
        await asyncio.wait([producing])
    return found


async def _kill_and_restart(demo: Demo, service: Part) -> Part:
    service.process.kill()
    await service.process.wait()
    demo.kills += 1
    return await demo.start_service()


async def _until_interrupted() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()


def _picture(demo: Demo, replay: Replay, found: list[dict[str, Any]], lines: int) -> Group:
    """The address and the progress first, so that a small terminal cuts off viewers and not those."""
    handled = sum(one["events"] for one in found)
    table = Table(header_style="bold", expand=False)
    for name in ("viewer", "events", "started", "finished", "hours", "stars", "go on with"):
        left = name in {"viewer", "go on with"}
        # Where there is too little room the last column gives way, not the figures.
        least = 7 if name == "viewer" else 0 if name == "go on with" else len(name)
        table.add_column(name, justify="left" if left else "right", no_wrap=True, min_width=least)
    for one in sorted(found, key=lambda one: -one["events"])[: max(lines - _AROUND_TABLE, 3)]:
        first = one["resume"][0] if one["resume"] else None
        table.add_row(
            f"user {one['user_id']}",
            str(one["events"]),
            str(one["started"]),
            str(one["finished"]),
            f"{one['watched_s'] / 3600:.1f}",
            f"{one['rating_sum'] / one['ratings']:.1f}" if one["ratings"] else "-",
            f"movie {first['movie_id']} at {100 * first['position_s'] // first['length_s']} %" if first else "-",
        )
    progress = Table.grid(padding=(0, 1))
    for name, value in (("produced", replay.produced), ("handled", handled)):
        progress.add_row(name, ProgressBar(total=replay.total, completed=value, width=30), f"{value} of {replay.total}")
    state = "all events are handled; the page stays until Ctrl-C" if handled >= replay.total else "Ctrl-C ends"
    return Group(Text(f"page {demo.url}   {state}"), progress, table)


def _summary(console: Console, demo: Demo, replay: Replay, found: list[dict[str, Any]], seconds: float) -> int:
    served = {one["user_id"]: one for one in found}
    lost = doubled = wrong = 0
    for user_id, expected in replay.expected.items():
        got = served.get(user_id, {"events": 0, "watched_s": 0, "finished": 0})
        lost += max(expected.events - got["events"], 0)
        doubled += max(got["events"] - expected.events, 0)
        wrong += (expected.watched_s, expected.finished) != (got["watched_s"], got["finished"])
    handled = sum(one["events"] for one in found)
    console.print(f"events produced      {replay.produced}")
    console.print(f"events handled       {handled}")
    console.print(f"lost                 {lost}")
    console.print(f"doubled              {doubled}")
    console.print(f"viewers              {len(served)}, profiles that differ from the rules applied by hand: {wrong}")
    if demo.kills:
        console.print("service              killed half way without warning, and started again")
    console.print(f"took                 {seconds:.1f} s")
    return 0 if replay.produced == replay.total and not (lost or doubled or wrong) else 1


def _shown(path: Path) -> str:
    return (
        "MovieLens sample inside pyspark"
        if "pyspark" in path.parts
        else f"extract {path.name} (Apache Spark's MovieLens sample)"
    )


def _free(port: int) -> int:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
        return port


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="busway demo movieflix")
    parser.add_argument("--ci", action="store_true", help="end by itself with a summary")
    ci = parser.parse_args().ci or not sys.stdout.isatty()
    try:
        return asyncio.run(run(ci=ci))
    except (DemoFailed, BuswayError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except asyncio.CancelledError:
        return 143


if __name__ == "__main__":
    sys.exit(main())
