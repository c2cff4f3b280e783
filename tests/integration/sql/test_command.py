"""`busway outbox`: the relay as a process of its own, what waits, and what is said when it cannot be."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from tests.support.patience import patient
from tests.support.programs import spawn_async

from busway import App
from busway.consumer.snapshot import read_to_end
from busway.sql import Outbox

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("programs_end")]
MODULE = """
import os
from sqlalchemy.ext.asyncio import create_async_engine
from busway import App
from busway.sql import Outbox

app = App("shop")
orders = app.topic("orders", value=dict, format="json")
app.extend(Outbox(create_async_engine(os.environ["SHOP_URL"]), relay=False))
plain = App("plain")
"""


async def command(folder: Path, url: str, *arguments: str) -> asyncio.subprocess.Process:
    """`busway outbox …` where the service's module is."""
    return await spawn_async(
        sys.executable,
        *("-m", "busway.cli", "outbox", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "SHOP_URL": url},
    )


async def done(folder: Path, url: str, *arguments: str) -> tuple[int | None, str, str]:
    """Its exit code and what it printed."""
    process = await command(folder, url, *arguments)
    async with asyncio.timeout(patient(60)):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_relay_of_its_own(tmp_path: Path, bootstrap: str) -> None:
    """The service only sends; the command publishes until it is stopped; the status says what waits."""
    (tmp_path / "shop.py").write_text(MODULE)
    url = f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}"
    engine = create_async_engine(url)
    outbox = Outbox(engine, relay=False)
    orders = App("shop", bootstrap).topic("orders", value=dict, format="json")
    await outbox.create_tables()
    async with engine.begin() as tx:
        for number in range(3):
            await outbox.send(tx, orders, {"number": number}, key="k")
    code, out, _ = await done(tmp_path, url, "status", "shop:app", "--json")
    (row,) = json.loads(out)
    assert (code, row["topic"], row["waiting"]) == (0, "orders", 3)
    relay = await command(tmp_path, url, "relay", "shop:app", "-b", bootstrap)
    async with asyncio.timeout(patient(60)):
        while await outbox.status():
            await asyncio.sleep(0.02)
        relay.send_signal(signal.SIGTERM)
        out_bytes, err = await relay.communicate()
    assert relay.returncode == 0, err.decode()
    assert out_bytes.decode() == "relaying the outbox of shop; Ctrl-C stops\n"
    sent = [json.loads(record.value or b"")["number"] async for record in read_to_end(bootstrap, "orders")]
    assert sent == [0, 1, 2]
    await engine.dispose()


async def test_what_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    """An app without an outbox; a database without the tables."""
    (tmp_path / "shop.py").write_text(MODULE)
    url = f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}"
    code, _, err = await done(tmp_path, url, "status", "shop:plain")
    assert (code, err) == (
        1,
        "busway: app plain has no outbox; extend it: app.extend(Outbox(engine, relay=False))\n",
    )
    code, _, err = await done(tmp_path, url, "status", "shop:app")
    assert (code, err) == (1, "busway: the outbox of shop:app cannot be read: no such table: busway_outbox\n")
