"""Load: the devices of some cities on a bus. `python -m gettaxi.generate --city berlin --drivers 500 --speed 5`

Here: sending what `traffic` says, and telling it what becomes of the rides.
Not here: the service.

Devices follow the topic `gettaxi.rides`. Event time may run faster than the clock; a record's timestamp is its event time, as it is when a
gateway stamps what it receives.
"""

import argparse
import asyncio
import datetime as dt
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from busway import App, BuswayError, RecordMetadata, Topic
from gettaxi import geo
from gettaxi.events import Command, Position, Ride, RiderPosition
from gettaxi.service import PARTITIONS
from gettaxi.traffic import Plan, Traffic

Event = Position | RiderPosition | Command


class Devices:
    """All devices of some cities.

    Args:
        traffic: one for each city.
        bootstrap_servers, schema_registry: of the bus.
        name: of the app, whose consumer group follows the rides.
        acknowledged: called with each acknowledged event and its place.
    """

    def __init__(
        self,
        traffic: Sequence[Traffic],
        *,
        bootstrap_servers: str | Sequence[str],
        schema_registry: str | None,
        name: str = "gettaxi-devices",
        acknowledged: Callable[[Event, RecordMetadata], None] = lambda event, place: None,
    ) -> None:
        self._acknowledged = acknowledged
        self.traffic = {devices.plan.city: devices for devices in traffic}
        self.positions = self.rider_positions = self.commands = 0
        """How many were acknowledged."""
        # Rides are written in transactions: what was not committed does not count.
        self.app = App(
            name,
            bootstrap_servers=bootstrap_servers,
            schema_registry=schema_registry,
            consumer={"isolation_level": "read_committed"},
        )
        self.position_topic: Topic[str, Position] = self.app.topic(
            "gettaxi.positions", value=Position, partitions=PARTITIONS
        )
        self.rider_topic: Topic[str, RiderPosition] = self.app.topic(
            "gettaxi.riders", value=RiderPosition, partitions=PARTITIONS
        )
        self.command_topic: Topic[str, Command] = self.app.topic(
            "gettaxi.commands", value=Command, partitions=PARTITIONS
        )
        self.ride_topic: Topic[str, Ride] = self.app.topic("gettaxi.rides", value=Ride)

        @self.app.subscribe(self.ride_topic)
        async def follow_ride(ride: Ride | None) -> None:
            if ride is not None and (city := self.traffic.get(ride.city)) is not None:
                city.on_ride(ride)

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[Devices]":
        """Connected as long as the block runs."""
        async with self.app:
            yield self

    @property
    def open(self) -> int:
        """Rides that are not over, as far as devices know."""
        return sum(traffic.open for traffic in self.traffic.values())

    async def step(self) -> None:
        """One second of event time in every city: all that was sent is acknowledged when this returns."""
        events: list[Event] = []
        waiting: list[asyncio.Future[RecordMetadata]] = []
        for traffic in self.traffic.values():
            positions, asked = traffic.step()
            at_ms = int(traffic.now.timestamp() * 1000)
            batches: tuple[tuple[Topic[str, Any], Sequence[Event]], ...] = (
                (self.command_topic, asked),
                (self.rider_topic, traffic.riders()),
                (self.position_topic, positions),
            )
            for topic, sent in batches:
                events += sent
                waiting += [await topic.send_soon(event, event.city, timestamp_ms=at_ms) for event in sent]
        for event, place in zip(events, await asyncio.gather(*waiting), strict=True):
            self._acknowledged(event, place)
        self.commands += sum(isinstance(event, Command) for event in events)
        self.rider_positions += sum(isinstance(event, RiderPosition) for event in events)
        self.positions += sum(isinstance(event, Position) for event in events)

    async def run(self, *, speed: float | None, until: Callable[[], bool]) -> None:
        """Step after step, at so many times the speed of the clock, until it is so; as fast as acknowledged without a speed."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not until():
            await self.step()
            if speed is not None:
                # Who falls behind goes on from there instead of sending a burst.
                due = max(due + Traffic.STEP.total_seconds() / speed, loop.time())
                await asyncio.sleep(due - loop.time())
            else:
                await asyncio.sleep(0)


SPEED_MOST: Final = 60.0


async def _run(given: argparse.Namespace) -> int:
    start = dt.datetime.now(dt.UTC).replace(microsecond=0)
    traffic = [
        Traffic(
            Plan(
                city=city,
                drivers=given.drivers,
                rides_per_minute=given.rides_per_minute,
                seed=given.seed,
                start=start,
            )
        )
        for city in given.city
    ]
    devices = Devices(
        traffic,
        bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
        schema_registry=os.environ.get("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081"),
    )
    end = start + dt.timedelta(seconds=given.seconds) if given.seconds is not None else None
    async with devices.running():
        await devices.run(speed=given.speed, until=lambda: end is not None and traffic[0].now >= end)
    sys.stdout.write(
        f"{devices.positions} positions of drivers, {devices.rider_positions} of riders and {devices.commands} commands acknowledged\n"
    )
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m gettaxi.generate", description="Drivers and riders."
    )
    parser.add_argument(
        "--city", action="append", choices=sorted(geo.CITIES), help="one or more cities; default berlin"
    )
    parser.add_argument("--drivers", type=int, default=500, help="drivers of each city; each reports once a second")
    parser.add_argument("--rides-per-minute", type=float, default=60.0, help="ride requests of each city")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed", type=float, default=1.0, help=f"speed of event time, up to {SPEED_MOST:g}")
    parser.add_argument("--seconds", type=float, help="duration in event time; default: until Ctrl-C")
    given = parser.parse_args()
    given.city = given.city or ["berlin"]
    if given.drivers < 1 or given.rides_per_minute <= 0 or not 0 < given.speed <= SPEED_MOST:
        parser.error(f"--drivers and --rides-per-minute are above 0, --speed is above 0 and up to {SPEED_MOST:g}")
    try:
        return asyncio.run(_run(given))
    except BuswayError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
