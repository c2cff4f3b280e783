"""Clients of Java and Go: Kafka's own producers and franz-go's, each in a process.

Here: starting and ending them, their lines.
Not here: what they do (`java/Writer.java`, `franz_go/main.go`), librdkafka's (`librdkafka_clients`).

A program gets servers, the two topics, partitions, patience and a seed as arguments. It ends when its standard input
ends, and prints lines: an outcome, the writer, the values. `tried` comes before a record is sent. `unknown` adds a tab
and the reason.
"""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.install_foreign import go_program

from tests.chaos.ledger import Ledger
from tests.support.apache_kafka import java_command
from tests.support.patience import factor, patient
from tests.support.programs import spawn_async

HERE: Final = Path(__file__).resolve().parent
WRITERS: Final = {
    "java": ("java", "java-transactions"),
    "franz-go": ("franz-go", "franz-go-transactions"),
}
"""The writers of each program."""
END_S: Final = 90.0


def command(client: str) -> Sequence[str]:
    """Return the command that starts a program; build it on first use.

    Raises:
        ToolMissing: a tool for it is not installed; the text holds the remedy.
    """
    if client == "java":
        return java_command(str(HERE / "java" / "Writer.java"), options=("-Xmx128m",))
    return (str(go_program("chaos-franz-go", HERE / "franz_go")),)


async def write(
    client: str, servers: str, topics: Sequence[str], partitions: int, ledger: Ledger, seed: int, over: asyncio.Event
) -> None:
    """Let a program write until `over`.

    Args:
        topics: for single records, and for transactions.

    Raises:
        RuntimeError: the program ended by itself, or not in time.
    """
    process = await spawn_async(
        *command(client),
        *(servers, *topics, str(partitions), str(math.ceil(factor())), str(seed)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    lines = asyncio.ensure_future(_note_lines(process, ledger))
    ending = asyncio.ensure_future(over.wait())
    await asyncio.wait({lines, ending}, return_when=asyncio.FIRST_COMPLETED)
    if not over.is_set():
        ending.cancel()
        await lines
        raise RuntimeError(f"the program on {client} ended by itself with {await process.wait()}")
    process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patient(END_S)):
            await lines
            if await process.wait() == 0:
                return
    raise RuntimeError(f"the program on {client} did not end in order: {process.returncode}")


async def _note_lines(process: asyncio.subprocess.Process, ledger: Ledger) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        note(line.decode().rstrip("\n"), ledger)


def note(line: str, ledger: Ledger) -> None:
    """Note the outcome in a program's line."""
    outcome, writer, rest = line.split(" ", 2)
    text, _, reason = rest.partition("\t")
    values = text.split()
    if outcome == "tried":
        ledger.tried(values)
    elif outcome == "acknowledged":
        ledger.acknowledged(writer, *values)
    elif outcome == "failed":
        ledger.failed()
    elif outcome == "committed":
        ledger.committed(writer, values)
    elif outcome == "aborted":
        ledger.aborted(writer, values)
    else:
        assert outcome == "unknown", line
        ledger.unknown(values, f"{writer}, {reason}")
