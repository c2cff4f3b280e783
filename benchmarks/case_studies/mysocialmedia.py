"""MySocialMedia on both brokers: activities per second through the service, and how long one takes into its post's totals.

Here: the load, and what is measured.
Not here: brokers and turns (`frame`).

First a burst lies in the topic already, and the service works it off as fast as it can. Then activities come at an even pace, each likes a
post for a new user, and is timed from the call that sends it until the post's row with it has come back from the table's topic.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
from tools.jars import ROOT

from benchmarks.case_studies.frame import Figures, Site, main
from benchmarks.report import Metric
from busway import App, Consumer

CASES = ROOT / "examples" / "case_studies"
sys.path.insert(0, str(CASES))

from kit.parts import Part, Parts  # noqa: E402 - the case studies are no installed package
from mysocialmedia import generate  # noqa: E402 - as above
from mysocialmedia.events import Activity, Kind, Post  # noqa: E402 - as above

BURST, QUICK_BURST = 120_000, 20_000
PACED, QUICK_PACED = 2_500, 500
PACE_PER_S = 500.0
WARM_UP = 0.1
"""Of the paced activities, the part that is not timed."""
SETTLE_S = 30.0
THROUGH = Metric(
    name="activities/s through the service", unit="1/s", higher_is_better=True, target=20_000, absolute=True
)
CPU = Metric(name="activities/CPU-s of the service", unit="1/s", higher_is_better=True)
P50 = Metric(name="sent to counted, p50", unit="ms", higher_is_better=False)
P99 = Metric(name="sent to counted, p99", unit="ms", higher_is_better=False)


async def measure(site: Site) -> Figures:
    """One run of the whole."""
    burst, paced = (QUICK_BURST, QUICK_PACED) if site.quick else (BURST, PACED)
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(Parts(site.folder, site.environment))
        sender = await stack.enter_async_context(generate.sender(site.bootstrap_servers, site.schema_registry))
        await generate.run(generate.Day(events=burst, posts=2000), sender, lambda activity: None)
        service = await parts.start_app("service", "mysocialmedia.service:app", BUSWAY_HTTP_PORT="0")
        url = (await service.line()).removeprefix("mysocialmedia ")
        through, cpu_s = await _work_off(url, burst, service)
        timed = await _paced(site, sender, paced)
    percentiles = statistics.quantiles(timed, n=100)
    return {THROUGH: through, CPU: burst / cpu_s, P50: percentiles[49], P99: percentiles[98]}


async def _work_off(url: str, burst: int, service: Part) -> tuple[float, float]:
    """Activities per second from the first to the last tick in which some were handled, and the CPU seconds until then."""
    first: tuple[float, int] | None = None
    async with httpx2.AsyncClient(timeout=60) as client, client.stream("GET", f"{url}/live") as live:
        async for line in live.aiter_lines():
            if not line.startswith("data: "):
                continue
            handled, now = json.loads(line.removeprefix("data: "))[-1]["handled"], time.perf_counter()
            if handled and first is None:
                first = now, handled
            if handled >= burst:
                break
    assert first is not None
    return (burst - first[1]) / max(now - first[0], 1e-3), _cpu_s(service.process.pid)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _paced(site: Site, sender: App, count: int) -> list[float]:
    """Milliseconds from each call that sends to the row that has it: as each like is a new one, the row's likes tell which are in."""
    topic = sender.topics["mysocialmedia.activity"]
    posts = [f"timed-{number}" for number in range(100)]
    sent: dict[str, deque[float]] = {post_id: deque() for post_id in posts}
    counted = dict.fromkeys(posts, 0)
    times: list[float] = []
    reader = App("mysocialmedia-timing", site.bootstrap_servers, site.schema_registry)
    reader.topic("mysocialmedia.posts", value=Post)

    async def rows(consumer: Consumer) -> None:
        while len(times) < count:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                now = time.perf_counter()
                for record in records:
                    post: Any = (await reader.serdes.decode(record)).value
                    while counted.get(post.post_id, post.likes) < post.likes:
                        counted[post.post_id] += 1
                        times.append((now - sent[post.post_id].popleft()) * 1000)

    options: dict[str, Any] = {
        "bootstrap_servers": site.bootstrap_servers,
        "auto_offset_reset": "latest",
        "isolation_level": "read_committed",
    }
    async with reader, Consumer("mysocialmedia.posts", **options) as consumer:
        await asyncio.gather(*(consumer.position(partition) for partition in consumer.assignment()))
        for post_id in posts:
            post = Activity(kind=Kind.POSTED, post_id=post_id, user_id="author", at=generate.now(), text=post_id)
            await topic.send(post, key=post_id)
        reading = asyncio.ensure_future(rows(consumer))
        begun = time.perf_counter()
        for number in range(count):
            if (early_s := begun + number / PACE_PER_S - time.perf_counter()) > 0:
                await asyncio.sleep(early_s)
            post_id = posts[number % len(posts)]
            like = Activity(kind=Kind.LIKED, post_id=post_id, user_id=f"user-{number}", at=generate.now())
            sent[post_id].append(time.perf_counter())
            await topic.send_soon(like, key=post_id)
        async with asyncio.timeout(SETTLE_S):
            await reading
    return times[int(count * WARM_UP) :]


if __name__ == "__main__":
    sys.exit(main("mysocialmedia", measure))
