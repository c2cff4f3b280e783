"""GetTaxi on both brokers: positions a second that the dispatcher holds, and how long a rider waits for the match.

Here: the load and the two figures.
Not here: brokers, turns, the table (`frame`).

Two phases, the service in a process of its own. First positions as fast as they are acknowledged: the rate until the service has
them all in its memory. Then 1,000 drivers that report every second, and 20 requests a second: the time from sending a request to
reading the matched ride from the topic `gettaxi.rides`, as a driver's device does.

    python -m benchmarks.case_studies.gettaxi
"""

import asyncio
import datetime as dt
import statistics
import sys
import time
from typing import Any, Final

import httpx2
from gettaxi import geo
from gettaxi.events import Ask, Command, Position, Ride, Status
from gettaxi.generate import Devices
from gettaxi.traffic import Plan, Traffic
from kit.load import send_all
from kit.parts import Parts

from benchmarks.case_studies.frame import Figures, Site, main
from benchmarks.report import Metric

HELD: Final = Metric(name="positions held", unit="/s", higher_is_better=True, target=1.0)
MATCH_P50: Final = Metric(name="request to match, p50", unit="ms", higher_is_better=False, target=1.0)
MATCH_P99: Final = Metric(name="request to match, p99", unit="ms", higher_is_better=False, target=1.0)
CITY: Final = "berlin"
DRIVERS: Final = 1000
REQUESTS_PER_S: Final = 20
POSITIONS: Final = 40_000
SECONDS: Final = 15
IN_FLIGHT: Final = 4000
WAIT_S: Final = 60.0


async def measure(site: Site) -> Figures:
    """One turn."""
    start = dt.datetime.now(dt.UTC).replace(microsecond=0)
    traffic = Traffic(Plan(city=CITY, drivers=DRIVERS, rides_per_minute=1e-6, seed=1, start=start))
    environment = {**site.environment, "BUSWAY_HTTP_PORT": "0"}
    async with Parts(site.folder, environment) as parts:
        service = await parts.start_app("service", "gettaxi.service:app")
        url = (await service.line()).removeprefix("gettaxi ")
        devices = Devices([], bootstrap_servers=site.bootstrap_servers, schema_registry=site.schema_registry)
        async with devices.running(), httpx2.AsyncClient(base_url=url, timeout=10) as client:
            await devices.step()
            held = await _held(devices, client, traffic, POSITIONS // 10 if site.quick else POSITIONS)
            waits_ms = await _matches(devices, traffic, 3 if site.quick else SECONDS)
    cuts = statistics.quantiles(waits_ms, n=100)
    return {HELD: held, MATCH_P50: cuts[49], MATCH_P99: cuts[98]}


async def _held(devices: Devices, client: httpx2.AsyncClient, traffic: Traffic, count: int) -> float:
    warm = traffic.step()[0]
    await _send(devices, warm)
    await _seen(client, len(warm))
    events = [position for _ in range(count // DRIVERS) for position in traffic.step()[0]]
    begun = time.perf_counter()
    await _send(devices, events)
    await _seen(client, len(warm) + len(events))
    return len(events) / (time.perf_counter() - begun)


async def _send(devices: Devices, events: list[Position]) -> None:
    async def send(event: Position) -> "asyncio.Future[Any]":
        at_ms = int(event.at.timestamp() * 1000) + 1000
        return await devices.position_topic.send_soon(event, event.city, timestamp_ms=at_ms)

    await send_all(events, send, lambda event: None, in_flight=IN_FLIGHT)


async def _seen(client: httpx2.AsyncClient, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            (city,) = [city for city in (await client.get("/cities")).json() if city["name"] == CITY]
            if city.get("positions", 0) >= count:
                return
            await asyncio.sleep(0.02)


async def _matches(devices: Devices, traffic: Traffic, seconds: int) -> list[float]:
    """Milliseconds from each request to its match."""
    asked: dict[str, float] = {}
    waits_ms: list[float] = []
    done = asyncio.Event()
    wanted = seconds * REQUESTS_PER_S

    class Watch:
        """Gets every ride, in the place of the devices' own."""

        def on_ride(self, ride: Ride) -> None:
            begun = asked.pop(ride.ride_id, None) if ride.status is Status.MATCHED else None
            if begun is not None:
                waits_ms.append((time.perf_counter() - begun) * 1000)
                if len(waits_ms) == wanted:
                    done.set()

    watched: dict[str, Any] = {CITY: Watch()}
    devices.traffic = watched
    loop = asyncio.get_running_loop()
    place = geo.CITIES[CITY]
    begun = loop.time()
    sent: list[asyncio.Future[Any]] = []
    for second in range(seconds):
        positions = traffic.step()[0]
        at_ms = int(traffic.now.timestamp() * 1000)
        part = len(positions) // REQUESTS_PER_S
        for number in range(REQUESTS_PER_S):
            await asyncio.sleep(max(begun + second + number / REQUESTS_PER_S - loop.time(), 0))
            for position in positions[number * part : (number + 1) * part]:
                sent.append(  # noqa: PERF401 - each is awaited before the next is made
                    await devices.position_topic.send_soon(position, CITY, timestamp_ms=at_ms)
                )
            ride_id = f"{second}-{number}"
            command = Command(
                ask=Ask.REQUESTED,
                ride_id=ride_id,
                city=CITY,
                at=traffic.now,
                rider_id=ride_id,
                lat=place.lat + (number - REQUESTS_PER_S / 2) / 1000,
                lng=place.lng + (second - seconds / 2) / 1000,
            )
            asked[ride_id] = time.perf_counter()
            sent.append(await devices.command_topic.send_soon(command, CITY, timestamp_ms=at_ms))
    await asyncio.gather(*sent)
    async with asyncio.timeout(WAIT_S):
        await done.wait()
    return waits_ms


if __name__ == "__main__":
    sys.exit(main("gettaxi", measure))
