"""`busway dlq`: dead letters.

Here: options and printing.
Not here: finding and replaying (`busway.app.dead_letters.replay`).
"""

import datetime as dt
import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from busway.app.dead_letters.letter import DeadLetter, DeadLetterSelection
from busway.app.dead_letters.replay import DeadLetters
from busway.cli.decoding import Decoder, headers_shown
from busway.cli.output import (
    BOOTSTRAP,
    REGISTRY_URL,
    AsJson,
    Bootstrap,
    CommandFailed,
    RegistryUrl,
    Yes,
    confirm,
    harmless,
    note,
    run,
    show,
    show_rows,
    write_json,
)
from busway.serde.registry import RegistryClient

app: typer.Typer = typer.Typer(
    help="List, show, replay and discard dead letters: records whose handler failed for good.", no_args_is_help=True
)
_SHOWN: Final = 20
Topic = Annotated[str, typer.Argument(help="The dead-letter topic, such as orders.billing.dlt.")]


def _selection(
    partition: Annotated[int | None, typer.Option(help="Partition of the dead-letter topic.")] = None,
    offset: Annotated[int | None, typer.Option(help="Only this offset; needs --partition.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only records with this key.")] = None,
    error: Annotated[
        str | None, typer.Option("--error", "-e", help="A part of the exception's class or message.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="Largest number of records, the oldest of each partition first.")
    ] = None,
) -> DeadLetterSelection:
    if offset is not None and partition is None:
        raise CommandFailed(f"--offset {offset}: offsets are of a partition; give --partition too")
    if limit is not None and limit < 1:
        raise CommandFailed(f"--limit {limit}: give 1 or more")
    raw = os.fsencode(key) if key is not None else None
    return DeadLetterSelection(partition=partition, offset=offset, key=raw, error=error, limit=limit)


def _selecting(limit: int | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    options = {parameter.name: parameter for parameter in inspect.signature(_selection).parameters.values()}
    options["limit"] = options["limit"].replace(default=limit)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def selected(**given: Any) -> None:
            command(selection=_selection(**{name: given.pop(name) for name in options}), **given)

        topic, _, *others = inspect.signature(command).parameters.values()
        shown = inspect.Signature([topic, *options.values(), *others])
        selected.__signature__ = shown  # type: ignore[attr-defined] # what typer reads
        return selected

    return decorate


@app.command("list")
def list_dead_letters(
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this dead-letter topic.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only those of one consumer group.")] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by handler and exception; open ones are neither replayed nor discarded."""
    if topic is not None and group is not None:
        raise CommandFailed("give --topic or --group; a dead-letter topic is of one group")

    async def work() -> list[dict[str, Any]]:
        async with DeadLetters(bootstrap) as letters:
            summaries = await letters.summaries([topic] if topic is not None else await letters.topics(group))
        return [
            {
                "topic": summary.topic,
                "group": summary.group or None,
                "handler": summary.handler or None,
                "error": summary.error or None,
                "records": summary.records,
                "open": summary.open,
                "newest": _moment(summary.newest_ms),
            }
            for summary in summaries
        ]

    columns = ("topic", "group", "handler", "error", "records", "open", "newest")
    show_rows(_plain(run(work()), as_json=as_json), as_json=as_json, title="dead letters", columns=columns)


@app.command("show")
@_selecting(limit=_SHOWN)
def show_dead_letters(
    topic: Topic,
    selection: DeadLetterSelection,
    stack: Annotated[bool, typer.Option("--stack", help="Include the stack trace.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Include replayed and discarded ones.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    registry_url: RegistryUrl = REGISTRY_URL,
    as_json: AsJson = False,
) -> None:
    """Show open dead letters with their reasons; keys and values are decoded if the registry has their schema."""

    async def work() -> list[dict[str, Any]]:
        async with RegistryClient(registry_url) as registry, DeadLetters(bootstrap) as letters:
            decoder = Decoder(registry)
            shown = [
                await _facts(letter, decoder, stack=stack)
                async for letter in letters.read(topic, selection, open_only=not every)
            ]
            if not shown:
                await _check_there(letters, topic, selection)
            return shown

    rows = _plain(run(work()), as_json=as_json)
    if as_json:
        write_json(rows)
    elif not rows:
        typer.echo("no dead letters")
    for row in () if as_json else rows:
        for name, value in row.items():
            if value not in (None, {}, ""):
                text = harmless(value if isinstance(value, str) else str(value))
                typer.echo(f"{name:<10}{text}" if "\n" not in text else f"{name}\n{text.rstrip()}")
        typer.echo("")


@app.command("replay")
@_selecting()
def replay(
    topic: Topic,
    selection: DeadLetterSelection,
    rate: Annotated[float | None, typer.Option("--rate", help="Largest number of records in a second.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Write open dead letters back to their topic, for the handler that failed; other handlers and other groups skip them.

    At least once: after an interruption, the next replay repeats the records since the last mark (at most 500).
    """

    async def work() -> Any:
        async with DeadLetters(bootstrap) as letters:
            outcome = await letters.replay(topic, selection, rate=rate, dry_run=dry_run)
            if not outcome.done and not outcome.refused:
                await _check_there(letters, topic, selection)
            return outcome

    outcome = run(work())
    if dry_run and not as_json:
        rows = _plain([_row(letter) for letter in outcome.done], as_json=False)
        show_rows(rows, as_json=False, title="open dead letters")
    refused = [{**_row(letter), "reason": why} for letter, why in outcome.refused]
    count = len(outcome.done)
    facts: dict[str, Any] = {"topic": topic, "replayed": 0 if dry_run else count, "refused": refused}
    if dry_run:
        facts["would_replay"] = [_row(letter) for letter in outcome.done]
    if dry_run and not as_json:
        note(f"would replay {count} of {topic}")
    else:
        show(facts, f"replayed {count} of {topic}", as_json=as_json)
    if outcome.refused:
        letter, why = outcome.refused[0]
        raise CommandFailed(
            f"{len(outcome.refused)} cannot be replayed and stay open; {topic}-{letter.partition.partition} offset {letter.offset}: {why}"
        )


@app.command("discard")
@_selecting()
def discard(
    topic: Topic,
    selection: DeadLetterSelection,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Mark open dead letters as done without replaying them; they stay in the topic as long as it keeps them."""
    which = "all open dead letters" if selection == DeadLetterSelection() else "the selected dead letters"
    confirm(f"Discard {which} of {topic}?", yes=yes)

    async def work() -> list[DeadLetter]:
        async with DeadLetters(bootstrap) as letters:
            marked = await letters.discard(topic, selection)
            if not marked:
                await _check_there(letters, topic, selection)
            return marked

    count = len(run(work()))
    show({"topic": topic, "discarded": count}, f"discarded {count} of {topic}", as_json=as_json)


async def _check_there(letters: DeadLetters, topic: str, selection: DeadLetterSelection) -> None:
    if selection.offset is None:
        return
    place = DeadLetterSelection(partition=selection.partition, offset=selection.offset)
    if not [letter async for letter in letters.read(topic, place)]:
        raise CommandFailed(
            f"{topic}-{selection.partition} offset {selection.offset}: there is no dead letter; "
            f"`busway dlq show {topic} --all` lists those there are"
        )


def _plain(rows: list[dict[str, Any]], *, as_json: bool) -> list[dict[str, Any]]:
    if not as_json:
        for row in rows:
            row["error"] = row["error"] and row["error"].removeprefix("builtins.")
    return rows


def _row(letter: DeadLetter) -> dict[str, Any]:
    original = letter.original
    return {
        "partition": letter.partition.partition,
        "offset": letter.offset,
        "original": f"{original.topic}-{original.partition}@{letter.original_offset}" if original is not None else None,
        "handler": letter.handler or None,
        "error": letter.error or None,
    }


async def _facts(letter: DeadLetter, decoder: Decoder, *, stack: bool) -> dict[str, Any]:
    return {
        **_row(letter),
        "message": letter.message,
        "attempts": letter.attempts,
        "group": letter.group,
        "put_aside": _moment(letter.timestamp_ms),
        "done": letter.done,
        "key": await decoder.decode(letter.key),
        "value": await decoder.decode(letter.value),
        "headers": headers_shown(letter.headers),
        **({"stack": letter.stack} if stack else {}),
    }


def _moment(milliseconds: int) -> str:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).isoformat(timespec="seconds")
