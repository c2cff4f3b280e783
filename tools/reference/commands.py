"""The command line, from its commands."""

import re
from typing import Any

import typer

from busway.cli import build
from busway.cli.command_config import add_command_config
from tools.reference.tables import MADE, code, table


def page() -> str:
    """Return the page of commands."""
    command: Any = add_command_config(typer.main.get_command(build(None)))
    parts = [
        "# Commands",
        f"{MADE} `busway COMMAND --help` prints the same. Exit codes: 0 done, 1 failed (one line on stderr), 2 wrong usage, 130 interrupted.",
        "Every command with `--bootstrap-servers` takes `--command-config FILE`: see [Security](../SECURITY.md#environment-and-files).",
    ]
    for name, inner in command.commands.items():
        parts += _command(f"busway {name}", inner, depth=2)
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _command(name: str, command: Any, *, depth: int) -> list[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    shown = " ".join(
        [name, *(_argument(argument) for argument in arguments), *(["COMMAND"] if hasattr(command, "commands") else [])]
    )
    parts = [f"{'#' * depth} {name}", _plain(command.help), code(shown)]
    rows = [
        (code(_argument(argument)), "", _plain(argument.help))
        for argument in arguments
        if getattr(argument, "help", None)
    ]
    rows += [
        (
            ", ".join(code(option) for option in (*parameter.opts, *parameter.secondary_opts)),
            _default(parameter),
            _help(parameter),
        )
        for parameter in command.params
        if parameter.param_type_name == "option"
        and "--command-config" not in parameter.opts
        and parameter.name != "help"
    ]
    if rows:
        parts.append(table(("option", "default", "meaning"), rows))
    for inner, subcommand in getattr(command, "commands", {}).items():
        parts += _command(f"{name} {inner}", subcommand, depth=depth + 1)
    return parts


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name).strip("{}").upper().rstrip(".")
    name += "…" if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "required"
    if default is None or default is False or callable(default) or default in ([], (), ""):
        return ""
    return code(default) if not isinstance(default, bool) else "on"


def _help(parameter: Any) -> str:
    variable = parameter.envvar if isinstance(parameter.envvar, str) else None
    return _plain(parameter.help) + (f" In the environment: `{variable}`." if variable else "")


def _plain(text: str | None) -> str:
    return re.sub(r"\[/?[a-z ]+\](?!\()", "", " ".join((text or "").split()))
