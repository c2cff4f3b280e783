"""Finding, replaying and discarding dead letters.

Here: `DeadLetters`, for services, consoles and `busway dlq`.
Not here: parsing (`letter`), writing (`handling.attempts`), skipping records replayed for others (`headers`).

A dead letter is never changed or deleted. Those replayed or discarded are committed offsets of the group `<dead-letter
topic>.replayed`: everything below the offset, and runs beyond it in its metadata (`offset_set`). Bound: 4 KiB of
metadata, some hundred gaps in a partition; a replay stops before it sends what could not be marked. Brokers delete
these offsets after `offsets.retention.minutes` (7 days) and records after `retention.ms` (7 days): to keep dead letters
longer, set both. If the topic is recreated, delete the group too, or its marks stay.

At least once: a crash between acknowledgement and mark replays at most `WINDOW` records twice.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from busway.admin.admin import Admin
from busway.app.dead_letters.headers import REPLAY_HANDLER, REPLAY_HEADER
from busway.app.dead_letters.letter import DeadLetter, DeadLetterSelection, DeadLetterSummary, dead_letter
from busway.app.offset_set import MAX_TEXT, OffsetSet
from busway.consumer.snapshot import read_to_end
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.producer.producer import Producer
from busway.security.choosing import chosen
from busway.security.options import SecurityOptions
from busway.types import Addresses, OffsetAndMetadata, TopicPartition

SUFFIX: Final = ".dlt"
REPLAY_OF: Final = "busway_replay-of"
"""On a replayed record: its dead letter, as topic-partition@offset."""
WINDOW: Final = 500
"""Records sent before they are marked together."""
_CLIENT: Final = "busway-dlq"
_LATEST: Final = -1


class NotDeadLetters(BuswayError):
    """A topic holds a record that is no dead letter; the text names it."""


class TooManyGaps(BuswayError):
    """Finished offsets have more gaps than the metadata holds; the text names the partition and the remedy."""


@dataclass(slots=True, kw_only=True)
class Replay:
    """Result of a replay.

    Attributes:
        done: sent and acknowledged; with dry_run, what would be.
        refused: what cannot be sent, with the reason; it stays open.
    """

    done: list[DeadLetter] = field(default_factory=list)
    refused: list[tuple[DeadLetter, str]] = field(default_factory=list)


class DeadLetters:
    """Dead letters of a cluster.

    Args:
        bootstrap_servers: `host:port`, several separated by commas or as a list.
        security: TLS and SASL; by default the environment's, else plain text.
    """

    def __init__(
        self, bootstrap_servers: Addresses = "localhost:9092", *, security: SecurityOptions | None = None
    ) -> None:
        self._bootstrap = bootstrap_servers
        self._security = chosen(security)
        self._admin = Admin(bootstrap_servers, client_id=_CLIENT, security=self._security)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "DeadLetters":
        await self._stack.enter_async_context(self._admin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # Finding

    async def topics(self, group: str | None = None) -> list[str]:
        suffix = f".{group}{SUFFIX}" if group is not None else SUFFIX
        return [name for name in await self._admin.list_topics() if name.endswith(suffix)]

    async def summaries(self, topics: Sequence[str]) -> list[DeadLetterSummary]:
        """Count by topic, group, handler and exception; reads all dead letters of these topics.

        Raises:
            BrokerError: there is no such topic.
        """
        counts: dict[tuple[str, str, str, str], list[int]] = {}
        for topic in topics:
            async for letter in self.read(topic):
                count = counts.setdefault((topic, letter.group, letter.handler, letter.error), [0, 0, 0])
                count[0] += 1
                count[1] += not letter.done
                count[2] = max(count[2], letter.timestamp_ms)
        return [
            DeadLetterSummary(
                topic=topic,
                group=group,
                handler=handler,
                error=error,
                records=count[0],
                open=count[1],
                newest_ms=count[2],
            )
            for (topic, group, handler, error), count in sorted(counts.items())
        ]

    async def read(
        self, topic: str, selection: DeadLetterSelection | None = None, *, open_only: bool = False
    ) -> AsyncIterator[DeadLetter]:
        """Read dead letters of a topic up to the current end, each partition in order.

        Raises:
            BrokerError: there is no such topic.
            NotDeadLetters: the topic holds other records, and its name is not that of a dead-letter topic.
        """
        done = await self._done(topic)
        async with contextlib.aclosing(
            self._read(topic, selection or DeadLetterSelection(), done, open_only=open_only)
        ) as letters:
            async for letter in letters:
                _check(letter)
                yield letter

    async def _read(
        self, topic: str, selection: DeadLetterSelection, done: dict[TopicPartition, OffsetSet], *, open_only: bool
    ) -> AsyncGenerator[DeadLetter, None]:
        """Read dead letters; add offsets without a record (markers, deleted ones) to `done`."""
        next_offset = {partition: offsets.below if open_only else 0 for partition, offsets in done.items()}
        partitions = None if selection.partition is None else [selection.partition]
        count = 0
        async with contextlib.aclosing(
            read_to_end(
                self._bootstrap,
                topic,
                partitions,
                starts={partition.partition: offset for partition, offset in next_offset.items()},
                client_id=_CLIENT,
                security=self._security,
            )
        ) as records:
            async for record in records:
                partition = TopicPartition(topic, record.partition)
                done[partition].add(next_offset[partition], record.offset)
                next_offset[partition] = record.offset + 1
                letter = dead_letter(record, done=record.offset in done[partition])
                if (open_only and letter.done) or not selection.takes(letter):
                    continue
                yield letter
                count += 1
                if count == selection.limit:
                    return

    async def _done(self, topic: str) -> dict[TopicPartition, OffsetSet]:
        described = (await self._admin.describe_topics([topic]))[topic]
        committed = await self._admin.list_group_offsets(replayed_group(topic))
        partitions = [TopicPartition(topic, partition_info.number) for partition_info in described.partitions]
        ends = await self._admin.list_offsets(dict.fromkeys(partitions, _LATEST))
        done = {}
        for partition in partitions:
            at = committed.get(partition)
            # An offset behind the end belongs to a deleted topic of that name.
            of_this_log = at is not None and at.offset <= ends.get(partition, 0)
            done[partition] = OffsetSet.parse(at.offset, at.metadata) if at is not None and of_this_log else OffsetSet()
        return done

    # Doing

    async def replay(
        self,
        topic: str,
        selection: DeadLetterSelection | None = None,
        *,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> Replay:
        """Write open dead letters back to their topics, and mark them.

        Each goes to its topic and, if that still exists, its partition, with its key, value and headers. Handlers of
        the group that failed get it, other groups skip it. Its timestamp is the time of the replay, because brokers
        delete old records.

        Args:
            selection: of the open ones; by default all.
            rate: maximum records per second.
            dry_run: only report them.

        Raises:
            BrokerError: there is no such topic.
            TooManyGaps: see the module; what was sent before is marked.
            DeliveryFailed, BrokerError: a record was not acknowledged; the acknowledged ones are marked.
        """
        if rate is not None and not 0 < rate < math.inf:
            raise ValueError(f"rate: {rate:g} is no number above 0")
        result = Replay()
        partitions = {name: len(info.partitions) for name, info in (await self._admin.describe_topics()).items()}
        marking = _Marking(self, self._admin, topic, await self._done(topic))
        letters = self._read(topic, selection or DeadLetterSelection(), marking.done, open_only=True)
        async with (
            Producer(self._bootstrap, client_id=_CLIENT, security=self._security) as producer,
            contextlib.aclosing(letters),
        ):
            sender = _Sender(producer, marking, partitions, rate)
            async for letter in letters:
                if (why := _why_not(letter, partitions)) is not None:
                    result.refused.append((letter, why))
                elif dry_run:
                    result.done.append(letter)
                else:
                    result.done += await sender.add(letter)
            result.done += await sender.flush()
        return result

    async def discard(self, topic: str, selection: DeadLetterSelection | None = None) -> list[DeadLetter]:
        """Mark open dead letters as done without sending them; the topic keeps them.

        Raises:
            BrokerError: there is no such topic.
            NotDeadLetters, TooManyGaps: as `read` and `replay`; nothing was marked.
        """
        marking = _Marking(self, self._admin, topic, await self._done(topic))
        letters = [
            letter
            async for letter in self._read(topic, selection or DeadLetterSelection(), marking.done, open_only=True)
        ]
        for letter in letters:
            _check(letter)
        marking.check(letters)
        await marking.mark(letters)
        return letters


class _Marking:
    def __init__(self, letters: DeadLetters, admin: Admin, topic: str, done: dict[TopicPartition, OffsetSet]) -> None:
        self._letters = letters
        self._admin = admin
        self._topic = topic
        self.done = done

    def _with(self, letters: Sequence[DeadLetter]) -> dict[TopicPartition, OffsetSet]:
        marked: dict[TopicPartition, OffsetSet] = {}
        for letter in letters:
            if letter.partition not in marked:
                marked[letter.partition] = self.done[letter.partition].copy()
            marked[letter.partition].add(letter.offset)
        return marked

    def check(self, letters: Sequence[DeadLetter]) -> None:
        for partition, done in self._with(letters).items():
            if len(done.text) > MAX_TEXT:
                raise TooManyGaps(
                    f"what is done of {partition.topic}-{partition.partition} has too many gaps to be remembered; replay or discard "
                    f"those that are open from offset {done.below} on, without a filter, and then the others"
                )

    async def mark(self, letters: Sequence[DeadLetter]) -> None:
        """Commit the marks, merged with those of other processes."""
        if not letters:
            return
        for partition, done in (await self._letters._done(self._topic)).items():
            self.done[partition].update(done)
        marked = self._with(letters)
        self.done.update(marked)
        await self._admin.alter_group_offsets(
            replayed_group(self._topic),
            {partition: OffsetAndMetadata(done.below, done.text) for partition, done in marked.items()},
        )


class _Sender:
    def __init__(
        self, producer: Producer, marking: _Marking, partitions: Mapping[str, int], rate: float | None
    ) -> None:
        self._producer = producer
        self._marking = marking
        self._partitions = partitions
        self._gap_s = 1 / rate if rate is not None else 0.0
        self._size = WINDOW if rate is None else min(WINDOW, max(int(rate), 1))
        self._next_s = 0.0
        self._window: list[DeadLetter] = []

    async def add(self, letter: DeadLetter) -> list[DeadLetter]:
        self._window.append(letter)
        return await self.flush() if len(self._window) >= self._size else []

    async def flush(self) -> list[DeadLetter]:
        """Send and mark the window; return it. If a send fails, only acknowledged letters are marked.

        Raises:
            TooManyGaps: nothing of it was sent.
        """
        window, self._window = self._window, []
        self._marking.check(window)
        sent: list[asyncio.Future[Any]] = []
        problem: BaseException | None = None
        for letter in window:
            await self._pace()
            try:
                sent.append(await self._producer.send(**_again(letter, self._partitions)))
            except BuswayError as refused:
                problem = refused
                break
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        acknowledged = [
            letter for letter, outcome in zip(window, outcomes, strict=False) if not isinstance(outcome, BaseException)
        ]
        await self._marking.mark(acknowledged)
        problem = next((failure for failure in outcomes if isinstance(failure, BaseException)), problem)
        if problem is not None:
            raise problem
        return acknowledged

    async def _pace(self) -> None:
        now_s = REAL_TIME.now_s()
        if self._gap_s and self._next_s > now_s:
            await REAL_TIME.sleep(self._next_s - now_s)
        self._next_s = max(self._next_s, now_s) + self._gap_s


def replayed_group(topic: str) -> str:
    return f"{topic}.replayed"


def _check(letter: DeadLetter) -> None:
    """Refuse ordinary topics; a topic named `….dlt` may hold records of other tools."""
    partition = letter.partition
    if not (letter.says_why or partition.topic.endswith(SUFFIX)):
        raise NotDeadLetters(
            f"{partition.topic} is no dead-letter topic: {partition.topic}-{partition.partition} offset {letter.offset} has no header that says why "
            "a handler failed on it; `busway dlq list` lists the dead-letter topics"
        )


def _why_not(letter: DeadLetter, partitions: Mapping[str, int]) -> str | None:
    if letter.original is None or not letter.group:
        return "its headers do not say which topic it came from and which group failed on it"
    if letter.original.topic not in partitions:
        return f"its topic {letter.original.topic} is not there any more"
    return None


def _again(letter: DeadLetter, partitions: Mapping[str, int]) -> dict[str, Any]:
    assert letter.original is not None
    partition = letter.original.partition
    return {
        "topic": letter.original.topic,
        "value": letter.value,
        "key": letter.key,
        "partition": partition if 0 <= partition < partitions[letter.original.topic] else None,
        "headers": [
            *letter.headers,
            (REPLAY_HEADER, letter.group.encode()),
            *([(REPLAY_HANDLER, letter.handler.encode())] if letter.handler else []),
            (REPLAY_OF, f"{letter.partition.topic}-{letter.partition.partition}@{letter.offset}".encode()),
        ],
    }
