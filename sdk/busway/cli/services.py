"""`busway run` and `busway demo`.

Here: their options.
Not here: running an app here (`running`) and in other processes (`processes`, `reload`).
"""

import asyncio
import math
import os
import re
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

import busway
from busway.app.model.topic import BadDeclaration
from busway.cli.logs import LogFormat, LogLevel, log_to_stderr
from busway.cli.output import CommandFailed
from busway.cli.processes import CANNOT_START, WORKER, Command, supervise, tell
from busway.cli.running import find_app, make_static, run_app, serve_http
from busway.errors import BrokerError
from busway.extras import need
from busway_protocol.errors import ErrorCode

GETTAXI = "gettaxi"
CASES = (GETTAXI, "movieflix", "mysocialmedia", "mybank", "ingestion")
DEMO_NODES = (1, 3, 5)
MAX_WORKERS = 256
"""A guard against typing errors; above the cores of any supported machine."""

_INSTANCE_LENGTH = 240
"""In characters. group.instance.id has at most 249, and the worker's number is appended."""
_INSTANCE = re.compile(rf"[A-Za-z0-9._-]{{1,{_INSTANCE_LENGTH}}}")


def run(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app, such as shop.service:app.")],
    workers: Annotated[
        int,
        typer.Option(
            "--workers", "-w", help="Number of processes, as members of one group; crashed ones are restarted."
        ),
    ] = 1,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Drain and restart when a .py file in this folder changes; for development."),
    ] = False,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="[HOST:]PORT",
            envvar="BUSWAY_HTTP_PORT",
            help="Serve /health/live, /health/ready, /metrics and the service's own pages; worker i on PORT + i.",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve HTTP beyond this machine: the network is trusted.")
    ] = False,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers", "-b", envvar="BUSWAY_BOOTSTRAP_SERVERS", help="Brokers; override the app's."
        ),
    ] = None,
    registry_url: Annotated[
        str | None,
        typer.Option("--registry", "-r", envvar="BUSWAY_SCHEMA_REGISTRY", help="Schema registry; overrides the app's."),
    ] = None,
    wait_s: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", help="Time to wait at the start for brokers and registry."),
    ] = 0.0,
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance",
            metavar="NAME",
            envvar="BUSWAY_INSTANCE",
            help="Static members: worker i gets the group.instance.id NAME-i, and its partitions wait for it through a restart. Give each host "
            "a NAME of its own that stays the same when it starts again, such as the host's name, but not one that changes with each container.",
        ),
    ] = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Run a service until Ctrl-C or SIGTERM; then drain its handlers, commit and leave the group."""
    log_to_stderr(log_level, log_format, os.environ.get(WORKER))
    if not 1 <= workers <= MAX_WORKERS:
        raise CommandFailed(f"--workers {workers}: give a number from 1 to {MAX_WORKERS}")
    if not 0 <= wait_s < math.inf:
        raise CommandFailed(f"--wait {wait_s:g}: give a number of seconds, 0 or more")
    if instance is not None and not _INSTANCE.fullmatch(instance):
        raise CommandFailed(
            f"--instance {instance}: give 1 to {_INSTANCE_LENGTH} letters, digits, dots, hyphens and underscores"
        )
    if reload and workers > 1:
        raise CommandFailed("--reload is for development and runs one process; leave --workers out")
    command = Command(
        target=target,
        http=http,
        insecure=insecure,
        bootstrap=bootstrap,
        registry_url=registry_url,
        log_level=log_level,
        log_format=log_format,
        wait_s=wait_s,
        instance=instance,
    )
    if reload:
        raise typer.Exit(asyncio.run(_reloading(command)))
    if workers > 1:
        raise typer.Exit(asyncio.run(supervise(command, workers)))
    try:
        _run_here(command)
    except BrokerError as problem:
        if problem.code is not ErrorCode.FENCED_INSTANCE_ID or command.instance is None:
            raise
        # No restart: two processes of one name would fence each other for ever.
        other = f"another process runs with --instance {command.instance}; give each a name of its own"
        tell(f"{problem}: {other}")
        raise typer.Exit(CANNOT_START if WORKER in os.environ else 1) from None
    except (CommandFailed, BadDeclaration) as problem:
        if WORKER not in os.environ:
            raise
        # Tells the supervisor that a restart would fail, too.
        tell(str(problem))
        raise typer.Exit(CANNOT_START) from None


async def _reloading(command: Command) -> int:
    need("web", "--reload")
    from busway.cli.reload import reloading

    return await reloading(command, Path.cwd())


def _run_here(command: Command) -> None:
    app = find_app(command.target)
    if command.bootstrap is not None:
        app.bootstrap_servers = command.bootstrap
    if command.registry_url is not None:
        app.schema_registry = command.registry_url
    if command.instance is not None:
        make_static(app, f"{command.instance}-{os.environ.get(WORKER, '0')}")
    if command.http is not None:
        serve_http(app, command.http, insecure=command.insecure)
    run_app(app, command.wait_s)


def demo(
    name: Annotated[str, typer.Argument(help=", ".join(CASES))],
    ci: Annotated[
        bool, typer.Option("--ci/--live", envvar="CI", help="Print a summary and exit, without a live table.")
    ] = False,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="gettaxi: a bus of so many brokers, each in a process; 1, 3 or 5.")
    ] = None,
) -> None:
    """Run a case study from end to end: bus, registry, service, events, page."""
    if name not in CASES:
        raise CommandFailed(f"there is no case study {name}; there is {', '.join(CASES)}")
    folder = _case_folder(name)
    need("demo" if name == GETTAXI else "examples", f"busway demo {name}")
    options = ["--ci"] if ci else []
    if nodes is not None:
        if name != GETTAXI:
            raise CommandFailed(f"--nodes is for busway demo {GETTAXI}; leave it out")
        if nodes not in DEMO_NODES:
            raise CommandFailed(f"--nodes {nodes}: give {', '.join(map(str, DEMO_NODES))}")
        options += ["--nodes", str(nodes)]
    # exec: Ctrl-C then reaches only the demo, which stops its parts in order. Until it can, Ctrl-C waits.
    os.chdir(folder.parent)
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execv(sys.executable, [sys.executable, "-m", f"{name}.demo", *options])  # noqa: S606 - our own module


def _case_folder(name: str) -> Path:
    for base in (Path.cwd(), *Path(__file__).resolve().parents):
        folder = base / "examples" / "case_studies" / name
        if folder.is_dir():
            return folder
    raise CommandFailed(
        f"the case study {name} is in the repository, not in the installed package; run this from a clone"
    )


def version() -> None:
    """Print the version of this installation."""
    typer.echo(busway.__version__)
