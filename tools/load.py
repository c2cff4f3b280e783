"""Run a command on a busy machine: `python -m tools.load --loops 6 --sync 1 -- .venv/bin/pytest tests/…`.

Beside COMMAND run six busy loops and one process that writes to a file in a temporary folder and syncs it; without COMMAND they run until
Ctrl-C or SIGTERM, which end COMMAND, too. The exit code is COMMAND's; 128 and the signal's number where a signal has ended it or this.
On two processors the load average comes to about twelve with what COMMAND adds. A test that fails beside it and passes alone is repeated so:

    for n in $(seq 10); do python -m tools.load -- .venv/bin/pytest -q -n 0 TEST || break; done
"""

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final, NoReturn

from tests.support.programs import end, spawn

LOOP: Final = "while True: pass"
SYNC: Final = """
import os, tempfile
with tempfile.TemporaryFile() as file:
    while True:
        file.seek(0)
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
"""
"""A megabyte again and again, so that the disk is busy and does not fill; the file has no name that could stay behind."""


def stop(number: int, _frame: FrameType | None) -> NoReturn:
    """End by `SystemExit`, as a shell tells of the signal."""
    raise SystemExit(128 + number)


def run(loops: int, syncing: int, command: Sequence[str]) -> int:
    """Run COMMAND, or wait for a signal, beside that many processes of each kind; all of them have ended on return.

    Returns:
        COMMAND's exit code; 128 and the number of the signal that ended it; 127 where there is no such program.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    load: list[subprocess.Popen[bytes]] = []
    try:
        for code in [LOOP] * loops + [SYNC] * syncing:
            # A session of its own: Ctrl-C in a terminal is for COMMAND and for this process.
            load.append(spawn([sys.executable, "-c", code], start_new_session=True))  # noqa: PERF401 - each one that runs is ended
        if not command:
            signal.pause()
        try:
            process = spawn(command)
        except FileNotFoundError:
            print(f"{command[0]}: not found", file=sys.stderr)  # noqa: T201 - for who runs it
            return 127
        try:
            code_of_command = process.wait()
        finally:
            if process.returncode is None:
                end(process)
        return code_of_command if code_of_command >= 0 else 128 - code_of_command
    finally:
        for program in load:
            program.kill()
        for program in load:
            program.wait()


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.load",
        allow_abbrev=False,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--loops", type=int, default=6, help="busy processes (default 6)")
    parser.add_argument("--sync", type=int, default=1, help="processes that write a file and sync it (default 1)")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="the command, after --")
    given = parser.parse_args()
    return run(given.loops, given.sync, given.command)


if __name__ == "__main__":
    raise SystemExit(main())
