"""Markdown tables, and the parts of docstrings that fill them."""

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

MADE: Final = "Made from the code by `python -m tools.reference`; a test fails if this page is stale."
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w[\w, ]*): ?(.*)$")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a `|` in a cell is escaped."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def attributes(kind: Any, section: str = "Attributes") -> dict[str, str]:
    """Return the text of each name in a section of a docstring; of several names together, the same text."""
    text = inspect.getdoc(kind) or ""
    inside = text.partition(f"{section}:\n")[2].partition("\n\n")[0]
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in inside.splitlines():
        if match := _ATTRIBUTE.match(line):
            names = [name.strip() for name in match[1].split(",")]
            texts.update(dict.fromkeys(names, match[2]))
        else:
            for name in names:
                texts[name] += f" {line.strip()}"
    return {name: text.strip() for name, text in texts.items()}


def first_sentence(value: Any) -> str:
    """Return the first sentence of a docstring, without the line breaks."""
    return sentence(inspect.getdoc(value) or "")


def sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s(?=[A-Z`])", paragraph)[0]


def code(text: object) -> str:
    return f"`{text}`"
