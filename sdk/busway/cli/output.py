"""Output of commands: tables on a terminal, JSON with `--json`, one line for an error.

Here: shared options, printing, and the mapping of failures to exit codes.
"""

import asyncio
import base64
import json
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import typer

from busway.cli.logs import logs_json
from busway.errors import BrokerError, BuswayError
from busway_protocol.errors import ErrorCode

T = TypeVar("T")
INTERRUPTED: Final = 130
TERMINATED: Final = 143

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers", "-b", envvar="BUSWAY_BOOTSTRAP_SERVERS", help="Brokers, host:port with commas."
    ),
]
RegistryUrl = Annotated[
    str, typer.Option("--registry", "-r", envvar="BUSWAY_SCHEMA_REGISTRY", help="Address of the schema registry.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
BOOTSTRAP: Final = "localhost:9092"
REGISTRY_URL: Final = "http://localhost:8081"


class CommandFailed(BuswayError):
    """A command cannot be done. The text has the reason and a remedy."""


def confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    typer.echo(f"{question} [y/N]: ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandFailed("nothing was changed; --yes answers this question")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; SIGTERM cancels it like Ctrl-C, so that a consumer commits and leaves its group."""

    async def cancelled_by_sigterm() -> T:
        task = asyncio.current_task()
        assert task is not None
        if threading.current_thread() is threading.main_thread():  # only the main thread gets signals
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(cancelled_by_sigterm())
    except asyncio.CancelledError:
        sys.exit(TERMINATED)


def show_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str, columns: Sequence[str] = ()) -> None:
    """Print a table, tab-separated rows in a pipe, or a JSON array.

    A table omits columns that are empty in all rows, and folds long cells; nothing is cut. `columns` are for an empty
    list; by default the first row's.
    """
    if as_json:
        write_json(list(rows))
        return
    names = list(columns) or (list(rows[0]) if rows else [])
    if not rows:
        note(f"no {title}")
    if sys.stdout.isatty():
        if not rows:
            return
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=None, header_style="bold")
        names = [name for name in names if any(row.get(name) not in (None, "", [], ()) for row in rows)]
        for name in names:
            number = any(isinstance(row.get(name), int | float) for row in rows)
            table.add_column(
                name.replace("_", " "), justify="right" if number else "left", no_wrap=number, overflow="fold"
            )
        for row in rows:
            # Names are untrusted: no markup, no control characters.
            table.add_row(*(Text(harmless(_cell(row.get(name)))) for name in names))
        Console().print(table)
    else:
        if names:
            typer.echo("\t".join(names))
        for row in rows:
            typer.echo("\t".join(_cell(row.get(name)) for name in names))


def note(text: str) -> None:
    """Print a line beside a table; in a pipe to stderr, which leaves stdout to the table."""
    typer.echo(text, err=not sys.stdout.isatty())


def show(facts: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        write_json(facts)
    else:
        typer.echo(text)


def write_json(value: Any) -> None:
    """Print strict JSON in a line. NaN and infinities are strings, bytes `base64:…`."""
    typer.echo(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, default=str))


def in_base64(data: bytes) -> str:
    return "base64:" + base64.b64encode(data).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes | bytearray | memoryview):
        return in_base64(bytes(value))
    if isinstance(value, Mapping):
        return {_plain(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else value


def harmless(text: str) -> str:
    """Escape control characters, which could command the terminal."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else character.encode("unicode_escape").decode()
        for character in text
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def main_loop(app: Callable[[], object]) -> None:
    try:
        app()
    except BrokerError as problem:
        missing = problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        fail(f"{problem}; `busway topics list` lists the topics there are" if missing else str(problem))
    except (BuswayError, ValueError) as problem:  # ValueError: an address, a partition, a file that is no text
        fail(str(problem))
    except OSError as problem:
        fail(f"{problem.strerror or problem}" + (f": {problem.filename}" if problem.filename else ""))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def fail(text: str) -> None:
    if logs_json():
        logging.getLogger("busway.cli").error("%s", text)
    elif "--json" in sys.argv:
        sys.stderr.write(json.dumps({"error": text}, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"busway: {text}\n")
    sys.stderr.flush()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The pipe's reader is gone; stdout must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)
