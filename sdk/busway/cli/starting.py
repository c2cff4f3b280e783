"""What the commands that start a server share.

What lives here: settings given by name, and a server that cannot start as one line of text. What does not: which settings and servers.
"""

from collections.abc import Callable, Sequence
from typing import Any

from busway.cli.output import CommandFailed


def overrides(given: Sequence[str] | None) -> dict[str, str]:
    """What `--override name=value` says, by name; the last one counts.

    Raises:
        CommandFailed: one is no name=value; names it.
    """
    settings = {}
    for option in given or ():
        name, equals, text = option.partition("=")
        if not equals:
            raise CommandFailed(f"--override {option}: give name=value")
        settings[name.strip()] = text.strip()
    return settings


def serve(run: Callable[[Any], None], main: Callable[[], Any], cannot_start: tuple[type[Exception], ...]) -> None:
    """Run a server to its end.

    Raises:
        CommandFailed: one of `cannot_start`, in its own words.
        OSError: of the operating system, which has its words elsewhere.
    """
    try:
        run(main())
    except CommandFailed:
        raise
    except cannot_start as problem:
        if isinstance(problem, OSError) and problem.strerror:
            raise
        raise CommandFailed(str(problem)) from None
