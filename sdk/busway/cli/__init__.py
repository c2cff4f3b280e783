"""The `busway` command.

Here: the list of commands; only the called one's module is imported.
Not here: the commands (a module each), output (`output`).
"""

import importlib
import sys
from typing import Annotated, Any, Final

import typer

from busway.cli.command_config import add_command_config
from busway.cli.output import main_loop

COMMANDS: Final = {
    "up": "servers",
    "broker": "servers",
    "registry": "servers",
    "connect": "connect",
    "status": "status",
    "top": "top",
    "doctor": "doctor",
    "topics": "topics",
    "produce": "records",
    "consume": "records",
    "groups": "groups",
    "transactions": "transactions",
    "cluster": "cluster",
    "features": "features",
    "dlq": "dlq",
    "schema": "schema",
    "outbox": "outbox",
    "init": "init",
    "check": "check",
    "run": "services",
    "demo": "services",
    "simulate": "simulate",
    "spark": "spark",
    "version": "services",
}
"""Commands and their modules, each with a function of that name or an `app` with subcommands."""


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(version("busway"))
        raise typer.Exit


def build(wanted: str | None = None) -> typer.Typer:
    """Make the root command with the wanted command alone; with all if there is no such command, none for --version."""
    app = typer.Typer(
        name="busway",
        help="An event bus for Python teams: broker, schema registry, services.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        version: Annotated[
            bool,
            typer.Option("--version", is_eager=True, callback=_version, help="Print the version of this installation."),
        ] = False,
    ) -> None:
        """An event bus for Python teams: broker, schema registry, services."""

    names = [wanted] if wanted in COMMANDS else [] if wanted == "--version" else list(COMMANDS)
    for name in names:
        assert name is not None
        module = importlib.import_module(f"busway.cli.{COMMANDS[name]}")
        if hasattr(module, name):
            app.command(name, context_settings=getattr(module, "CONTEXT", None))(getattr(module, name))
        else:
            app.add_typer(module.app, name=name)
    return app


def _without_flag_types(command: Any, parent: Any = None) -> Any:
    """Remove `<bool>` from a command's help, as flags take no value."""
    context = typer.Context(command, parent=parent, **command.context_settings)
    for parameter in command.get_params(context):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    for subcommand in getattr(command, "commands", {}).values():
        _without_flag_types(subcommand, context)
    return command


def main() -> None:
    """Run the command. Exit codes: 0 done, 1 failed (one line on stderr), 2 wrong usage, 130 interrupted."""
    command = typer.main.get_command(build(sys.argv[1] if len(sys.argv) > 1 else None))
    main_loop(_without_flag_types(add_command_config(command)))
