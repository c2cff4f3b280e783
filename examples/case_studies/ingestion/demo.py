"""`busway demo ingestion`: trucks tell where they are, the service answers with the newest, Spark fills the store, and both together
are every position exactly once.

Here: starting, sending, counting.
Not here: the service (`service`), the trucks (`generate`). Where Spark is not installed the speed layer is shown alone.

With `--ci` it ends by itself. Meanwhile the service, the registry and the bus are killed in turn, without warning, and started again.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from kit.command import Interrupts, run_demo
from kit.faults import KillsInTurn
from kit.load import send_all
from kit.parts import BUSWAY, DemoFailed, Part, Parts, free_port
from kit.spark import missing
from kit.summary import Summary
from rich.console import Console

from busway import App, ConsumerRecord
from ingestion import domain
from ingestion.events import LowFuel, Position, Truck
from ingestion.generate import drive
from ingestion.service import PARTITIONS, TOPIC

TRUCKS: Final = 60
POSITIONS: Final = 120
LIVE_PER_S: Final = 120.0
PORT: Final = 8000
SETTLE_S: Final = 60.0
SPARK_S: Final = 240.0
"""For the offload; a JVM starts in seconds, on a busy machine in many."""


@dataclass(slots=True)
class Sent:
    """What was sent, and what must come of it."""

    by_truck: dict[str, list[Position]] = field(default_factory=dict)
    trucks: dict[str, Truck] = field(default_factory=dict)
    alerts: int = 0
    count: int = 0

    def note(self, position: Position) -> None:
        """A position was acknowledged."""
        before = self.trucks.get(position.truck_id)
        after, alert = domain.apply(before, position, before.last_offset + 1 if before else 0)
        self.trucks[position.truck_id] = after
        self.alerts += alert is not None
        self.by_truck.setdefault(position.truck_id, []).append(position)
        self.count += 1


@dataclass(slots=True)
class Demo:
    """The parts."""

    parts: Parts
    service: Part
    client: httpx2.AsyncClient
    ci: bool

    async def send(self, sent: Sent, turns: range, kills: KillsInTurn) -> None:
        """Positions of all trucks in these turns, while parts are killed."""
        every = itertools.islice(drive(TRUCKS, turns.stop), turns.start * TRUCKS, None)
        app = self.app()
        topic = app.topic(TOPIC, key=str, value=Position, partitions=PARTITIONS)
        async with app, kills:
            await send_all(
                every,
                kills.during(lambda position: topic.send_soon(position, key=position.truck_id), len(turns) * TRUCKS),
                sent.note,
                per_s=None if self.ci else LIVE_PER_S,
            )

    def app(self) -> App:
        """Trucks and tools on the same bus."""
        return App("trucks", self.parts.bootstrap_servers, self.parts.schema_registry)

    async def get(self, path: str) -> Any:
        """JSON from the service."""
        return (await self.client.get(path)).raise_for_status().json()

    async def settled(self, sent: Sent) -> None:
        """Wait until the service knows of all that was sent, and has it at hand or in the store.

        Raises:
            DemoFailed: it does not.
        """
        deadline = time.monotonic() + SETTLE_S
        while True:
            try:
                known = sum(truck["positions"] for truck in await self.get("/trucks"))
                store = await self.get("/store")
                if known >= sent.count <= sum(store["reaches"].values()) + sum(store["waiting"].values()):
                    return
            except httpx2.HTTPError:
                pass  # it is being started again
            self.service.check()
            if time.monotonic() > deadline:
                raise DemoFailed(f"not all of {sent.count} positions were handled within {SETTLE_S:.0f} s")
            await asyncio.sleep(0.1)

    async def offload(self) -> None:
        """The store gets all that is in the topic now.

        Raises:
            DemoFailed: the job failed.
        """
        store = str(self.parts.folder / "store")
        job = await self.parts.start(
            "offload", *BUSWAY, "spark", "offload", "--topic", TOPIC, "--out", store, "--until-end"
        )
        try:
            async with asyncio.timeout(SPARK_S):
                await job.process.communicate()
        except TimeoutError:
            raise DemoFailed(f"the store was not filled within {SPARK_S:.0f} s:\n{job.tail()}") from None
        if job.process.returncode:
            raise DemoFailed(f"the store was not filled:\n{job.tail()}")
        reaching = SETTLE_S + time.monotonic()
        while sum((await self.get("/store"))["waiting"].values()):
            if time.monotonic() > reaching:
                raise DemoFailed(f"the service did not see the store within {SETTLE_S:.0f} s")
            await asyncio.sleep(0.1)

    async def alerts(self) -> list[ConsumerRecord[str, LowFuel]]:
        """All records of the topic."""
        app = self.app()
        topic = app.topic("TRUCK_ALERTS", key=str, value=LowFuel)
        async with app:
            return [record async for record in app.read(topic)]

    async def differences(self, sent: Sent, summary: Summary) -> None:
        """What the two layers tell of each truck, beside what it sent."""
        layers = {"store": 0, "stream": 0}
        wrong = gaps = 0
        for truck_id, positions in sent.by_truck.items():
            history = await self.get(f"/trucks/{truck_id}/history?limit=10000")
            shown = [(entry["position"]["latitude"], entry["position"]["fuel_percent"]) for entry in history["entries"]]
            wrong += shown != [(position.latitude, position.fuel_percent) for position in positions]
            gaps += len(history["gaps"])
            for entry in history["entries"]:
                layers[entry["layer"]] += 1
        summary.figure("entries from the store", layers["store"])
        summary.figure("entries from the stream", layers["stream"])
        summary.figure("both together", sum(layers.values()), must_be=sent.count)
        summary.figure("histories that are wrong", wrong, must_be=0)
        summary.figure("gaps", gaps, must_be=0)


async def run(interrupts: Interrupts, *, ci: bool, spark: bool) -> int:
    """The whole demo; 0 when both layers agree exactly."""
    console, begun = Console(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ingestion-") as folder:
        async with Parts(Path(folder), hurry=interrupts.hurry) as parts:
            await parts.start_bus()
            service = await parts.start_app(
                "service",
                "ingestion.service:app",
                BUSWAY_HTTP_PORT=str(free_port(0 if ci else PORT)),
                INGESTION_INSTANCE="one",
                INGESTION_STORE=str(Path(folder) / "store"),
            )
            url = (await service.line()).removeprefix("ingestion ")
            console.print(
                f"bus       {parts.bootstrap_servers}\nregistry  {parts.schema_registry}\npage      [bold]{url}[/bold]"
            )
            left_out = await asyncio.to_thread(missing) if spark else "--without-spark"
            if left_out:
                console.print(f"Spark     left out, so the speed layer answers alone: {left_out}", markup=False)
            async with httpx2.AsyncClient(base_url=url, timeout=20) as client:
                demo = Demo(parts, service, client, ci)
                summary, sent = Summary(), Sent()

                async def story() -> None:
                    nonlocal summary
                    summary = await _story(demo, sent, left_out, console)

                if not await interrupts.until_stop(story()):
                    summary.figure("positions acknowledged", sent.count)
                    summary.figure("not compared", "stopped before the end")
                summary.figure("took", f"{time.monotonic() - begun:.1f} s")
                code = summary.show(console)
                if not ci and not interrupts.stop.is_set():
                    console.print("the page stays until Ctrl-C")
                    await interrupts.until_stop(service.process.wait())
                    if not interrupts.stop.is_set():
                        service.check()
            return code


async def _story(demo: Demo, sent: Sent, left_out: str | None, console: Console) -> Summary:
    """A third, which Spark stores; then two thirds, which are in the stream alone, and meanwhile each part is killed."""
    third = POSITIONS // 3
    await demo.send(sent, range(third), KillsInTurn([]))
    await demo.settled(sent)
    if left_out is None:
        console.print("store     Spark writes what there is")
        await demo.offload()
    kills = KillsInTurn([demo.service, demo.parts.registry, demo.parts.bus] if demo.ci else [])
    await demo.send(sent, range(third, POSITIONS), kills)
    await demo.settled(sent)
    summary = Summary()
    summary.figure("positions sent", sent.count, must_be=TRUCKS * POSITIONS)
    known = await demo.get("/trucks")
    summary.figure("positions handled", sum(truck["positions"] for truck in known), must_be=sent.count)
    await demo.differences(sent, summary)
    alerts = [record.value.alert_id for record in await demo.alerts() if record.value is not None]
    summary.figure("low-fuel alerts", len(alerts), must_be=sent.alerts)
    summary.figure("alerts sent twice", len(alerts) - len(set(alerts)), must_be=0)
    kills.tell(summary)
    if left_out:
        summary.figure("left out", f"the analytics store: {left_out}")
    return summary


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="busway demo ingestion")
    parser.add_argument("--ci", action="store_true", help="print a summary and exit")
    parser.add_argument("--without-spark", action="store_true", help="leave out the store even if Spark is installed")
    given = parser.parse_args()
    ci = given.ci or not sys.stdout.isatty()
    return run_demo(lambda interrupts: run(interrupts, ci=ci, spark=not given.without_spark))


if __name__ == "__main__":
    sys.exit(main())
