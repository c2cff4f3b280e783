"""The demo as a process."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from tests.support.programs import spawn_async

CASES = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.hostile]


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes whose environment or arguments name the folder."""
    command_lines = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if str(folder).encode() in (entry / "environ").read_bytes():
                command_lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has ended meanwhile
    return command_lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_however_the_demo_is_ended_nothing_stays(number: signal.Signals, tmp_path: Path) -> None:
    """Bus and service are processes of their own; they end with the demo, and so does its folder."""
    demo = await spawn_async(
        sys.executable, "-m", "movieflix.demo", "--ci", "--without-spark", cwd=CASES, env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert demo.stdout is not None
    first = await demo.stdout.readline()
    assert first.startswith(b"bus"), first + (await demo.communicate())[1]
    demo.send_signal(number)
    out, errors = await demo.communicate()
    assert demo.returncode == (0 if number == signal.SIGINT else 143), errors.decode()
    assert number != signal.SIGINT or re.search(rb"lost +0\s+doubled +0\s", out), out
    assert processes_of(tmp_path) == []
    assert list(tmp_path.glob("movieflix-*")) == []
