"""The kit by itself."""

import asyncio
import signal
import socket
import struct
import sys
import zlib
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from kit import browser, load
from kit.parts import DemoFailed, Parts, free_port
from kit.summary import Summary
from rich.console import Console
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from busway.web import Feed, application, event_stream, serving

ECHO = "import sys, time; sys.stderr.write('it began\\n'); print('ready', sys.argv[1], flush=True); time.sleep(600)"


async def test_a_part_is_killed_and_started_again(tmp_path: Path) -> None:
    """Its line is read each time, its log goes on, and it ends with the demo."""
    async with Parts(tmp_path) as parts:
        part = await parts.start("echo", sys.executable, "-c", ECHO, "one")
        assert await part.line() == "ready one"
        first = part.process
        await part.kill()
        with pytest.raises(DemoFailed, match="echo ended with -9"):
            part.check()
        await part.start_again()
        assert (await part.line(), part.kills, part.tail()) == ("ready one", 1, "it began\nit began\n")
        part.check()
    assert (first.returncode, part.process.returncode) == (-signal.SIGKILL, -signal.SIGINT)


async def test_a_part_that_ends_at_once_shows_why(tmp_path: Path) -> None:
    """The message has the end of its log."""
    async with Parts(tmp_path) as parts:
        part = await parts.start("broken", sys.executable, "-c", "raise SystemExit('no such topic')")
        with pytest.raises(DemoFailed, match="broken ended at once:\nno such topic"):
            await part.line()


def test_a_port_that_is_taken_is_not_given() -> None:
    """Another one is."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert free_port(port) != port
    assert free_port(port) == port


def test_a_summary_fails_by_the_figures_that_are_wrong() -> None:
    """They are marked with what they must be; the others are just shown."""
    good, bad = Summary(), Summary()
    for summary, lost in ((good, 0), (bad, 3)):
        summary.figure("sent", 10)
        summary.figure("lost", lost, must_be=0)
    out = StringIO()
    assert (good.show(Console(file=out)), bad.show(Console(file=out)), bad.wrong) == (0, 1, ["lost"])
    assert "3   must be 0" in out.getvalue()


async def test_load_is_bounded_and_in_order() -> None:
    """Never more under way than allowed; each event is reported once, in its order."""
    futures: list[asyncio.Future[Any]] = []
    most = 0
    safe: list[int] = []

    async def send(event: int) -> "asyncio.Future[Any]":
        nonlocal most
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        futures.append(future)
        most = max(most, sum(not future.done() for future in futures))
        asyncio.get_running_loop().call_later(0.001, future.set_result, None)
        return future

    assert await load.send_all(range(50), send, safe.append, in_flight=7) == 50
    assert (most, safe) == (7, list(range(50)))


async def test_load_that_is_refused_says_so() -> None:
    """The first refusal ends it, and nothing behind it counts as safe."""
    safe: list[int] = []

    async def send(event: int) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if event == 3:
            future.set_exception(ConnectionError("away"))
        else:
            future.set_result(None)
        return future

    with pytest.raises(ConnectionError):
        await load.send_all(range(9), send, safe.append)
    assert safe == [0, 1, 2]


def first_pixel(png: Path) -> tuple[int, ...]:
    """Red, green and blue of the corner of a PNG; there every filter leaves the bytes as they are."""
    data, packed, at = png.read_bytes(), b"", 8
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    return tuple(zlib.decompress(packed)[1:4])


@pytest.mark.foreign
@pytest.mark.slow
async def test_a_screenshot_is_taken_when_the_page_is_ready(tmp_path: Path) -> None:
    """The mark comes late, while the page still loads something that never ends, as a live page does."""
    page = (
        "<body style='background:#fff'><script>setTimeout(() => { document.body.style.background = '#f00';"
        "document.body.dataset.ready = 1 }, 300); new EventSource('/live')</script>"
    )

    async def show(request: Request) -> Response:
        return HTMLResponse(page)

    async def live(request: Request) -> Response:
        return event_stream(request, Feed[int]().listening())

    async with serving(application([Route("/", show), Route("/live", live)])) as url:
        await browser.screenshot(url, tmp_path / "page.png", width=320, height=200)
        assert first_pixel(tmp_path / "page.png") == (255, 0, 0)
        with pytest.raises(browser.NoScreenshot, match=r"had no #never within 3 s"):
            await browser.screenshot(url, tmp_path / "no.png", ready="#never", timeout_s=3)
    with pytest.raises(browser.NoScreenshot, match="ERR_CONNECTION_REFUSED"):
        await browser.screenshot(url, tmp_path / "no.png")


def test_what_is_in_brackets_is_printed() -> None:
    """Values are text, not markup: the extra of a package to install stays readable."""
    summary, shown = Summary(), StringIO()
    summary.figure("left out", "pip install 'busway[spark]'")
    summary.show(Console(file=shown, width=100))
    assert "busway[spark]" in shown.getvalue()
