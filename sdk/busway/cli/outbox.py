"""`busway outbox relay` and `busway outbox status`.

Here: finding an app's outboxes.
Not here: publishing (`busway.sql.relay`).
"""

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from busway.cli.logs import LogFormat, LogLevel, log_to_stderr
from busway.cli.output import AsJson, CommandFailed, run, show_rows
from busway.cli.running import find_app
from busway.extras import need
from busway.net.signals import until_signal
from busway.testable_app import App

if TYPE_CHECKING:
    from busway.sql import Outbox

app: typer.Typer = typer.Typer(help="The transactional outbox of a service.", no_args_is_help=True)
Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="The service with the outbox.")]


@app.command()
def relay(
    target: Target,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers", "-b", envvar="BUSWAY_BOOTSTRAP_SERVERS", help="Brokers; override the app's."
        ),
    ] = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Publish the records of the outbox until Ctrl-C or SIGTERM. Several may run: one publishes, the others are standbys."""
    log_to_stderr(log_level, log_format)
    service, outboxes = _find(target)
    if bootstrap is not None:
        service.bootstrap_servers = bootstrap

    async def work() -> None:
        stopped = until_signal()
        async with contextlib.AsyncExitStack() as stack:
            for outbox in outboxes:
                await stack.enter_async_context(outbox.relay(service))
            typer.echo(f"relaying the outbox of {service.name}; Ctrl-C stops")
            sys.stdout.flush()
            await stopped

    run(work())


@app.command()
def status(target: Target, as_json: AsJson = False) -> None:
    """Show unpublished records by topic."""
    need("sql", "busway outbox")
    from sqlalchemy.exc import SQLAlchemyError

    from busway.sql.outages import words

    _, outboxes = _find(target)

    async def work() -> list[dict[str, object]]:
        return [
            {"topic": topic.topic, "waiting": topic.waiting, "oldest_s": round(topic.oldest_s, 1)}
            for outbox in outboxes
            for topic in await outbox.status()
        ]

    try:
        rows = run(work())
    except (SQLAlchemyError, OSError) as problem:
        raise CommandFailed(f"the outbox of {target} cannot be read: {words(problem)}") from None
    show_rows(rows, as_json=as_json, title="records wait", columns=("topic", "waiting", "oldest_s"))


def _find(target: str) -> "tuple[App, list[Outbox]]":
    need("sql", "busway outbox")
    from busway.sql import Outbox

    service = find_app(target)
    outboxes = [extension for extension in service.extensions if isinstance(extension, Outbox)]
    if not outboxes:
        raise CommandFailed(f"app {service.name} has no outbox; extend it: app.extend(Outbox(engine, relay=False))")
    return service, outboxes
