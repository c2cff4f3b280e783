"""Programs that pass records on from one topic to another, exactly once, all behind one interface.

Here: how each is started.
Not here: what happens to them (`scenario`).

The arguments of a program are BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID PROCESS SIZE PROTOCOL. It reads as a member of the group, writes each record to the target's partition of the
same number, with `~` and a name of the attempt behind its value, and commits up to SIZE records and their offsets in one transaction; SIGTERM ends it in order. It prints a
history of these transactions (`tests.support.judging.lines`). PROTOCOL is the group's: `classic`, `consumer`, or `assigned:0,3` where the program has partitions of its own.
"""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import install_foreign

from tests.support.apache_kafka import java_command

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Arguments of a program."""

    bootstrap: str
    source: str
    target: str
    group: str
    transactional_id: str
    process: str
    size: int
    protocol: str

    def words(self) -> list[str]:
        """In the order of a command line."""
        names = (self.bootstrap, self.source, self.target, self.group, self.transactional_id, self.process)
        return [*names, str(self.size), self.protocol]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A client under test.

    Attributes:
        in_group: its members share the partitions among themselves.
        protocols: of groups, that it can use.
        ends: a member ends by itself once it has passed on what was there when it was given its partitions.
        tells: its output is a history.
        gives_up: it ends with when it does not get over a transaction that the coordinator has ended, as while the broker was away for long.
    """

    name: str
    in_group: bool = True
    protocols: tuple[str, ...] = ("classic",)
    ends: bool = False
    tells: bool = True
    gives_up: tuple[int, ...] = (3,)

    def command(self, arguments: Arguments) -> list[str]:
        """The command line of a member."""
        return [sys.executable, "-m", f"tests.interop.programs.passing_with_{self.name}", *arguments.words()]

    @property
    def environment(self) -> dict[str, str]:
        """Ours, and where the project is."""
        return {**os.environ, "PYTHONPATH": str(ROOT)}


class FranzGoLoop(Loop):
    """franz-go's `GroupTransactSession`."""

    def command(self, arguments: Arguments) -> list[str]:
        """Built on first use."""
        return [str(install_foreign.franz_go()), "pass_on", *arguments.words()]


class JavaCopier(Loop):
    """Apache Kafka's `TransactionalMessageCopier`, which its own system tests are made with: it tells nothing, aborts a third of its transactions."""

    def command(self, arguments: Arguments) -> list[str]:
        """In a group."""
        named = {
            "--broker-list": arguments.bootstrap,
            "--input-topic": arguments.source,
            "--input-partition": "0",
            "--output-topic": arguments.target,
            "--consumer-group": arguments.group,
            "--transaction-size": str(arguments.size),
            "--transaction-timeout": "5000",
            "--transactional-id": arguments.transactional_id,
        }
        words = [word for pair in named.items() for word in pair]
        modes = ("--group-mode", "--use-group-metadata", "--enable-random-aborts")
        return java_command("org.apache.kafka.tools.TransactionalMessageCopier", *words, *modes, options=("-Xmx128m",))


BOTH = ("classic", "consumer")
ONE_BROKER, THREE_NODES = "one broker", "three nodes"
"""What a test may run on."""
FRANZ_GO = FranzGoLoop(name="franz-go", protocols=BOTH)
LIBRDKAFKA = Loop(name="librdkafka", protocols=BOTH, gives_up=(3, -signal.SIGALRM))
AIOKAFKA = Loop(name="aiokafka", in_group=False)
JAVA_COPIER = JavaCopier(name="TransactionalMessageCopier", ends=True, tells=False, gives_up=(1,))
