"""`--command-config FILE`: security of a command's connections, as Kafka's tools take it.

Here: adding the option to every command that connects to brokers.
Not here: the file's properties (`busway.security.properties`).
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from busway.security.properties import CONFIG_VARIABLE, options_from_environment


def _taken(file: Path | None) -> Path | None:
    """Check the file, and put its path into the environment, from which clients and worker processes take it."""
    if file is not None:
        os.environ[CONFIG_VARIABLE] = str(file.absolute())
        options_from_environment(os.environ)
    return file


def _option() -> Any:
    def command(
        command_config: Annotated[
            Path | None,
            typer.Option(
                "--command-config",
                metavar="FILE",
                envvar=CONFIG_VARIABLE,
                callback=_taken,
                expose_value=False,
                help="Properties file of a Java client: security.protocol, sasl.jaas.config, ssl.truststore.location.",
            ),
        ] = None,
    ) -> None:
        """Carry the option."""

    carrier = typer.Typer(add_completion=False)
    carrier.command()(command)
    return typer.main.get_command(carrier).params[0]


def add_command_config(command: Any) -> Any:
    """Add the option to every command below that has `--bootstrap-servers`."""
    if any("--bootstrap-servers" in parameter.opts for parameter in command.params):
        command.params.append(_option())
    for subcommand in getattr(command, "commands", {}).values():
        add_command_config(subcommand)
    return command
