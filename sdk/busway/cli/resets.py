"""Target offsets of `busway groups reset`.

Here: options as of `kafka-consumer-groups --reset-offsets`, and the resulting offsets.
Not here: changing them (`groups`).
"""

import datetime as dt
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from busway.admin.admin import Admin
from busway.cli.output import CommandFailed
from busway.types import TopicPartition

_EARLIEST: Final = -2
_LATEST: Final = -1
_TOPIC: Final = re.compile(r"([^:]+)(?::(\d+(?:,\d+)*))?")
_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


def moment_ms(text: str) -> int:
    """Parse `2026-01-31T12:00:00.000`, UTC without a zone, to ms since 1970; else `CommandFailed`."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(f"--to-datetime {text}: give it as 2026-01-31T12:00:00, with or without a zone") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration up to days, `P1DT2H3M4.5S`, to ms; else `CommandFailed`."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise CommandFailed(f"--by-duration {text}: give it as P7D, PT1H30M or P1DT12H")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int(dt.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds() * 1000)


async def chosen(admin: Admin, topics: Iterable[str], committed: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions of `topic` or `topic:0,1`; without topics all committed ones.

    Raises:
        CommandFailed: a partition does not exist, or the group has committed none.
        BrokerError: a topic does not exist.
    """
    partitions: dict[TopicPartition, None] = {}
    for text in topics:
        match = _TOPIC.fullmatch(text)
        if match is None:
            raise CommandFailed(f"--topic {text}: give a topic, or some of its partitions as topic:0,1")
        name = match[1]
        there = [info.number for info in (await admin.describe_topics([name]))[name].partitions]
        numbers = there if match[2] is None else [int(number) for number in match[2].split(",")]
        if missing := sorted(set(numbers) - set(there)):
            raise CommandFailed(f"topic {name} has {len(there)} partitions, and no {missing[0]}")
        partitions |= dict.fromkeys(TopicPartition(name, number) for number in numbers)
    if not topics:
        partitions = dict.fromkeys(sorted(committed))
        if not partitions:
            raise CommandFailed("--all-topics are those that the group has committed offsets of, which are none")
    return list(partitions)


async def planned(
    admin: Admin,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int],
    *,
    to: str | None = None,
    at_ms: int | None = None,
    shift_by: int | None = None,
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return each partition's new offset, and remarks on those moved into range.

    Args:
        to: earliest, latest or an offset.
        at_ms: to the first record at or after this time, in ms since 1970; without one to the end.
        shift_by: added to the committed offset; may be negative.

    Raises:
        CommandFailed: `to` is something else; a partition without a committed offset cannot be shifted.
    """
    first = await admin.list_offsets(dict.fromkeys(partitions, _EARLIEST))
    last = await admin.list_offsets(dict.fromkeys(partitions, _LATEST))
    if to in {"earliest", "latest"}:
        return (first if to == "earliest" else last), []
    if at_ms is not None:
        return {**last, **await admin.list_offsets(dict.fromkeys(partitions, at_ms))}, []
    if shift_by is not None:
        if missing := sorted(set(partitions) - committed.keys()):
            raise CommandFailed(
                f"--shift-by: the group has committed no offset of {missing[0].topic}-{missing[0].partition}"
            )
        wanted = {partition: committed[partition] + shift_by for partition in partitions}
    elif to is not None and to.isdigit():
        wanted = dict.fromkeys(partitions, int(to))
    else:
        raise CommandFailed(f"--to {to}: give earliest, latest or an offset")
    clipped = {partition: min(max(at, first[partition]), last[partition]) for partition, at in wanted.items()}
    remarks = [
        f"{partition.topic}-{partition.partition} has offsets {first[partition]} to {last[partition]}: "
        f"{at} becomes {clipped[partition]}"
        for partition, at in wanted.items()
        if at != clipped[partition]
    ]
    return clipped, remarks
