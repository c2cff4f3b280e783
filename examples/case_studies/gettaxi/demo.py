"""`busway demo gettaxi`: the bus, the registry and the service as processes of their own, two cities in motion, a page that follows.

Here: starting, driving, the terminal, the summary.
Not here: the service (`service`), the traffic (`traffic`, `generate`), what is lost, doubled or wrong (`audit`), the page's server (`kit.cockpit`).

With `--ci` it ends by itself. Meanwhile it kills the service, the registry and the bus (a leader, with `--nodes 3`) in turn, without warning,
and starts them again. Else the page has buttons for that. Both count in the same way what was lost, doubled or wrong.
"""

import argparse
import asyncio
import datetime as dt
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kit.cockpit import Cockpit
from kit.command import Interrupts, beside, run_demo, stopped_early
from kit.parts import DemoFailed, Parts, free_port
from kit.summary import Summary
from rich.console import Console
from rich.live import Live
from rich.table import Table

from busway import BuswayError
from busway.web import serving
from gettaxi import matching
from gettaxi.events import Status
from gettaxi.running import Running
from gettaxi.traffic import Plan

PORT: Final = 8001
CITIES: Final = ("berlin", "lisbon")
REQUESTS_FOR: Final = dt.timedelta(seconds=60)
"""With --ci riders come for so long, in event time; then their rides end."""
ENDS_WITHIN: Final = dt.timedelta(minutes=15)
SPEED: Final = 3.0
"""How fast event time goes while you look."""
CI_SPEED: Final = 20.0
SETTLE_S: Final = 15.0
"""At the end, for parts that are away and for what was acknowledged last."""
PAGES: Final = Path(__file__).parent
NODES: Final = (1, 3, 5)


def plans(*, ci: bool, seed: int) -> list[Plan]:
    """Two cities: small and quick for CI, larger for the eye."""
    start = dt.datetime.now(dt.UTC).replace(microsecond=0)
    if ci:
        return [
            Plan(city=city, drivers=12, rides_per_minute=12, seed=seed, start=start, half_m=500, longest_m=600)
            for city in CITIES
        ]
    return [Plan(city=city, drivers=300, rides_per_minute=60, seed=seed, start=start, half_m=4500) for city in CITIES]


async def drive_to_the_end(running: Running) -> None:
    """Riders for a while, in which each part is killed, then their rides to the end."""
    devices = running.devices
    traffic = list(devices.traffic.values())
    first = traffic[0]
    last = first.plan.start + REQUESTS_FOR

    async def drive(until: Callable[[], bool]) -> None:
        await running.drive(speed=CI_SPEED, until=until)

    async with running.turns as kills:
        for turn in kills.turns:
            await drive(lambda: first.now >= first.plan.start + REQUESTS_FOR * turn)  # noqa: B023 - called before the next
            await kills.passed(turn)
        await drive(lambda: first.now >= last)
    for driver in traffic:
        driver.requests = False
    await drive(lambda: not devices.open or first.now >= last + ENDS_WITHIN)


async def show(running: Running, console: Console, interrupts: Interrupts) -> None:
    """Drive, serve the page and show figures until Ctrl-C."""
    files = {
        "/": PAGES / "demo.html",
        **{f"/{name}": PAGES / name for name in ("demo.js", "demo.css", "city.js", "city.css")},
    }
    cockpit = Cockpit(
        files,
        proxied=["/cities"],
        streamed=["/cities/{city}/live"],
        service=running.url,
        state=running.state,
        kills=running.kills,
    )
    running.changed = cockpit.changed
    async with serving(cockpit.application, port=free_port(PORT)) as page:
        console.print(f"page      [bold]{page}[/bold]   with buttons that kill -9 the parts; Ctrl-C ends\n")

        async def drive() -> None:
            driving = asyncio.ensure_future(running.drive(speed=SPEED, until=interrupts.stop.is_set))
            try:
                if not await interrupts.until_stop(asyncio.shield(driving)):
                    # The last step is acknowledged when the bus is back.
                    await interrupts.wait(asyncio.shield(driving), SETTLE_S)
            finally:
                driving.cancel()
                await asyncio.wait([driving])

        await beside(drive(), cockpit.run(), _screen(running, console))


async def _screen(running: Running, console: Console) -> None:
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            live.update(_table(running))
            await asyncio.sleep(0.5)


def _table(running: Running) -> Table:
    audit = running.audit
    table = Table.grid(padding=(0, 3))
    for name in ("records/s", "acknowledged", "checked", "fares", "lost", "doubled", "wrong", "killed"):
        table.add_column(name, justify="right")
    table.add_row(*("records/s", "acknowledged", "checked", "fares", "lost", "doubled", "wrong", "killed"), style="dim")
    counts = (audit.checked, audit.fares, audit.lost, audit.doubled, audit.wrong, sum(running.kills.counts.values()))
    bad = audit.lost or audit.doubled or audit.wrong
    table.add_row(
        f"{running.per_s():,.0f}",
        f"{running.acknowledged:,}",
        *(f"{count:,}" for count in counts),
        style="bold red" if bad else "bold",
    )
    return table


