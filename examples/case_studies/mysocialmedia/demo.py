"""`busway demo mysocialmedia`: the bus, the registry and the service as processes of their own, and a campaign day that rains on them.

Here: starting, sending, showing, counting.
Not here: the service (`service`), the activities (`generate`).

With `--ci` it ends by itself. In the burst it kills the service, the registry and the bus in turn, without warning, and starts them again;
the summary compares the totals of every post, over HTTP and in the topic where they are kept, with sets of users counted by hand. With `--spark` the
job `totals` counts everything again, too.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from kit.command import Interrupts, run_demo, stopped_early
from kit.faults import KillsInTurn
from kit.parts import BUSWAY, DemoFailed, Part, Parts, free_port
from kit.summary import Summary
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from busway import App
from mysocialmedia import generate
from mysocialmedia.events import Post

PORT: Final = 8000
CI_DAY: Final = generate.Day(events=30_000)
LIVE_DAY: Final = generate.Day(events=10**9, per_s=150.0)
HALF_LIFE_S: Final = 60
SETTLE_S: Final = 60.0
SPARK_S: Final = 180.0
_AROUND_TABLE: Final = 6
"""Lines of the terminal that are not posts."""
_POLL_S: Final = 0.1


@dataclass(slots=True)
class Demo:
    """The parts, and what was acknowledged."""

    parts: Parts
    service: Part
    url: str
    ci: bool
    kills: KillsInTurn
    tally: generate.Tally = field(default_factory=generate.Tally)

    @classmethod
    async def start(cls, parts: Parts, *, ci: bool) -> "Demo":
        """Bus and registry, then the service with its page."""
        await parts.start_bus()
        service = await parts.start_app(
            "service",
            "mysocialmedia.service:app",
            BUSWAY_HTTP_PORT=str(free_port(0 if ci else PORT)),
            MYSOCIALMEDIA_INSTANCE="one",
            MYSOCIALMEDIA_HALF_LIFE_S=str(HALF_LIFE_S),
        )
        url = (await service.line()).removeprefix("mysocialmedia ")
        return cls(parts, service, url, ci, KillsInTurn([service, parts.registry, parts.bus] if ci else []))

    def sender(self) -> App:
        """An app that sends activities."""
        return generate.sender(self.parts.bootstrap_servers, self.parts.schema_registry)

    async def send(self, stopped: Callable[[], bool]) -> None:
        """The whole day, or until it is stopped."""
        async with self.sender() as app, self.kills:
            day = CI_DAY if self.ci else LIVE_DAY
            await generate.run(day, app, self.tally.note, around=self.kills.during, stopped=stopped)


async def run(interrupts: Interrupts, *, ci: bool, spark: bool) -> int:
    """The whole demo; 0 when nothing was lost or doubled."""
    console = Console()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mysocialmedia-") as folder:
        parts = Parts(Path(folder), hurry=interrupts.hurry)
        async with parts, httpx2.AsyncClient(timeout=5) as client:
            started: list[Demo] = []

            async def start() -> None:
                started.append(await Demo.start(parts, ci=ci))

            if not await interrupts.until_stop(start()):
                return stopped_early(begun).show(console)
            (demo,) = started
            console.print(
                f"bus       {parts.bootstrap_servers}\nregistry  {parts.schema_registry}\npage      [bold]{demo.url}[/bold]"
            )
            sent_s = time.monotonic()
            sending = asyncio.ensure_future(demo.send(interrupts.stop.is_set))
            try:
                while not sending.done() and not interrupts.stop.is_set():
                    demo.service.check()
                    await (
                        asyncio.wait([sending], timeout=_POLL_S)
                        if ci
                        else _show(demo, client, console, interrupts, sending)
                    )
                # What was sent before Ctrl-C is acknowledged.
                await interrupts.wait(asyncio.shield(sending), SETTLE_S)
            finally:
                sending.cancel()
                await asyncio.wait([sending])
            return await _prove(demo, client, console, interrupts, begun=begun, sent_s=sent_s, spark=spark)


# At the end


async def _prove(
    demo: Demo,
    client: httpx2.AsyncClient,
    console: Console,
    interrupts: Interrupts,
    *,
    begun: float,
    sent_s: float,
    spark: bool,
) -> int:
    summary = Summary()

    async def compare() -> None:
        nonlocal summary
        served = await _served(demo, client)
        settled_s = time.monotonic() - sent_s
        summary = _summary(demo, served, await _kept(demo), settled_s, stopped=interrupts.stop.is_set())

    if not await interrupts.wait(compare(), 2 * SETTLE_S):
        summary.figure("activities acknowledged", demo.tally.activities)
        summary.figure("not compared", "stopped before")
    elif spark and not interrupts.stop.is_set():
        likes, comments = (sum(column) for column in zip(*demo.tally.totals.values(), strict=True))
        expected = f"totals: {len(demo.tally.totals)} posts, {likes} likes, {comments} comments"
        summary.figure("Spark", await _counted_again(demo), must_be=expected)
    summary.figure("took", f"{time.monotonic() - begun:.1f} s")
    return summary.show(console)


async def _served(demo: Demo, client: httpx2.AsyncClient) -> dict[str, tuple[int, int] | None]:
    """Likes and comments of each post as the service tells them, None for those it says are deleted; waits until they are right."""
    expected: dict[str, tuple[int, int] | None] = {**demo.tally.totals, **dict.fromkeys(demo.tally.deleted)}
    totals: dict[str, tuple[int, int] | None] = {}
    deadline = time.monotonic() + SETTLE_S
    while (
        left := [post_id for post_id in expected if totals.get(post_id, ()) != expected[post_id]]
    ) and time.monotonic() < deadline:
        demo.service.check()
        for post_id in left:
            answer = await client.get(f"{demo.url}/posts/{post_id}")
            if answer.status_code == 410:
                totals[post_id] = None
            elif answer.status_code == 200:
                totals_shown = answer.json()
                totals[post_id] = totals_shown["likes"], totals_shown["comments"]
            if totals.get(post_id, ()) != expected[post_id]:
                await asyncio.sleep(_POLL_S)
                break
    return totals


async def _kept(demo: Demo) -> dict[str, Post]:
    """The newest row of each post in the compacted topic: what the next instance would begin with."""
    reader = App(
        "mysocialmedia-audit",
        bootstrap_servers=demo.parts.bootstrap_servers,
        schema_registry=demo.parts.schema_registry,
    )
    posts = reader.topic("mysocialmedia.posts", value=Post)
    async with reader:
        return {record.key: record.value async for record in reader.read(posts) if record.key and record.value}


async def _counted_again(demo: Demo) -> str:
    """What the Spark job says of all activities."""
    out = str(demo.parts.folder / "store")
    job = await demo.parts.start("spark", *BUSWAY, "spark", "mysocialmedia.jobs.totals", "--out", out)
    assert job.process.stdout is not None
    async with asyncio.timeout(SPARK_S):
        said = await job.process.stdout.readline()
    if not said:
        raise DemoFailed(f"the Spark job ended without a word:\n{job.tail()}")
    return said.decode().strip()


def _summary(
    demo: Demo, served: dict[str, tuple[int, int] | None], kept: dict[str, Post], settled_s: float, *, stopped: bool
) -> Summary:
    expected = demo.tally.totals
    lost = doubled = 0
    for post_id, right in expected.items():
        got = served.get(post_id) or (0, 0)
        lost += sum(max(must - actual, 0) for must, actual in zip(right, got, strict=True))
        doubled += sum(max(actual - must, 0) for must, actual in zip(right, got, strict=True))
    stored = {post_id: (post.likes, post.comments) for post_id, post in kept.items() if not post.deleted}
    summary = Summary()
    summary.figure("activities acknowledged", demo.tally.activities, must_be=None if stopped else CI_DAY.events)
    summary.figure("likes", sum(likes for likes, _ in expected.values()))
    summary.figure("comments", sum(comments for _, comments in expected.values()))
    summary.figure("lost", lost, must_be=0)
    summary.figure("doubled", doubled, must_be=0)
    summary.figure("posts", len(served) - len(demo.tally.deleted), must_be=len(expected))
    summary.figure(
        "deleted", sum(post_totals is None for post_totals in served.values()), must_be=len(demo.tally.deleted)
    )
    wrong = sum(stored.get(post_id) != right for post_id, right in expected.items()) + len(stored.keys() - expected)
    summary.figure("posts whose kept totals are wrong", wrong, must_be=0)
    if not stopped:
        demo.kills.tell(summary)
    summary.figure("sent and counted in", f"{settled_s:.1f} s")
    return summary


# In a terminal


async def _show(
    demo: Demo, client: httpx2.AsyncClient, console: Console, interrupts: Interrupts, sending: "asyncio.Future[None]"
) -> None:
    """Follow until Ctrl-C, or until nothing is sent any more."""
    trending: list[dict[str, Any]] = []
    with Live(console=console, refresh_per_second=8) as live:
        while not interrupts.stop.is_set() and not sending.done():
            demo.service.check()
            with contextlib.suppress(httpx2.HTTPError):
                trending = (await client.get(f"{demo.url}/trending")).json()
            live.update(_screen(demo, trending, console.height))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(interrupts.stop.wait(), 0.25)


def _screen(demo: Demo, trending: list[dict[str, Any]], lines: int) -> Group:
    table = Table(header_style="bold", expand=False)
    for name in ("trending", "likes", "comments", "score"):
        table.add_column(name, justify="left" if name == "trending" else "right", no_wrap=True, min_width=len(name))
    for post in trending[: max(lines - _AROUND_TABLE, 3)]:
        table.add_row(post["text"], str(post["likes"]), str(post["comments"]), f"{post['score']:.0f}")
    return Group(Text(f"page {demo.url}   {demo.tally.activities} activities acknowledged   Ctrl-C ends"), table)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="busway demo mysocialmedia")
    parser.add_argument("--ci", action="store_true", help="print a summary and exit")
    parser.add_argument("--spark", action="store_true", help="with --ci: also count with the Spark job")
    given = parser.parse_args()
    ci = given.ci or given.spark or not sys.stdout.isatty()
    return run_demo(lambda interrupts: run(interrupts, ci=ci, spark=given.spark))


if __name__ == "__main__":
    sys.exit(main())
