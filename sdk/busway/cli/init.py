"""`busway init`.

Here: writing a new service with its test.
Not here: their text (the folder `template`).
"""

import importlib.resources
import re
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

from busway.cli.output import CommandFailed, harmless

FILES: Final = {
    "service.py": "service.py.txt",
    "test_service.py": "test_service.py.txt",
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}
"""Written files, and those of the template."""
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")


def init(
    folder: Annotated[Path, typer.Argument(help="Folder for the service; its name is the service's.")],
    name: Annotated[str | None, typer.Option("--name", help="Another name for the service.")] = None,
) -> None:
    """Write a service with its test, ready to run; existing files are not replaced."""
    named = name or folder.absolute().name
    if not _NAME.fullmatch(named):
        raise CommandFailed(
            f"{harmless(named)!r} is no name for a service: up to 100 letters, digits, dots, hyphens and underscores, with a "
            "letter or digit at both ends; give one with --name"
        )
    if existing := [file for file in FILES if (folder / file).exists()]:
        raise CommandFailed(f"{folder} has {', '.join(existing)} already; give a new folder, or move them away")
    template = importlib.resources.files("busway.cli") / "template"
    folder.mkdir(parents=True, exist_ok=True)
    for file, source in FILES.items():
        text = Template((template / source).read_text(encoding="utf-8")).substitute(name=named)
        (folder / file).write_text(text, encoding="utf-8")
    typer.echo(
        f"wrote {', '.join(FILES)} in {folder}\n\n"
        f"  cd {folder}\n"
        "  pytest                      # needs pytest and pytest-asyncio\n"
        "  busway up                   # broker and registry\n"
        "  busway run service:app      # in another terminal"
    )
