"""Riders and drivers of GetTaxi: more riders than drivers, every device tells over HTTP what it does.

Here: the devices, and what their rides must come to. A driver's device reports the next position of its ride once the
last one is in the meter.
"""

import asyncio
import datetime as dt
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

import httpx2
from tests.compose.scenarios import eventually

CITY: Final = "amsterdam"
LAT: Final = 52.37
LNG: Final = 4.89
DRIVERS: Final = 12
RIDERS: Final = 16
RIDES: Final = 4
"""Of each rider, one after the other."""
PHASES: Final = ("PICKED_UP", "ON_RIDE", "ON_RIDE", "ON_RIDE", "DROPPED_OFF")
LEG_DEGREES: Final = 0.005
LEG_MM: Final = 555_975
"""So long is a leg to the north: degrees on a sphere of 6,371,008.77 m."""
MICROSECOND: Final = dt.timedelta(microseconds=1)
_scenario: Final[Iterator[int]] = itertools.count(1)


class GetTaxi:
    """Sixteen riders at once, for twelve drivers; see `Scenario`."""

    service = "gettaxi"

    def __init__(self) -> None:
        self.half_way = asyncio.Event()
        self._number = next(_scenario)
        self._rides = [f"ride-{self._number}-{rider}-{ride}" for rider in range(RIDERS) for ride in range(RIDES)]
        self._reported: dict[str, list[dt.datetime]] = defaultdict(list)
        self._over = 0

    async def prepare(self, http: httpx2.AsyncClient) -> None:
        """The drivers say where they are."""
        await self._report(
            http,
            *(
                {"driver_id": f"driver-{self._number}-{number}", "city": CITY, "lat": LAT + number / 1000, "lng": LNG}
                for number in range(DRIVERS)
            ),
        )

    async def load(self, http: httpx2.AsyncClient) -> None:
        """All riders at once, each one ride after the other."""
        async with asyncio.TaskGroup() as tasks:
            for rider in range(RIDERS):
                tasks.create_task(self._travel(http, rider))

    async def _travel(self, http: httpx2.AsyncClient, rider: int) -> None:
        for ride_id in self._rides[rider * RIDES : (rider + 1) * RIDES]:
            wanted = {"city": CITY, "rider_id": f"rider-{rider}", "lat": LAT, "lng": LNG, "ride_id": ride_id}
            for _ in range(2):  # a device that asks again is one ride
                answer = await http.post("/rides", json=wanted)
                assert answer.status_code == 202, answer.text
            await self._drive(http, ride_id)
            self._over += 1
            if self._over == len(self._rides) // 2:
                self.half_way.set()

    async def _drive(self, http: httpx2.AsyncClient, ride_id: str) -> None:
        last: tuple[str, int] | None = None

        async def over() -> bool:
            nonlocal last
            answer = await http.get(f"/rides/{ride_id}")
            if answer.status_code != 200:
                return False
            ride = answer.json()
            if ride["status"] in {"MATCHED", "ON_RIDE"}:
                place = ride["driver_id"], ride["meter"]["positions"]
                if place != last:
                    last = place
                    await self._go_on(http, ride_id, *place)
            return bool(ride["status"] == "ENDED")

        await eventually(over)

    async def _go_on(self, http: httpx2.AsyncClient, ride_id: str, driver_id: str, positions: int) -> None:
        at = dt.datetime.now(dt.UTC)
        self._reported[ride_id].append(at)
        await self._report(
            http,
            {
                "driver_id": driver_id,
                "city": CITY,
                "lat": LAT + positions * LEG_DEGREES,
                "lng": LNG,
                "at": at.isoformat(),
                "phase": PHASES[positions],
                "ride_id": ride_id,
            },
        )

    @staticmethod
    async def _report(http: httpx2.AsyncClient, *positions: dict[str, Any]) -> None:
        answer = await http.post("/positions", json=positions)
        assert answer.status_code == 202, answer.text

    async def exact(self, http: httpx2.AsyncClient) -> None:
        """Every ride has ended with each of its positions in the meter once, and no driver had two at a time."""
        ended: list[dict[str, Any]] = []

        async def all_ended() -> bool:
            answers = await asyncio.gather(*(http.get(f"/rides/{ride_id}") for ride_id in self._rides))
            ended[:] = [response.json() for response in answers if response.status_code == 200]
            return len(ended) == len(self._rides) and {ride["status"] for ride in ended} == {"ENDED"}

        await eventually(all_ended)
        spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for ride in ended:
            meter, reported = ride["meter"], self._reported[ride["ride_id"]]
            assert meter["positions"] == len(reported) == len(PHASES), ride
            assert abs(meter["distance_mm"] - (len(PHASES) - 1) * LEG_MM) < len(PHASES), ride
            assert ride["fare_cents"] == _fare_cents(meter["distance_mm"], reported, ride["surge_percent"]), ride
            spans[ride["driver_id"]].append((ride["first_position_offset"], ride["last_position_offset"]))
        for driver, rides in spans.items():
            rides.sort()
            assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(rides)), (driver, rides)


def _fare_cents(distance_mm: int, reported: list[dt.datetime], surge_percent: int) -> int:
    """300, 150 a kilometre and 30 a minute, times the surge; rounded half up."""
    microseconds = (reported[-1] - reported[0]) // MICROSECOND
    plain = 300 + 150 * Fraction(distance_mm, 1_000_000) + 30 * Fraction(microseconds, 60_000_000)
    return math.floor(plain * surge_percent / 100 + Fraction(1, 2))
