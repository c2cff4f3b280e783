"""Signals reach programs that tests start, where the process that runs the tests ignores them, as in a shell's background."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.patience import patient
from tests.support.programs import ENDING, spawn, spawn_async
from tests.tidy.test_house import ROOT

ASKED = (
    "import signal; print([signal.getsignal(n) for n in (1, 2, 3, 15)], signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
)
BY_DEFAULT = f"{[signal.SIG_DFL, signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL]!s} set()"


@pytest.fixture
def ignored() -> Iterator[None]:
    """All four are ignored and blocked while the test runs."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in before.items():
        signal.signal(number, handler)


def plain(output: str) -> str:
    """What a program printed, without the address of its function."""
    return output.strip().replace("<built-in function default_int_handler>", str(signal.default_int_handler))


def test_a_program_is_ended_by_signals(ignored: None) -> None:
    """Whatever the process that starts it ignores."""
    process = spawn([sys.executable, "-c", ASKED], stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=patient(30))
    assert plain(output) == BY_DEFAULT


async def test_a_program_that_is_started_from_a_loop_is_ended_by_signals(ignored: None, programs_end: None) -> None:
    """The same."""
    process = await spawn_async(sys.executable, "-c", ASKED, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(patient(30)):
        output, _ = await process.communicate()
    assert plain(output.decode()) == BY_DEFAULT


@pytest.mark.variant
@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "1"])
def test_sigint_interrupts_tests_and_what_they_start_in_the_background(tmp_path: Path, processes: str) -> None:
    """A test that interrupts itself, and a program that it starts in its own way."""
    (tmp_path / "test_inside.py").write_text(
        "import signal, subprocess, sys\n"
        "import pytest\n"
        "def test_inside():\n"
        "    with pytest.raises(KeyboardInterrupt):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "    asked = 'import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)'\n"
        "    told = subprocess.run([sys.executable, '-c', asked], capture_output=True, text=True, check=True).stdout\n"
        "    assert told.strip() == 'True'\n"
    )
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir", str(tmp_path), "-p", "conftest"]
    done = subprocess.run(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command, "-p", "no:cacheprovider", "-n", processes, str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=patient(60), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
