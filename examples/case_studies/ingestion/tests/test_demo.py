"""The demo as a process."""

import asyncio
import re
import sys

import pytest
from kit.parts import CASES
from tests.support.programs import spawn_async

pytestmark = [pytest.mark.slow, pytest.mark.hostile]


async def test_the_demo_without_spark_is_exact_though_each_part_is_killed() -> None:
    """It ends by itself with 0: each position in each history once, each alert once; it says what was left out."""
    demo = await spawn_async(
        sys.executable, "-m", "ingestion.demo", "--ci", "--without-spark", cwd=CASES,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await demo.communicate()
    assert demo.returncode == 0, (out + errors).decode()
    assert re.search(r"killed under load +service, registry, bus\s", out.decode())
    assert "left out" in out.decode()
