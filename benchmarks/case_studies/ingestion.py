"""Ingestion: truck positions a second through the service, and how soon a position is on the dashboard.

    python -m benchmarks.case_studies.ingestion [--quick]

Here: the load and what is measured.
Not here: brokers, turns, rounds (`frame`). The service is a process of its own; positions come from this process.
Throughput: all positions sent as fast as they are acknowledged, until every truck has them. Latency: one position after
another over HTTP, until the server-sent event that tells it is here.
"""

import asyncio
import json
import statistics
import sys
import time

import httpx2
from ingestion.events import Position
from ingestion.generate import drive
from ingestion.service import PARTITIONS, TOPIC
from kit.load import send_all
from kit.parts import BUSWAY, Parts

from benchmarks.case_studies.frame import Figures, Site, main
from benchmarks.report import Metric
from busway import App

TRUCKS, POSITIONS, LONE = 200, 50, 100
APART_SECONDS = 0.15
"""Between two: a stream of server-sent events rests for 0.1 s after each, which would be measured instead."""
HELD = Metric(name="positions held", unit="positions/s", higher_is_better=True, target=1.0)
P50 = Metric(name="position to dashboard p50", unit="ms", higher_is_better=False, target=1.0)
P99 = Metric(name="position to dashboard p99", unit="ms", higher_is_better=False)
SETTLE_SECONDS = 60.0


async def measure(site: Site) -> Figures:
    """One turn on one broker."""
    positions, lone = (POSITIONS // 10, LONE // 10) if site.quick else (POSITIONS, LONE)
    app = App("trucks", site.bootstrap_servers, site.schema_registry)
    topic = app.topic(TOPIC, key=str, value=Position, partitions=PARTITIONS)
    store = {"INGESTION_STORE": str(site.folder / "store")}
    async with Parts(site.folder, site.environment) as parts, app:
        command = (*BUSWAY, "run", "ingestion.service:app", "--http", "127.0.0.1:0", "--log-level", "warning")
        service = await parts.start("service", *command, **store)
        url = (await service.line()).removeprefix("ingestion ")
        async with httpx2.AsyncClient(base_url=url, timeout=20) as client:
            given = list(drive(TRUCKS, positions))
            begun = time.perf_counter()
            await send_all(given, lambda position: topic.send_soon(position, position.truck_id), lambda _: None)
            deadline = time.perf_counter() + SETTLE_SECONDS
            while sum(truck["positions"] for truck in (await client.get("/trucks")).json()) < len(given):
                assert time.perf_counter() < deadline, service.tail()
                await asyncio.sleep(0.02)
            held = len(given) / (time.perf_counter() - begun)
            cuts = statistics.quantiles(await latencies(client, lone), n=100)
    return {HELD: held, P50: cuts[49], P99: cuts[98]}


async def latencies(client: httpx2.AsyncClient, count: int) -> list[float]:
    """Milliseconds from the request with a position to the event on the page."""
    taken = []
    async with client.stream("GET", "/live", timeout=None) as live:
        lines = live.aiter_lines()
        await anext(lines)
        for number in range(count):
            await asyncio.sleep(APART_SECONDS)
            body = {"latitude": 48.0, "longitude": 11.0, "speed_kmh": 60.0, "fuel_percent": 90.0}
            begun = time.perf_counter()
            (await client.post("/trucks/lone/positions", json=body)).raise_for_status()
            async for line in lines:
                if not line.startswith("data: "):
                    continue
                if any(truck["positions"] == number + 1 for key, truck in json.loads(line[6:]) if key == "lone"):
                    break
            taken.append((time.perf_counter() - begun) * 1000)
    return taken


if __name__ == "__main__":
    sys.exit(main("ingestion", measure))
