"""Trucks on the roads: positions, the same for the same seed.

    python -m ingestion.generate --trucks 50 --positions 20     # from examples/case_studies

Here: made-up trucks.
Not here: sending more than this (`demo`). A truck goes on at its own speed, turns a little, burns fuel, and fills up
when it is nearly empty.
"""

import argparse
import asyncio
import datetime as dt
import math
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kit.load import send_all

from busway import App, BuswayError
from ingestion.events import Position
from ingestion.service import PARTITIONS, TOPIC

EVERY_S: Final = 20
BEGIN: Final = dt.datetime(2026, 1, 5, 6, 0, tzinfo=dt.UTC)
_SOUTH, _NORTH, _WEST, _EAST = 46.5, 49.5, 7.0, 13.0
_KM_PER_DEGREE: Final = 111.2


@dataclass(slots=True)
class _Driving:
    latitude: float
    longitude: float
    heading: float
    speed_kmh: float
    fuel_percent: float
    burn_percent: float

    def on(self, seconds: float, chance: random.Random) -> None:
        self.heading += chance.gauss(0, 0.15)
        self.speed_kmh = min(max(self.speed_kmh + chance.gauss(0, 4), 20), 95)
        km = self.speed_kmh * seconds / 3600
        self.latitude += km * math.cos(self.heading) / _KM_PER_DEGREE
        self.longitude += km * math.sin(self.heading) / (_KM_PER_DEGREE * math.cos(math.radians(self.latitude)))
        if not (_SOUTH < self.latitude < _NORTH and _WEST < self.longitude < _EAST):
            self.heading += math.pi
            self.latitude = min(max(self.latitude, _SOUTH), _NORTH)
            self.longitude = min(max(self.longitude, _WEST), _EAST)
        self.fuel_percent -= self.burn_percent
        if self.fuel_percent < 4:
            self.fuel_percent = 100.0


def drive(trucks: int, positions: int, *, seed: int = 1) -> Iterator[Position]:
    """Positions of every truck, all trucks in each turn of 20 seconds.

    Args:
        trucks: how many.
        positions: of each.
        seed: of roads and tanks.
    """
    chance = random.Random(seed)  # noqa: S311 - roads, not keys
    fleet = [
        _Driving(
            chance.uniform(_SOUTH, _NORTH),
            chance.uniform(_WEST, _EAST),
            chance.uniform(0, 2 * math.pi),
            chance.uniform(50, 90),
            chance.uniform(16, 100),
            chance.uniform(0.05, 0.6),
        )
        for _ in range(trucks)
    ]
    for turn in range(positions):
        at = BEGIN + dt.timedelta(seconds=turn * EVERY_S)
        for number, truck in enumerate(fleet):
            yield Position(
                truck_id=f"truck-{number:03}",
                latitude=round(truck.latitude, 6),
                longitude=round(truck.longitude, 6),
                speed_kmh=round(truck.speed_kmh, 1),
                fuel_percent=round(truck.fuel_percent, 2),
                at=at,
            )
            truck.on(EVERY_S, chance)


async def _send(trucks: int, positions: int, seed: int, per_s: float | None) -> int:
    app = App(
        "trucks",
        bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
        schema_registry=os.environ.get("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081"),
    )
    topic = app.topic(TOPIC, key=str, value=Position, partitions=PARTITIONS)
    async with app:
        return await send_all(
            drive(trucks, positions, seed=seed),
            lambda position: topic.send_soon(position, key=position.truck_id),
            lambda position: None,
            per_s=per_s,
        )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m ingestion.generate")
    parser.add_argument("--trucks", type=int, default=50)
    parser.add_argument("--positions", type=int, default=20, help="positions of each truck")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-s", type=float, help="positions a second; default: as fast as they are acknowledged")
    given = parser.parse_args()
    try:
        sent = asyncio.run(_send(given.trucks, given.positions, given.seed, given.per_s))
    except BuswayError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    sys.stdout.write(f"{sent} positions of {given.trucks} trucks are in {TOPIC}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
