"""The demo and the load generator as processes."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from kit.parts import Parts
from tests.support.programs import spawn_async

CASES = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.hostile]


async def test_a_demo_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    """Bus and service are processes of their own; they end with the demo, and so does its folder."""
    demo = await spawn_async(
        sys.executable, "-m", "gettaxi.demo", "--ci", cwd=CASES, env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert demo.stdout is not None
    first = await demo.stdout.readline()
    assert first.startswith(b"bus"), first + (await demo.communicate())[1]
    demo.send_signal(signal.SIGTERM)
    _, errors = await demo.communicate()
    assert demo.returncode == 143, errors.decode()
    assert list(tmp_path.glob("gettaxi-*")) == []


async def test_load_from_the_command_line(tmp_path: Path) -> None:
    """So many seconds of a city are sent, acknowledged and counted; what makes no sense is refused."""
    async with Parts(tmp_path) as parts:
        await parts.start_bus()
        service = await parts.start_app("service", "gettaxi.service:app", BUSWAY_HTTP_PORT="0")
        await service.line()
        command = (sys.executable, "-m", "gettaxi.generate")
        load = await parts.start("load", *command, "--drivers", "5", "--seconds", "20", "--speed", "60")
        assert (await load.line()).startswith("100 positions of drivers, ")
        refused = await parts.start("refused", *command, "--drivers", "0")
        await refused.process.wait()
        assert "--drivers and --rides-per-minute are above 0" in refused.tail()
