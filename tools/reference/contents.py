"""The manual's table of contents for readers of the repository, from the site's navigation."""

import re
from pathlib import Path
from typing import Final

from tools.reference.tables import MADE

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = "docs/README.md"
SECTION_INDENT: Final = 2
"""Of a section of the navigation; a group within one has more, and no heading here."""
_ENTRY: Final = re.compile(r"^( *)- (?:([^:\n]+): ?)?(\S+\.md)?$", re.MULTILINE)


def page() -> str:
    """Return docs/README.md."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    sections: list[list[str]] = []
    for indent, title, name in _ENTRY.findall(navigation):
        if name and name != PAGE:
            sections[-1].append(f"- [{title or _heading(name)}]({_relative(name)})")
        elif not name and len(indent) == SECTION_INDENT:
            sections.append([f"## {title}", ""])
    parts = [f"# The manual\n\n{MADE} `make docs-serve` shows it as a site.", *map("\n".join, sections)]
    return "\n\n".join(parts) + "\n"


def _heading(name: str) -> str:
    return (ROOT / name).read_text().splitlines()[0].removeprefix("# ")


def _relative(name: str) -> str:
    return name.removeprefix("docs/") if name.startswith("docs/") else f"../{name}"
