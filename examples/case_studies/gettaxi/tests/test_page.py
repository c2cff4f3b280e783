"""The demo's page in Chromium: counters, buttons, cities, at the width of a desk and of a phone."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from kit.browser import Page, page
from tests.support.patience import patient
from tests.support.programs import spawn_async

CASES = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.foreign]
FITS = "document.documentElement.scrollWidth <= innerWidth"
COUNTS = "[...document.querySelectorAll('.count b')].map(each => each.textContent).join(' ')"
TARGETS = (
    "Math.min(...[...document.querySelectorAll('#buttons button')].map(each => each.getBoundingClientRect().height))"
)
CITY = "[...document.querySelectorAll('#cities button')].find(each => each.textContent === {!r}).click()"
FIGURES = "[...document.querySelectorAll('#figures dd')].map(each => each.textContent).join(' ')"
FREE = "parseInt(document.querySelector('#drivers dd')?.textContent)"
CHECKED = "parseInt(document.querySelector('#checked').textContent.replaceAll(',', ''))"


async def until(shown: Page, expression: str) -> None:
    """Return when the page says that it is so."""
    await shown.evaluate(
        f"new Promise(done => {{ const look = () => ({expression}) ? done(true) : setTimeout(look, 100); look(); }})"
    )


@pytest.mark.timeout(300)
async def test_the_page_shows_what_a_kill_does(tmp_path: Path) -> None:
    """The bus is killed by a click; the counters go on and stay at 0. A city without drivers has no figures of another. Nothing is wider
    than a phone. Ctrl-C ends with the summary."""
    demo = await spawn_async(
        sys.executable, "-m", "gettaxi.demo", "--page", cwd=CASES, env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert demo.stdout is not None
    async with asyncio.timeout(patient(200)):
        address = None
        while address is None:
            line = (await demo.stdout.readline()).decode()
            assert line, (await demo.communicate())[1].decode()
            address = re.match(r"page +(http://\S+)", line)
        url = address[1]
        async with page(url, timeout_s=patient(60)) as shown:
            await shown.until("[data-bus][data-ready]")
            assert await shown.evaluate(FITS)
            await until(shown, "document.querySelector('#groups').textContent.includes('static member one joined')")
            await shown.evaluate("document.querySelector('[data-part=bus]').click()")
            await until(shown, "document.querySelector('[data-part=bus]').textContent === 'bus1\u00d7'")
            await until(shown, "document.querySelectorAll('#events .note, #events .back').length >= 2")
            checked = await shown.evaluate(CHECKED)
            await until(shown, f"{CHECKED} > {checked}")
            assert await shown.evaluate(COUNTS) == "0 0 0"
            names = "[...document.querySelectorAll('#topics td:first-child')].map(each => each.textContent)"
            assert {"gettaxi.commands", "gettaxi.positions", "gettaxi.rides"} <= set(await shown.evaluate(names))
            await until(shown, "document.querySelector('#groups').textContent.includes('static member one joined')")
            await shown.evaluate(CITY.format("amsterdam"))
            await until(shown, "document.querySelector('#state').textContent === 'no driver has reported here yet'")
            assert set(await shown.evaluate(FIGURES)) == set("\u2013 ")
            await shown.evaluate(CITY.format("lisbon"))
            await until(shown, f"{FREE} > 0")
        async with page(url, width=390, height=844, phone=True, timeout_s=patient(60)) as shown:
            await shown.until("[data-bus][data-ready]")
            assert await shown.evaluate(FITS)
            assert await shown.evaluate(TARGETS) >= 44
        demo.send_signal(signal.SIGINT)
        out, errors = await demo.communicate()
    assert demo.returncode == 0, errors.decode()
    assert re.search(r"lost +0\s+doubled +0\s+wrong +0\s+killed under load +bus", out.decode()), out.decode()
