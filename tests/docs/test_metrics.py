"""docs/METRICS.md lists the metrics that there are, with their types and labels."""

import re
from pathlib import Path

from busway_bus.monitoring.names import METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "METRICS.md").read_text()
BROKER = PAGE.partition("\n## Registry")[0]


def rows(text: str) -> dict[str, tuple[str, str]]:
    """Return type and labels by name, of the tables of metrics."""
    table = re.findall(r"^\| `([a-z_]+)` \| ([a-z]+) \| ([a-z, ]*) \|", text, re.MULTILINE)
    return {name: (kind, labels.strip()) for name, kind, labels in table}


def test_the_page_and_the_broker_name_the_same_metrics() -> None:
    """Neither has one that the other lacks."""
    assert rows(BROKER) == {metric.shown: (metric.kind, ", ".join(metric.labels)) for metric in METRICS}
