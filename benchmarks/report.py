"""From samples to a table: medians, paired ratios, text and JSON.

Here: arithmetic and layout.
Not here: how a sample is taken (`workloads`).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What a figure means.

    Attributes:
        target: the ratio Busway/Kafka, or with `absolute` Busway's own figure, that is aimed at; None where there is no aim.
    """

    name: str
    unit: str
    higher_is_better: bool
    target: float | None = None
    absolute: bool = False


@dataclass(slots=True, kw_only=True)
class Row:
    """One metric of one workload in one durability: a sample for each round, ours and theirs taken one after the other."""

    durability: str
    workload: str
    metric: Metric
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Busway/Kafka of each round."""
        return [own_rate / other for own_rate, other in zip(self.ours, self.theirs, strict=False) if other]

    @property
    def ratio(self) -> float | None:
        """The median of the rounds' ratios; None where there is nothing to divide by."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def met(self) -> bool | None:
        """Whether the aim is met, None without one."""
        reached = statistics.median(self.ours) if self.metric.absolute and self.ours else self.ratio
        if self.metric.target is None or reached is None:
            return None
        return reached >= self.metric.target if self.metric.higher_is_better else reached <= self.metric.target


HEADINGS = ("durability", "workload", "measure", "Busway", "Apache Kafka", "ratio", "of rounds", "aim")


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, its columns aligned so that it reads well in a terminal too."""
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    lines = [_line(HEADINGS, widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
    lines += [_line(line, widths) for line in cells[1:]]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _cells(row: Row) -> tuple[str, ...]:
    ratios = row.ratios
    return (
        row.durability,
        row.workload,
        f"{row.metric.name}, {row.metric.unit}",
        figure(statistics.median(row.ours)) if row.ours else "",
        figure(statistics.median(row.theirs)) if row.theirs else "",
        f"{row.ratio:.2f}" if row.ratio is not None else "",
        f"{min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else "",
        _aim(row),
    )


def _aim(row: Row) -> str:
    if row.met is None:
        return ""
    sign = "≥" if row.metric.higher_is_better else "≤"
    unit = f" {row.metric.unit}" if row.metric.absolute else ""
    return f"{sign} {row.metric.target:g}{unit}: {'met' if row.met else 'missed'}"


def figure(value: float) -> str:
    """Three significant digits, thousands separated."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def as_json(rows: Sequence[Row], machine: Mapping[str, str], **about: Any) -> dict[str, Any]:
    """Everything measured, every round of it."""
    return {
        **about,
        "machine": dict(machine),
        "rows": [
            {
                "durability": row.durability,
                "workload": row.workload,
                "metric": row.metric.name,
                "unit": row.metric.unit,
                "higher_is_better": row.metric.higher_is_better,
                "busway": row.ours,
                "kafka": row.theirs,
                "ratio": row.ratio,
                "target": row.metric.target,
                "met": row.met,
            }
            for row in rows
        ],
    }