async def run(*, ci: bool, seed: int, nodes: int, interrupts: Interrupts) -> int:
    """The whole demo; 0 when nothing was lost, doubled or wrong."""
    console = Console()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gettaxi-", ignore_cleanup_errors=True) as folder:
        # What clients log while brokers are away is no news here.
        logging.basicConfig(filename=Path(folder) / "demo.log", level=logging.INFO)
        environment = {"BUSWAY_HTTP_PORT": str(free_port()), "GETTAXI_INSTANCE": "one"}
        async with Parts(Path(folder), environment, hurry=interrupts.hurry) as parts:
            started: list[Running] = []

            async def start() -> None:
                started.append(await Running.start(parts, plans(ci=ci, seed=seed), nodes=nodes))

            if not await interrupts.until_stop(start()):
                return stopped_early(begun).show(console)
            (running,) = started
            console.print(
                f"bus       {parts.bootstrap_servers}\nregistry  {parts.schema_registry}\nservice   {running.url}"
            )
            summary = Summary()

            async def drive_and_count() -> None:
                nonlocal summary
                await (interrupts.until_stop(drive_to_the_end(running)) if ci else show(running, console, interrupts))
                settled = await _settle(running, interrupts)
                summary = _summary(running, ended=ci and not interrupts.stop.is_set(), settled=settled)
                summary.figure("took", f"{time.monotonic() - begun:.1f} s")
                summary.show(console)

            try:
                await interrupts.to_the_end(running.connected(drive_and_count(), watched=not ci or nodes > 1))
            finally:
                await running.kills.stop()
            return summary.exit_code


async def _settle(running: Running, interrupts: Interrupts) -> bool:
    """Wait for parts that are away and until all is compared; return whether it is."""

    async def settle() -> None:
        await running.kills.settled()
        await running.auditing.caught_up()

    try:
        return await interrupts.wait(settle(), SETTLE_S)
    except BuswayError:
        return False


def _summary(running: Running, *, ended: bool, settled: bool) -> Summary:
    """What was counted.

    Args:
        ended: all rides had the time to come to their end.
        settled: everything that was acknowledged is compared.
    """
    audit, traffic = running.audit, running.devices.traffic.values()
    asked = {ride_id for city in traffic for ride_id in city.rides}
    counts = {status: sum(each is status for each in audit.statuses.values()) for status in Status}
    summary = Summary()
    summary.figure("records acknowledged", f"{running.acknowledged:,}")
    summary.figure(
        "  and in their topics", f"{audit.checked:,}", must_be=f"{running.acknowledged:,}" if settled else None
    )
    if not settled and running.acknowledged > audit.checked + audit.lost_records:
        summary.figure(
            "  not compared", f"{running.acknowledged - audit.checked - audit.lost_records:,}: stopped before"
        )
    summary.figure("rides requested", len(asked), must_be=len(audit.statuses) if ended else None)
    if ended:
        dropped_off = {ride_id for city in traffic for ride_id in city.dropped_off}
        cancelled = {ride_id for ride_id, status in audit.statuses.items() if status is Status.CANCELLED}
        summary.figure("  ended", counts[Status.ENDED], must_be=len(dropped_off - cancelled))
    else:
        summary.figure("  ended", counts[Status.ENDED])
    summary.figure("  cancelled", counts[Status.CANCELLED])
    summary.figure("  no driver in time", counts[Status.EXPIRED])
    still_open = sum(counts[status] for status in matching.OPEN)
    summary.figure("  still open", still_open, must_be=0 if ended else None)
    summary.figure("fares computed again", audit.fares)
    summary.figure("  their sum", f"{audit.fares_cents / 100:,.2f}")
    summary.figure("  at more than the plain price", audit.surged)
    summary.figure("lost", audit.lost, must_be=0)
    summary.figure("doubled", audit.doubled, must_be=0)
    summary.figure("wrong", audit.wrong, must_be=0)
    if ended:
        running.turns.tell(summary)
    elif killed := running.killed():
        summary.figure("killed under load", killed)
    return summary


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="busway demo gettaxi")
    parser.add_argument("--ci", action="store_true", help="kill each part once, print a summary and exit")
    parser.add_argument("--page", action="store_true", help="serve the page, though no terminal looks on")
    parser.add_argument("--nodes", type=int, default=1, choices=NODES, help="brokers of the bus")
    parser.add_argument("--seed", type=int, default=1, help="seed of the traffic")
    given = parser.parse_args()
    ci = given.ci or not (given.page or sys.stdout.isatty())
    return run_demo(
        lambda interrupts: run(ci=ci, seed=given.seed, nodes=given.nodes, interrupts=interrupts), DemoFailed
    )


if __name__ == "__main__":
    sys.exit(main())
