"""The busy machine that tests are run on: it is busy while the command runs and no longer, however it ends."""

import os
import signal
import subprocess
import sys

import pytest

LOAD = [sys.executable, "-m", "tools.load", "--loops", "2", "--sync", "1", "--"]
TELL = """
import os
from pathlib import Path
for each in Path("/proc").glob("[0-9]*/stat"):
    try:
        parent = int(each.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        continue
    if parent == os.getppid():
        print(each.parent.name, end=" ")
print(flush=True)
"""
"""Print the children of the process that started this."""


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_the_load_ends_with_the_command_and_its_exit_code_is_passed_on() -> None:
    """Two loops, one that syncs and the command itself are there, and then none."""
    done = subprocess.run(
        [*LOAD, sys.executable, "-c", TELL + "raise SystemExit(3)"], stdout=subprocess.PIPE, check=False
    )
    children = [int(each) for each in done.stdout.split()]
    assert done.returncode == 3
    assert len(children) == 4
    assert not [each for each in children if alive(each)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_and_the_load(number: signal.Signals) -> None:
    """The exit code tells of it as a shell would."""
    forever = [*LOAD, sys.executable, "-c", TELL + "import signal; signal.pause()"]
    with subprocess.Popen(forever, stdout=subprocess.PIPE, start_new_session=True) as running:
        assert running.stdout is not None
        children = [int(each) for each in running.stdout.readline().split()]
        assert len(children) == 4
        running.send_signal(number)
        assert running.wait() == 128 + number
    assert not [each for each in children if alive(each)]


@pytest.mark.slow
def test_a_program_that_is_not_there_is_named() -> None:
    """With the exit code of a shell."""
    done = subprocess.run([*LOAD, "no-such-program"], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (127, "no-such-program: not found\n")
