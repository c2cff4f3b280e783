"""A screenshot of a page, as Chromium shows it once the page says that it is ready.

Here: a browser without a window, driven by its DevTools protocol over a pipe (`--remote-debugging-pipe`), so that
neither a port nor a further package is needed.
Not here: what is on the page.
"""

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
READY: Final = "[data-ready]"
"""The page is ready when something in it has this attribute."""
TIMEOUT_S: Final = 30.0
_PIPES: Final = "import os, sys; r, w, *command = sys.argv[1:]; os.dup2(int(r), 3); os.dup2(int(w), 4); os.execvp(command[0], command)"
_LARGEST: Final = 64 * 1024 * 1024
_WAIT: Final = """new Promise(done => {
  const ready = () => document.querySelector(%s) && (requestAnimationFrame(() => requestAnimationFrame(done)), true);
  if (!ready()) new MutationObserver((_, seen) => { if (ready()) seen.disconnect(); })
    .observe(document, {subtree: true, childList: true, attributes: true});
})"""


class NoScreenshot(Exception):
    """The page could not be shown; the text says what to do."""


class Page:
    """A page that is shown; see `page`."""

    def __init__(self, browser: "_Browser", session: str, timeout_s: float) -> None:
        self._browser = browser
        self._session = session
        self._timeout_s = timeout_s

    async def until(self, ready: str) -> None:
        """Wait until there is an element that the CSS selector finds.

        Raises:
            NoScreenshot: not in time.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self.evaluate(_WAIT % json.dumps(ready))
        except TimeoutError:
            raise NoScreenshot(f"the page had no {ready} within {self._timeout_s:g} s") from None

    async def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript, its promise too; return the value as JSON has it.

        Raises:
            NoScreenshot: it threw.
        """
        answer = await self._browser.ask(
            "Runtime.evaluate", self._session, expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise NoScreenshot(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    async def screenshot(self, to: Path, *, form: str = "png", quality: int | None = None) -> None:
        """Save what is visible; `form` is png, jpeg or webp."""
        options = {"quality": quality} if quality is not None else {}
        screenshot = await self._browser.ask("Page.captureScreenshot", self._session, format=form, **options)
        to.write_bytes(  # noqa: ASYNC240 - one small file
            base64.b64decode(screenshot["data"])
        )


@contextlib.asynccontextmanager
async def page(
    url: str,
    *,
    width: int = 1280,
    height: int = 800,
    scale: float = 1.0,
    phone: bool = False,
    dark: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> AsyncIterator[Page]:
    """Show a page within the block.

    Args:
        url: of the page.
        width, height: in CSS pixels.
        scale: device pixels per CSS pixel.
        phone: with the viewport and the touch of a phone.
        dark: prefers-color-scheme.
        timeout_s: of each wait.

    Raises:
        NoScreenshot: there is no Chromium, or it could not reach the page.
    """
    async with _browser(width, height) as browser:
        target = await browser.ask("Target.createTarget", url="about:blank")
        attached = await browser.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        session = attached["sessionId"]
        # A window of a browser is never as narrow as a phone.
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone}
        await browser.ask("Emulation.setDeviceMetricsOverride", session, **metrics)
        await browser.ask("Emulation.setTouchEmulationEnabled", session, enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await browser.ask("Emulation.setEmulatedMedia", session, features=[scheme])
        went = await browser.ask("Page.navigate", session, url=url)
        if went.get("errorText"):
            raise NoScreenshot(f"{url} cannot be shown: {went['errorText']}")
        yield Page(browser, session, timeout_s)


async def screenshot(
    url: str,
    to: Path,
    *,
    ready: str = READY,
    width: int = 1280,
    height: int = 800,
    dark: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Save the page as a PNG file as soon as it has an element that the CSS selector `ready` finds.

    Raises:
        NoScreenshot: there is no Chromium, it could not reach the page, or the page was not ready in time.
    """
    async with page(url, width=width, height=height, dark=dark, timeout_s=timeout_s) as shown:
        await shown.until(ready)
        await shown.screenshot(to)


class _Browser:
    """One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0

    async def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The answer to a call of the protocol; events in between are passed over."""
        self._number += 1
        call = {
            "id": self._number,
            "method": method,
            "params": parameters,
            **({"sessionId": session} if session else {}),
        }
        self._writer.write(json.dumps(call).encode() + b"\0")
        while True:
            try:
                response: dict[str, Any] = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            except asyncio.IncompleteReadError:
                raise NoScreenshot(f"the browser ended during {method}") from None
            if response.get("id") != self._number:
                continue
            if "error" in response:
                raise NoScreenshot(f"{method}: {response['error'].get('message')}")
            result: dict[str, Any] = response["result"]
            return result


@contextlib.asynccontextmanager
async def _browser(width: int, height: int) -> AsyncIterator[_Browser]:
    command = next((path for name in NAMES if (path := shutil.which(name))), None)
    if command is None:
        raise NoScreenshot("no Chromium found; install it: apt-get install chromium")
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="screenshot-", ignore_cleanup_errors=True) as profile:
        theirs_in, ours_out = _pipe()
        ours_in, theirs_out = _pipe()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PIPES, str(theirs_in), str(theirs_out), command,
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", f"--user-data-dir={profile}", f"--window-size={width},{height}", "--remote-debugging-pipe",
            pass_fds=(theirs_in, theirs_out), start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        reader = asyncio.StreamReader(limit=_LARGEST)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_in, "rb")
        )
        writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(ours_out, "wb"))
        try:
            yield _Browser(reader, writing)
        finally:
            reading.close()
            writing.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _pipe() -> tuple[int, int]:
    """Both ends, above the numbers that the browser wants for its own."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
