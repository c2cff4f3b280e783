"""The `busway` commands of the pages: each exists, with the options that the page gives it."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.tidy.test_pages import pages

from busway.cli import build
from busway.cli.command_config import add_command_config

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(?:console|sh|bash|ini)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/|ExecStart=\S+/)?(busway .*)$", re.MULTILINE)
SPAN = re.compile(r"`(busway [a-z][^`\n]*)`")
FREE = {"spark", "demo"}
"""Commands that hand their further words to a job."""
ALL: Any = add_command_config(typer.main.get_command(build(None)))


def commands(page: str) -> list[str]:
    """Return the commands of the console blocks and code spans."""
    text = (ROOT / page).read_text()
    inside = [match for block in BLOCK.findall(text) for match in COMMAND.findall(block.replace("\\\n", " "))]
    return [*inside, *SPAN.findall(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))]


def unknown(line: str) -> str | None:
    """Return the first word that is no command and no option; None if there is none."""
    words = shlex.split(line.partition(" # ")[0].partition(" > ")[0].partition(" | ")[0].rstrip("& "), posix=True)[1:]
    command = ALL
    for word in words:
        if hasattr(command, "commands") and not word.startswith("-"):
            if word not in command.commands:
                return word
            command = command.commands[word]
            if word in FREE:
                return None
        elif word.startswith("-") and word not in {"-h", "--help"}:
            options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
            if word.partition("=")[0] not in options and not re.fullmatch(r"-\d+|-", word):
                return word
    return None


PAGES = [page for page in pages() if page != "CHANGELOG.md" and commands(page)]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page: str) -> None:
    """With their options."""
    wrong = {
        line: word for line in commands(page) if "…" not in line and (word := unknown(line)) not in {None, "COMMAND"}
    }
    assert not wrong, f"{page} has commands that do not exist, or options that they do not have: {wrong}"


def test_what_does_not_exist_is_named() -> None:
    """A command, a command of a group, an option."""
    assert unknown("busway topics list -b localhost:9092 --json") is None
    assert unknown("busway frob") == "frob"
    assert unknown("busway topics frob x") == "frob"
    assert unknown("busway up --frob") == "--frob"
