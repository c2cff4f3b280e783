"""Screenshots of the demo's page for the manual: `python -m gettaxi.screenshots FOLDER`, with Chromium.

Here: the demo with one broker and with three, kills of its parts, and what is saved of the page.
Not here: the browser (`kit.browser`). The machine should be idle: the page shows how long each restart took.
"""

import argparse
import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from kit.browser import Page, page

CASES: Final = Path(__file__).resolve().parents[1]
WAIT_S: Final = 180.0
BETWEEN_S: Final = 5.0
"""Load between two kills, and before the screenshot."""
LOAD_S: Final = 20.0
"""Load before the first kill."""
_BACK: Final = """new Promise(done => {
  const look = () => document.querySelectorAll('#events .back').length >= %d ? done() : setTimeout(look, 100);
  look();
})"""


@contextlib.asynccontextmanager
async def demo(*options: str) -> AsyncIterator[str]:
    """Run the demo and yield the address of its page."""
    command = (sys.executable, "-m", "gettaxi.demo", "--page", *options)
    process = await asyncio.create_subprocess_exec(*command, cwd=CASES, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            if address := re.match(r"page +(http://\S+)", line.decode()):
                yield address[1]
                break
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()


async def kill(shown: Page, part: str, number: int) -> None:
    """Kill a part by its button, as the page's kill of that number, and wait until it is back."""
    await shown.evaluate(f"document.querySelector('[data-part={part}]').click()")
    await shown.evaluate(_BACK % number)
    await asyncio.sleep(BETWEEN_S)


async def one_broker(folder: Path) -> None:
    """Kill each part; the page on a desk and on a phone."""
    async with demo() as url:
        async with page(url, width=1440, height=900, timeout_s=WAIT_S) as shown:
            await shown.until("[data-bus][data-ready]")
            await asyncio.sleep(LOAD_S)
            for number, part in enumerate(("service", "registry", "bus"), start=1):
                await kill(shown, part, number)
            await shown.screenshot(folder / "demo.png")
        async with page(url, width=390, height=1000, phone=True, timeout_s=WAIT_S) as shown:
            await shown.until("[data-bus][data-ready]")
            await asyncio.sleep(BETWEEN_S)
            await shown.screenshot(folder / "demo-phone.png")


async def three_brokers(folder: Path) -> None:
    """Kill a node, then the leader; the page in the dark while that one is away."""
    async with demo("--nodes", "3") as url, page(url, width=1440, height=1000, dark=True, timeout_s=WAIT_S) as shown:
        await shown.until("[data-bus][data-ready]")
        await asyncio.sleep(LOAD_S)
        await kill(shown, "node-2", 1)
        await shown.evaluate("document.querySelector('[data-part=leader]').click()")
        await shown.until(".node.away")
        await asyncio.sleep(2)
        await shown.screenshot(folder / "demo-nodes.png")


async def take(folder: Path) -> None:
    await one_broker(folder)
    await three_brokers(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    asyncio.run(take(parser.parse_args().folder.resolve()))
