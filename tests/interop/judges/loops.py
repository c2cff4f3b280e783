"""Programs that pass records on from one topic to another, exactly once, all behind one interface.

What lives here: how each is started. What does not: what happens to them (`course`).

A program is told BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID PROCESS SIZE PROTOCOL. It reads as a member of the group, writes each record to the target's partition of the
same number, with `~` and a name of the attempt behind its value, and commits up to SIZE records and their offsets in one transaction; SIGTERM ends it in order. It prints a
history of these transactions (`tests.support.judging.lines`). PROTOCOL is the group's: `classic`, `consumer`, or `assigned:0,3` where the program has partitions of its own.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools import install_foreign

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A client under test.

    Attributes:
        in_group: its members share the partitions among themselves.
        protocols: of groups, that it can be told.
    """

    name: str
    in_group: bool = True
    protocols: tuple[str, ...] = ("classic",)
    environment: Mapping[str, str] = field(default_factory=lambda: {**os.environ, "PYTHONPATH": str(ROOT)})

    def command(self) -> list[str]:
        """The program, without what it is told."""
        return [sys.executable, "-m", f"tests.interop.programs.passing_with_{self.name}"]


class FranzGoLoop(Loop):
    """franz-go's `GroupTransactSession`."""

    def command(self) -> list[str]:
        """Built on first use."""
        return [str(install_foreign.franz_go()), "pass_on"]


FRANZ_GO = FranzGoLoop(name="franz-go")
LIBRDKAFKA = Loop(name="librdkafka")
AIOKAFKA = Loop(name="aiokafka", in_group=False)
