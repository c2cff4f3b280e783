"""The code of docs/QUEUES.md is run as it stands there, and `busway groups` shows what the page says."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from busway import Admin, App
from tests.support.patience import patient
from tests.support.programs import spawn_async

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow]
PAGE = (Path(__file__).parents[3] / "docs" / "QUEUES.md").read_text()
PATIENCE_S = patient(40.0)


async def busway(*arguments: str) -> Any:
    """What a command prints as JSON."""
    process = await spawn_async(
        sys.executable, "-m", "busway.cli", *arguments, "--json", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)


async def test_the_examples_of_the_page_run(share_server: str) -> None:
    """Jobs that the app does, one that it puts aside, and others that the bare consumer accepts."""
    first, second = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(first, names)
    exec(second, names)
    app: App = names["app"]
    app.bootstrap_servers = share_server
    async with app, asyncio.timeout(PATIENCE_S):
        for number in range(6):
            await names["thumbnails"].send(names["Thumbnail"](f"{number}.png", number))
        (worker,) = app.queue_workers
        while worker.counts.handled + worker.counts.dead_lettered < 6:
            worker.progress.clear()
            await worker.progress.wait()
        described = await busway("groups", "describe", "thumbnailers", "-b", share_server)
        assert described["state"] == "Stable"
        assert described["partitions"][0]["clients"] == ["pictures"]
        listed = {row["group"]: row["type"].casefold() for row in await busway("groups", "list", "-b", share_server)}
        assert listed["thumbnailers"] == "share"
        await names["thumbnails"].send(names["Thumbnail"]("last.png", 1))
        while "last.png" not in names["done"]:
            worker.progress.clear()
            await worker.progress.wait()
    assert sorted(names["done"]) == [*(f"{number}.png" for number in range(1, 6)), "last.png"]
    working = asyncio.ensure_future(names["work"](share_server))
    async with app, Admin(share_server) as admin, asyncio.timeout(PATIENCE_S):
        await names["thumbnails"].send(names["Thumbnail"]("more.png", 1))
        while any(at.lag for at in (await admin.list_share_group_offsets("thumbnailers")).values()):
            assert not working.done()
    working.cancel()
    await asyncio.wait([working])
