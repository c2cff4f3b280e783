"""`busway run` and `busway demo`.

What lives here: finding the app that was named and running it. What does not: the app (`busway.app`), the case studies (`examples`).
"""

import importlib
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from busway.app.bus import App
from busway.cli.output import CommandFailed

CASES = ("movieflix",)


def run(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Such as shop.service:app.")],
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap-servers", "-b", envvar="BUSWAY_BOOTSTRAP_SERVERS", help="Other brokers.")
    ] = None,
    registry_url: Annotated[
        str | None, typer.Option("--registry", "-r", envvar="BUSWAY_SCHEMA_REGISTRY", help="Another schema registry.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a service until Ctrl-C or SIGTERM; then let handlers end, commit, and leave."""
    if log_level.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        raise CommandFailed(f"--log-level {log_level}: give debug, info, warning or error")
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    app = find_app(target)
    if bootstrap is not None:
        app.bootstrap_servers = bootstrap
    if registry_url is not None:
        app.schema_registry = registry_url
    _run_app(app)


def _run_app(app: App) -> None:
    import asyncio

    loop_factory = None
    try:
        import uvloop
    except ImportError:
        pass
    else:
        loop_factory = uvloop.new_event_loop
    logging.getLogger("busway.app").info(
        "%s handles %s",
        app.name,
        ", ".join(sorted({topic.name for route in app.routes for topic in route.topics})) or "nothing",
    )
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(app.serve())


def find_app(target: str) -> App:
    """The `App` that `module:name` names.

    Raises:
        CommandFailed: there is no such module or name, or it is something else.
    """
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise CommandFailed(f"{target}: give MODULE:APP, such as shop.service:app")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name and (module_name == missing.name or module_name.startswith(missing.name + ".")):
            raise CommandFailed(f"there is no module {module_name}; run this where it can be imported") from None
        raise CommandFailed(f"{module_name} needs {missing.name}, which is not installed") from None
    found = getattr(module, name, None)
    if not isinstance(found, App):
        apps = [one for one, value in vars(module).items() if isinstance(value, App)]
        hint = f"it has {', '.join(apps)}" if apps else "it has none"
        raise CommandFailed(f"{module_name} has no App called {name}; {hint}")
    return found


def demo(
    name: Annotated[str, typer.Argument(help="movieflix")],
    ci: Annotated[
        bool, typer.Option("--ci/--live", envvar="CI", help="End by itself with a summary, without a live table.")
    ] = False,
) -> None:
    """Run a case study from end to end: bus, registry, service, events, page."""
    if name not in CASES:
        raise CommandFailed(f"there is no case study {name}; there is {', '.join(CASES)}")
    folder = _case_folder(name)
    # The demo takes this process over, so that Ctrl-C reaches it alone and it can end its parts in order.
    os.chdir(folder.parent)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", f"{name}.demo", *(["--ci"] if ci else [])])  # noqa: S606 - our own module


def _case_folder(name: str) -> Path:
    for base in (Path.cwd(), *Path(__file__).resolve().parents):
        folder = base / "examples" / "case_studies" / name
        if folder.is_dir():
            return folder
    raise CommandFailed(
        f"the case study {name} is in the repository, not in the installed package; run this from a clone"
    )


def version() -> None:
    """The version of this installation."""
    from importlib.metadata import version as installed

    typer.echo(installed("busway"))
