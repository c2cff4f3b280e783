"""`busway top`.

Here: rates between two reads of a cluster, and their screen.
Not here: reading (`progress`), the state at one moment (`status`).
"""

import asyncio
import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import typer

from busway.admin.admin import Admin
from busway.cli.output import BOOTSTRAP, AsJson, Bootstrap, harmless, run, write_json
from busway.cli.progress import GroupProgress, read_ends, read_groups
from busway.errors import BuswayError
from busway.net.machine import OS
from busway.types import TopicPartition

_CLEAR: Final = "\x1b[H\x1b[J"
"""Moves the cursor to the top left and clears the screen below."""
_LINES_BESIDE: Final = 6
"""Lines of a screen that are no rows."""
_ROWS_MIN: Final = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """Positions in a cluster at one moment.

    Attributes:
        at_s: on this machine's monotonic clock.
    """

    at_s: float
    ends: Mapping[TopicPartition, int]
    groups: Sequence[GroupProgress]


@dataclass(frozen=True, slots=True)
class TopicRate:
    topic: str
    partitions: int
    records_per_s: float
    end_offsets: int


@dataclass(frozen=True, slots=True)
class GroupRate:
    """A group in a topic.

    Attributes:
        records_per_s: committed ones.
        lag: to the end offsets.
    """

    group: str
    state: str
    topic: str
    records_per_s: float
    lag: int


def top(
    interval_s: Annotated[
        float, typer.Option("--interval", "-i", metavar="SECONDS", min=0.1, max=3600, help="Time between two reads.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the rates of one interval, and exit.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show records per second of topics and groups, and lag, until Ctrl-C; --json prints a line for each interval."""

    async def work() -> None:
        async with Admin(bootstrap, client_id="busway-top") as admin:
            before = await _read(admin, internal=internal)
            while True:
                await asyncio.sleep(interval_s)
                try:
                    after = await _read(admin, internal=internal)
                except BuswayError as problem:  # brokers that restart; the next read may succeed
                    if once:
                        raise
                    typer.echo(f"busway: {problem}", err=True)
                    continue
                _show(topic_rates(before, after), group_rates(before, after), once=once, as_json=as_json)
                if once:
                    return
                before = after

    run(work())


async def _read(admin: Admin, *, internal: bool) -> Reading:
    topics = [topic for topic in (await admin.describe_topics()).values() if internal or not topic.internal]
    ends = await read_ends(admin, topics)
    return Reading(OS.monotonic_s(), ends, await read_groups(admin, ends))


def topic_rates(before: Reading, after: Reading) -> list[TopicRate]:
    """Return the topics, the busiest first. Partitions that shrank, as their topic is a new one, count nothing."""
    grown: defaultdict[str, int] = defaultdict(int)
    ends: defaultdict[str, int] = defaultdict(int)
    partitions: defaultdict[str, int] = defaultdict(int)
    for partition, end in after.ends.items():
        partitions[partition.topic] += 1
        ends[partition.topic] += end
        grown[partition.topic] += max(0, end - before.ends.get(partition, end))
    seconds = _seconds(before, after)
    rates = [TopicRate(name, count, grown[name] / seconds, ends[name]) for name, count in partitions.items()]
    return sorted(rates, key=lambda rate: (-rate.records_per_s, rate.topic))


def group_rates(before: Reading, after: Reading) -> list[GroupRate]:
    """Return a row for each group and topic with offsets, the largest lag first."""
    earlier = {group.group_id: group.offsets for group in before.groups}
    seconds = _seconds(before, after)
    rates = []
    for group in after.groups:
        moved: defaultdict[str, int] = defaultdict(int)
        lags: defaultdict[str, int] = defaultdict(int)
        known = earlier.get(group.group_id, {})
        for partition in sorted(group.offsets.keys() & after.ends.keys()):
            offset = group.offsets[partition]
            moved[partition.topic] += max(0, offset - known.get(partition, offset))
            lags[partition.topic] += group.lags.get(partition, 0)
        rates += [
            GroupRate(group.group_id, group.state, topic, moved[topic] / seconds, lag) for topic, lag in lags.items()
        ]
    return sorted(rates, key=lambda rate: (-rate.lag, rate.group, rate.topic))


def _seconds(before: Reading, after: Reading) -> float:
    return max(after.at_s - before.at_s, 0.001)


def _show(topics: Sequence[TopicRate], groups: Sequence[GroupRate], *, once: bool, as_json: bool) -> None:
    if as_json:
        write_json({"topics": [asdict(rate) for rate in topics], "groups": [asdict(rate) for rate in groups]})
        sys.stdout.flush()
        return
    live = sys.stdout.isatty() and not once
    rows = max(_ROWS_MIN, (shutil.get_terminal_size().lines - _LINES_BESIDE) // 2) if live else None
    text = screen(topics, groups, rows)
    typer.echo(_CLEAR + text if live else text)
    sys.stdout.flush()


def screen(topics: Sequence[TopicRate], groups: Sequence[GroupRate], rows: int | None) -> str:
    """Format the two tables with at most `rows` rows each; None shows all."""
    topic_cells = [
        (rate.topic, str(rate.partitions), f"{rate.records_per_s:.1f}", str(rate.end_offsets)) for rate in topics
    ]
    group_cells = [(rate.group, rate.state, rate.topic, f"{rate.records_per_s:.1f}", str(rate.lag)) for rate in groups]
    return harmless(
        _table(("topic", "partitions", "records/s", "end offsets"), topic_cells, rows)
        + "\n"
        + _table(("group", "state", "topic", "records/s", "lag"), group_cells, rows)
    )


def _table(head: Sequence[str], cells: Sequence[Sequence[str]], rows: int | None) -> str:
    shown = [head, *cells[:rows]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if head[at] not in {"topic", "group", "state"} else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in shown
    ]
    if len(cells) > len(shown) - 1:
        lines.append(f"… and {len(cells) - len(shown) + 1} more")
    return "\n".join(lines) + "\n"
