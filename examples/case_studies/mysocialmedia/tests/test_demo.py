"""The demo as a process."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from tests.support.programs import spawn_async

CASES = Path(__file__).resolve().parents[2]


@pytest.mark.hostile
@pytest.mark.slow
async def test_the_demo_proves_its_counts_and_ends() -> None:
    """Service, registry and bus are killed in the burst; exit code 0, nothing lost, nothing doubled."""
    demo = await spawn_async(
        sys.executable, "-m", "busway.cli", "demo", "mysocialmedia", "--ci",
        cwd=CASES, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await demo.communicate()
    assert demo.returncode == 0, out.decode() + errors.decode()
    lines = {tuple(line.split()) for line in out.decode().splitlines()}
    assert {("lost", "0"), ("doubled", "0"), ("posts", "whose", "kept", "totals", "are", "wrong", "0")} <= lines
    assert re.search(rb"killed under load +service, registry, bus\s", out)
