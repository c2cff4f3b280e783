"""`busway demo gettaxi`: the bus, the registry and the service as processes of their own, two cities in motion, a map that follows.

Here: starting, driving, showing, counting.
Not here: the service (`service`), the traffic (`traffic`, `generate`).

With `--ci` it ends by itself. Meanwhile it kills the service, the registry and the bus in turn, without warning, and starts them again; the
summary is made of what is stored in the topics: it shows that every ride came to its end, that no driver ever had two, and that every fare is what the stored
positions say.
"""

import argparse
import asyncio
import contextlib
import datetime as dt
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from kit.command import run_demo
from kit.faults import KillsInTurn
from kit.parts import Part, Parts, free_port, on_signals
from kit.summary import Summary
from rich.console import Console
from rich.live import Live
from rich.table import Table

from gettaxi import fares, matching
from gettaxi.events import Ride, Status
from gettaxi.generate import Devices
from gettaxi.traffic import Plan, Traffic

PORT: Final = 8001
CITIES: Final = ("berlin", "lisbon")
REQUESTS_FOR: Final = dt.timedelta(seconds=140)
"""With --ci riders come for so long, in event time; then their rides end."""
ENDS_WITHIN: Final = dt.timedelta(minutes=15)
SPEED: Final = 3.0
"""How fast event time goes while you look."""


def plans(*, ci: bool, seed: int) -> list[Plan]:
    """Two cities: small and quick for CI, larger for the eye."""
    start = dt.datetime.now(dt.UTC).replace(microsecond=0)
    if ci:
        return [
            Plan(city=city, drivers=45, rides_per_minute=36, seed=seed, start=start, half_m=1500, longest_m=1200)
            for city in CITIES
        ]
    return [Plan(city=city, drivers=400, rides_per_minute=70, seed=seed, start=start, half_m=5000) for city in CITIES]


@dataclass(slots=True)
class Stored:
    """What the topics say in the end.

    Attributes:
        positions: of drivers, how many are stored.
        rider_positions: of riders.
        untold: rides that ended without a stored position of the rider before the meter started, or while it ran.
        rides: the newest record of each.
        twice: records of rides by which a driver had two at once.
        differ: rides whose fare is not what their stored positions come to.
    """

    positions: int = 0
    rider_positions: int = 0
    untold: int = 0
    rides: dict[str, Ride] = field(default_factory=dict)
    twice: int = 0
    differ: int = 0

    def count(self, status: Status) -> int:
        """Rides that ended so."""
        return sum(ride.status is status for ride in self.rides.values())


async def stored(devices: Devices) -> Stored:
    """Read the topics back and apply the rules by hand."""
    contents = Stored()
    driving: dict[str, str] = {}
    async for ride_record in devices.app.read(devices.ride_topic):
        ride = ride_record.value
        if ride is None:
            continue
        before = contents.rides.get(ride.ride_id)
        if before is not None and before.driver_id is not None and driving.get(before.driver_id) == ride.ride_id:
            del driving[before.driver_id]
        contents.rides[ride.ride_id] = ride
        if ride.status in matching.BUSY:
            assert ride.driver_id is not None
            contents.twice += driving.setdefault(ride.driver_id, ride.ride_id) != ride.ride_id
    kept: dict[str, list[fares.Stored]] = defaultdict(list)
    async for record in devices.app.read(devices.position_topic):
        contents.positions += 1
        if record.value is not None and record.value.ride_id in contents.rides:
            at = dt.datetime.fromtimestamp(record.timestamp_ms / 1000, dt.UTC)
            fare_position = fares.Stored(offset=record.offset, key=record.key, recorded_at=at, position=record.value)
            kept[record.value.ride_id].append(fare_position)
    rider_times: dict[str, list[dt.datetime]] = defaultdict(list)
    async for rider_record in devices.app.read(devices.rider_topic):
        contents.rider_positions += 1
        if rider_record.value is not None:
            rider_times[rider_record.value.ride_id].append(rider_record.value.at)
    for ride in contents.rides.values():
        if ride.status is Status.ENDED:
            began = ride.meter.started_at
            assert began is not None
            contents.untold += not (
                any(at < began for at in rider_times[ride.ride_id])
                and any(at >= began for at in rider_times[ride.ride_id])
            )
            contents.differ += fares.recompute(ride, kept[ride.ride_id]) != (ride.meter, ride.fare_cents)
    return contents


