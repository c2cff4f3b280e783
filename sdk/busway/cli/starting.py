"""Shared parts of commands that start a server.

Here: overrides of settings, and start failures as one line.
Not here: the settings and servers.
"""

from collections.abc import Callable, Sequence
from typing import Any

from busway.cli.output import CommandFailed
from busway.security.properties import is_secret


def overrides(given: Sequence[str] | None) -> dict[str, str]:
    """Parse `--override name=value` options, else `CommandFailed`; the last value of a name counts."""
    settings = {}
    for option in given or ():
        name, equals, text = option.partition("=")
        if not equals:
            raise CommandFailed(f"--override {option}: give name=value")
        if is_secret(name.strip(), text):
            raise CommandFailed(
                f"--override {name.strip()}: every user of this machine can read arguments; put it into the file of --config"
            )
        settings[name.strip()] = text.strip()
    return settings


def serve(run: Callable[[Any], None], main: Callable[[], Any], cannot_start: tuple[type[Exception], ...]) -> None:
    """Run a server to its end; errors in `cannot_start` become `CommandFailed`, except those of the system."""
    try:
        run(main())
    except CommandFailed:
        raise
    except cannot_start as problem:
        if isinstance(problem, OSError) and problem.strerror:
            raise
        raise CommandFailed(str(problem)) from None
