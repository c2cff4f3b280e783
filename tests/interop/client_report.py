"""What each client did, for the table at the end of the run.

Here: the notes and how they are laid out.
Not here: taking them (the tests do) and printing them (`tests/conftest.py`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pytest

COLUMNS = ("produce", "read", "group of three", "seek by time")


@dataclass(slots=True)
class ClientReport:
    """Client -> version and what it did; tool -> what it did."""

    versions: dict[str, str] = field(default_factory=dict)
    notes: dict[str, dict[str, str]] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)

    def note(self, client: str, version: str, column: str, text: str) -> None:
        """Write down that a client did a thing."""
        assert column in COLUMNS
        self.versions[client] = version
        self.notes.setdefault(client, {})[column] = text

    def note_tool(self, tool: str, text: str) -> None:
        """Write down what a tool did."""
        self.tools[tool] = text

    def notes_of_all(self) -> dict[str, Any]:
        """What `take_over` takes, of nothing but texts."""
        return asdict(self)

    def take_over(self, notes: dict[str, Any]) -> None:
        """Add the notes of another, who ran other tests."""
        self.versions |= notes["versions"]
        for client, done in notes["notes"].items():
            self.notes.setdefault(client, {}).update(done)
        self.tools |= notes["tools"]

    def table(self) -> list[str]:
        """The lines of both tables; nothing when nothing was noted."""
        rows = [
            (client, self.versions[client], *(done.get(column, "-") for column in COLUMNS))
            for client, done in self.notes.items()
        ]
        return [
            *_aligned(("client", "version", *COLUMNS), rows),
            *([""] if rows and self.tools else []),
            *_aligned(("tool of Apache Kafka 4.3.1", "did"), list(self.tools.items())),
        ]


CLIENT_REPORT: Final[pytest.StashKey[ClientReport]] = pytest.StashKey()


def _aligned(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    lines = [heading, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heading))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
