"""Start and end of a reader.

Here: positions, Spark's options for them, and resolving them at the broker.
Not here: reading (`source`).
"""

import asyncio
import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from busway import Admin, BuswayError, ConnectionFailed, Consumer, RequestTimedOut, SecurityOptions, TopicPartition
from busway.security.options import PLAINTEXT

Position = str | Mapping[int, int] | dt.datetime
"""earliest, latest, offsets by partition (all. -2 earliest, -1 latest), or a time: the first record at or after it."""
Offsets = dict[str, dict[str, int]]
"""Topic → partition → next offset, as in Spark's checkpoints (JSON: text keys)."""
EARLIEST: Final = -2
LATEST: Final = -1
PATIENCE_S: Final = 60.0
"""Limit of a stream's wait for an unreachable broker."""
_FIRST_WAIT_S: Final = 0.1
_WAIT_MAX_S: Final = 5.0
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


class BadOption(BuswayError):
    """An invalid option of the source; the text has the reason."""


def position_options(start: Position, end: Position | None, topic: str) -> dict[str, str]:
    """Return start and end as options of both sources; raises ValueError for an unknown word, or a time without a zone."""
    options = {"startingOffsetsByTimestampStrategy": "latest"}
    for name, position in (("starting", start), ("ending", end)):
        if isinstance(position, dt.datetime):
            if position.tzinfo is None:
                raise ValueError(f"{position} has no time zone; give one, dt.UTC say")
            options[f"{name}Timestamp"] = str(int(position.timestamp() * 1000))
        elif isinstance(position, Mapping):
            offsets = {str(number): offset for number, offset in position.items()}
            options[f"{name}Offsets"] = json.dumps({topic: offsets})
        elif position in _WORDS:
            options[f"{name}Offsets"] = position
        elif position is not None:
            raise ValueError(f"{position!r} is no position: give earliest, latest, a moment or offsets by partition")
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedOffsets:
    """A requested position.

    Attributes:
        timestamp_ms: the first record at or after it, or the end without one.
        special: -2 the earliest, -1 the latest.
        offsets: may include -2 and -1.
    """

    special: int = LATEST
    timestamp_ms: int | None = None
    offsets: Offsets | None = None


def wanted(options: Mapping[str, str], name: str, default: str) -> RequestedOffsets:
    """Parse the options `<name>Timestamp` and `<name>Offsets`; raises `BadOption`."""
    moment = options.get(f"{name}Timestamp")
    if moment is not None:
        if not moment.isdigit():
            raise BadOption(f"{name}Timestamp={moment}: give milliseconds since 1970")
        return RequestedOffsets(timestamp_ms=int(moment))
    text = options.get(f"{name}Offsets", default)
    if text in _WORDS:
        return RequestedOffsets(special=_WORDS[text])
    try:
        parsed = json.loads(text)
        offsets = {
            topic: {str(int(number)): int(offset) for number, offset in by.items()} for topic, by in parsed.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise BadOption(
            f'{name}Offsets={text}: give earliest, latest, or JSON such as {{"topic": {{"0": 23, "1": -2}}}}'
        ) from None
    return RequestedOffsets(offsets=offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Queries the broker for offsets; each call opens a connection, as minutes may pass between them."""

    bootstrap_servers: str
    topics: tuple[str, ...]
    read_committed: bool
    security: SecurityOptions = PLAINTEXT

    async def range(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return every partition's first offset, and the end of its readable records.

        Raises:
            BuswayError: the broker is unreachable, or a topic is missing.
        """
        partitions = await self._partitions()
        async with self._consumer() as consumer:
            return await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)

    async def patient_range(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """As `range`, for streams: waits up to `PATIENCE_S` for a broker."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        wait = _FIRST_WAIT_S
        while True:
            try:
                return await self.range()
            except (ConnectionFailed, RequestTimedOut):
                if loop.time() + wait > deadline:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, _WAIT_MAX_S)

    async def ends(self) -> dict[TopicPartition, int]:
        """Return every partition's end, after open transactions; errors as `range`."""
        partitions = await self._partitions()
        async with self._consumer() as consumer:
            return await consumer.end_offsets(partitions, open_too=True)

    async def resolve(self, asked: RequestedOffsets) -> Offsets:
        """Return the current offsets of a position.

        Raises:
            BadOption: the given partitions are not exactly the existing ones.
            BuswayError: as `range`.
        """
        first, last = await self.range()
        if asked.timestamp_ms is not None:
            async with self._consumer() as consumer:
                answers = await consumer.offsets_for_times(dict.fromkeys(last, asked.timestamp_ms))
            at = {
                partition: answer.offset if (answer := answers.get(partition)) is not None else end
                for partition, end in last.items()
            }
            return as_json(at)
        if asked.offsets is None:
            return as_json(first if asked.special == EARLIEST else last)
        given = {TopicPartition(topic, int(number)) for topic, by in asked.offsets.items() for number in by}
        if given != set(last):
            raise BadOption(
                f"offsets are given for {_names(given)}, but the partitions are {_names(set(last))}: give one for each, -2 is the earliest"
            )
        special = {EARLIEST: first, LATEST: last}
        return as_json(
            {
                partition: special[at][partition]
                if (at := asked.offsets[partition.topic][str(partition.partition)]) in special
                else at
                for partition in last
            }
        )

    async def _partitions(self) -> list[TopicPartition]:
        async with Admin(self.bootstrap_servers, security=self.security) as admin:
            described = await admin.describe_topics(self.topics)
        return [TopicPartition(name, info.number) for name in self.topics for info in described[name].partitions]

    def _consumer(self) -> Consumer:
        isolation = "read_committed" if self.read_committed else "read_uncommitted"
        return Consumer(bootstrap_servers=self.bootstrap_servers, isolation_level=isolation, security=self.security)


def as_json(offsets: Mapping[TopicPartition, int]) -> Offsets:
    """Return offsets for a checkpoint, sorted, as Spark compares them as text."""
    result: Offsets = {}
    for topic, number in sorted(offsets):
        result.setdefault(topic, {})[str(number)] = offsets[TopicPartition(topic, number)]
    return result


def from_json(offsets: Offsets) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): offset for topic, by in offsets.items() for number, offset in by.items()
    }


def _names(partitions: set[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)) or "none"
