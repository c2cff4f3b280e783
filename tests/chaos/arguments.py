"""The command line of a run, and what the machine must have for it.

Here: options, the checks for root and programs.
Not here: what is done with them (`inside`).
"""

import argparse
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from tests.chaos.faults import KINDS
from tests.chaos.foreign_clients import WRITERS
from tests.chaos.systems import SYSTEMS

NAMESPACES: Final = ("unshare", "--net", "--mount", "--propagation", "private")
"""The command that runs another one in new namespaces."""
PACKAGES: Final = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "mkfs.ext4": "e2fsprogs",
    "mount": "mount",
}
"""Program -> the Debian package that brings it."""


class NotPossible(Exception):
    """This machine cannot have a run; the text holds the remedy."""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; end with code 2 if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Faults on the processes of a cluster under load.", allow_abbrev=False
    )
    parser.add_argument("--faults", type=int, default=100, help="faults, one after the other (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and of the clients' choices (default 1)")
    parser.add_argument(
        "--system", choices=SYSTEMS, default="busway", help="what runs: busway (default), or kafka, Apache Kafka 4.3.1"
    )
    parser.add_argument(
        "--nodes", type=int, choices=range(3, 8), default=3, help="processes, each broker and voter (default 3)"
    )
    parser.add_argument(
        "--kinds", type=_kinds, default=KINDS, help=f"kinds of faults, with commas (default all: {', '.join(KINDS)})"
    )
    parser.add_argument(
        "--foreign",
        type=_programs,
        default=tuple(WRITERS),
        help="programs of other languages besides the SDK and librdkafka, with commas (default java,franz-go); none for neither",
    )
    parser.add_argument(
        "--between",
        type=float,
        default=0.5,
        help="seconds of load before each fault, once all writers go on (default 0.5)",
    )
    return parser.parse_args(arguments)


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(kind.strip() for kind in text.split(","))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise argparse.ArgumentTypeError(f"no kind of fault is called {unknown[0]!r}: {', '.join(KINDS)}")
    return kinds


def _programs(text: str) -> tuple[str, ...]:
    programs = () if text == "none" else tuple(program.strip() for program in text.split(","))
    if unknown := [program for program in programs if program not in WRITERS]:
        raise argparse.ArgumentTypeError(f"no program is called {unknown[0]!r}: {', '.join(WRITERS)}, or none")
    return programs


def check_machine() -> None:
    """Raise NotPossible if the run's namespaces cannot be had."""
    missing = {package for program, package in PACKAGES.items() if shutil.which(program) is None}
    if missing:
        raise NotPossible(f"programs are missing: apt-get install -y {' '.join(sorted(missing))}")
    if os.geteuid() != 0:
        raise NotPossible(
            "the run makes network namespaces, mounts and loop devices: run it as root, for example with sudo"
        )
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise NotPossible(
            f"the kernel refuses new namespaces ({tried.stderr.strip()}): "
            "in a container, start it with --privileged; else use a virtual machine"
        )
