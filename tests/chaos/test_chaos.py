"""Faults on three processes under load: nothing acknowledged is lost, doubled or different."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.faults import KINDS
from tests.support.patience import patient
from tests.support.programs import end_with_tests, spawn_async
from tests.support.seeds import seed
from tests.support.waiting import until

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(patient(1_800))]


def test_each_kind() -> None:
    """Each kind of fault once."""
    command = [
        sys.executable,
        "-m",
        "tests.chaos",
        "--faults",
        str(len(KINDS)),
        "--seed",
        str(seed(1)),
        "--foreign",
        "none",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=end_with_tests)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_nothing_outlives_a_killed_run(tmp_path: Path) -> None:
    """Its processes end, and with the last one the kernel removes namespaces, mounts and loop devices."""
    command = [sys.executable, "-m", "tests.chaos", "--foreign", "none"]
    run = await spawn_async(*command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert run.stdout is not None
    assert await run.stdout.readline() == b"the nodes serve\n"
    processes = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    namespaces = {os.readlink(f"/proc/{process}/ns/net") for process in processes}
    assert len(namespaces) == 3
    assert os.readlink("/proc/self/ns/net") not in namespaces
    run.kill()
    await run.wait()
    await until(lambda: not any(Path(f"/proc/{process}").exists() for process in processes))
    images = [str(image) for image in tmp_path.rglob("*.img")]
    assert len(images) == 3
    await until(lambda: not any(image in subprocess.getoutput("losetup --list") for image in images))
