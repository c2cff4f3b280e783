"""The closing table of a demo, and its exit code.

Here: figures, which of them must be what, how they are printed.
Not here: counting.
"""

from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(slots=True)
class Summary:
    """Figures in their order; those that are not what they must be make the demo fail."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def figure(self, name: str, value: Any, *, must_be: Any = None) -> None:
        """A figure; with `must_be` it is compared."""
        right = must_be is None or value == must_be
        if not right:
            self.wrong.append(name)
        self.lines.append((name, f"{value}" if right else f"{value}   must be {must_be}"))

    @property
    def exit_code(self) -> int:
        """0 when every figure is what it must be."""
        return 1 if self.wrong else 0

    def show(self, console: Console) -> int:
        """Print it; returns the exit code."""
        table = Table.grid(padding=(0, 2))
        for name, value in self.lines:
            table.add_row(name, escape(value), style="bold red" if name in self.wrong else "")
        console.print(table)
        return self.exit_code
