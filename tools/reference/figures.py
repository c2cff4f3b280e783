"""Metrics of services and Connect workers, from the tables in their modules' docstrings."""

import re
from types import ModuleType

from busway.app.monitoring import metrics as services
from busway_connect.rest import metrics as workers
from tools.reference.tables import MADE, table


def _rows(module: ModuleType) -> list[tuple[str, str, str]]:
    """Return the rows of the table; a row may be wrapped."""
    joined = re.sub(r"(?<!\|)\n(?!\|)", " ", module.__doc__ or "")
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in joined.splitlines() if line.startswith("| `")
    ]
    return [(name, labels, text) for name, labels, text in cells]


def page() -> str:
    """Return the page of these metrics."""
    head = ("name", "labels", "meaning")
    return (
        f"# Metrics of services and connectors\n\n{MADE} Those of the broker: [Metrics and health](../METRICS.md).\n\n"
        "## Service\n\nAt `/metrics` of `app.extend(Web())` or `busway run --http PORT`. Worker i of `--workers` serves port + i, and Prometheus scrapes all.\n\n"
        f"{table(head, _rows(services))}\n## Connect worker\n\nAt `/metrics` of the worker's REST port.\n\n{table(head, _rows(workers))}"
    )