class Demo:
    """All parts together."""

    def __init__(self, parts: Parts, devices: Devices, service: Part, url: str) -> None:
        self.parts = parts
        self.devices = devices
        self.service = service
        self.url = url
        self.kills = KillsInTurn([service, parts.registry, parts.bus])
        self._client = httpx2.AsyncClient(timeout=5)
        self.cities: list[dict[str, Any]] = []

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.aclose()

    async def drive_to_the_end(self) -> None:
        """Riders for a while, in which each part is killed, then their rides to the end."""
        traffic = list(self.devices.traffic.values())
        first = traffic[0]
        last = first.plan.start + REQUESTS_FOR
        async with self.kills:
            for turn in self.kills.turns:
                await self._drive(lambda: first.now >= first.plan.start + REQUESTS_FOR * turn)  # noqa: B023 - called before the next
                await self.kills.passed(turn)
            await self._drive(lambda: first.now >= last)
        for driver in traffic:
            driver.requests = False
        await self._drive(lambda: not self.devices.open or first.now >= last + ENDS_WITHIN)

    async def _drive(self, until: Callable[[], bool]) -> None:
        def stop() -> bool:
            self.service.check()
            return until()

        await self.devices.run(speed=40, until=stop)

    async def show(self, console: Console) -> None:
        """Drive and show figures until Ctrl-C."""
        stopped = asyncio.Event()
        on_signals(stopped.set, signal.SIGINT, signal.SIGTERM)
        driving = asyncio.ensure_future(self.devices.run(speed=SPEED, until=stopped.is_set))
        try:
            with Live(console=console, refresh_per_second=4) as live:
                while not stopped.is_set() and not driving.done():
                    self.service.check()
                    with contextlib.suppress(httpx2.HTTPError):
                        self.cities = (await self._client.get(f"{self.url}/cities")).json()
                    live.update(self._screen())
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(stopped.wait(), 0.5)
        finally:
            stopped.set()
            await driving

    def _screen(self) -> Table:
        table = Table(title=f"page {self.url}   Ctrl-C ends", title_justify="left", header_style="bold")
        names = ("drivers", "free", "waiting", "matched", "on_ride", "ended", "given_up", "positions")
        table.add_column("city")
        for name in (*names, "fares"):
            table.add_column(name.replace("_", " "), justify="right")
        for city in self.cities:
            if city["here"]:
                table.add_row(city["name"], *(f"{city[name]:,}" for name in names), f"{city['fares_cents'] / 100:,.2f}")
        return table


async def run(*, ci: bool, seed: int) -> int:
    """The whole demo; 0 when nothing was lost, doubled or priced wrong."""
    console = Console()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gettaxi-") as folder:
        port = str(free_port(0 if ci else PORT))
        async with Parts(Path(folder), {"BUSWAY_HTTP_PORT": port, "GETTAXI_INSTANCE": "one"}) as parts:
            await parts.start_bus()
            service = await parts.start_app("service", "gettaxi.service:app")
            url = (await service.line()).removeprefix("gettaxi ")
            console.print(
                f"bus       {parts.bootstrap_servers}\nregistry  {parts.schema_registry}\npage      [bold]{url}[/bold]"
            )
            devices = Devices(
                [Traffic(plan) for plan in plans(ci=ci, seed=seed)],
                bootstrap_servers=parts.bootstrap_servers,
                schema_registry=parts.schema_registry,
            )
            demo = Demo(parts, devices, service, url)
            try:
                async with devices.running():
                    if not ci:
                        await demo.show(console)
                        return 0
                    await demo.drive_to_the_end()
                    return _summary(demo, await stored(devices), time.monotonic() - begun).show(console)
            finally:
                await demo.close()


def _summary(demo: Demo, contents: Stored, seconds: float) -> Summary:
    asked = {ride_id for traffic in demo.devices.traffic.values() for ride_id in traffic.rides}
    dropped_off = {ride_id for traffic in demo.devices.traffic.values() for ride_id in traffic.dropped_off}
    ended = {ride_id for ride_id, ride in contents.rides.items() if ride.status is Status.ENDED}
    cancelled = {ride_id for ride_id, ride in contents.rides.items() if ride.status is Status.CANCELLED}
    summary = Summary()
    summary.figure("positions acknowledged", demo.devices.positions)
    summary.figure("positions stored", contents.positions, must_be=demo.devices.positions)
    summary.figure("positions of riders stored", contents.rider_positions, must_be=demo.devices.rider_positions)
    summary.figure("rides without one before and during", contents.untold, must_be=0)
    summary.figure("rides requested", len(asked))
    summary.figure("rides known", len(contents.rides.keys() & asked), must_be=len(asked))
    summary.figure("rides ended", len(ended), must_be=len(dropped_off - cancelled))
    summary.figure("  cancelled", len(cancelled))
    summary.figure("  nobody came", contents.count(Status.EXPIRED))
    still_open = sum(ride.status in matching.OPEN for ride in contents.rides.values())
    summary.figure("  still open", still_open, must_be=0)
    summary.figure("at more than the plain price", sum(ride.surge_percent > 100 for ride in contents.rides.values()))
    summary.figure("a driver with two rides at once", contents.twice, must_be=0)
    summary.figure("fares that differ from the stored positions", contents.differ, must_be=0)
    summary.figure("fares", f"{sum(ride.fare_cents or 0 for ride in contents.rides.values()) / 100:,.2f}")
    demo.kills.tell(summary)
    summary.figure("took", f"{seconds:.1f} s")
    return summary


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="busway demo gettaxi")
    parser.add_argument("--ci", action="store_true", help="print a summary and exit")
    parser.add_argument("--seed", type=int, default=1, help="seed of the traffic")
    given = parser.parse_args()
    return run_demo(run(ci=given.ci or not sys.stdout.isatty(), seed=given.seed))


if __name__ == "__main__":
    sys.exit(main())
