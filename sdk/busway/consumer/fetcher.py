"""The loop that fetches what is assigned, ahead of the reader.

What lives here: positions from committed offsets or resets, one fetch under way for each broker, buffers. What does not: who
assigns (`coordinator`), what the bytes mean (`isolation`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from busway.cluster.client import ClusterClient
from busway.consumer.isolation import decode_next, take_chunk
from busway.consumer.subscription import Assigned
from busway.errors import BrokerError, BuswayError, ConnectionFailed, OffsetReset, RequestTimedOut
from busway.options import ConsumerOptions
from busway.types import OffsetAndTimestamp, Record, TopicPartition
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from busway_protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

NAMES_UNTIL: Final = 12
"""From Fetch 13 on topics go by id; names are used, so that a re-created topic is found again."""
CHUNKS_AHEAD: Final = 8
"""Batches that may wait undecoded in a partition; below it the partition is fetched again."""
_HURRY_MS: Final = 25
"""A fetch waits no longer for quiet partitions while a busy one of the same broker has enough for now: its turn comes soon."""
EARLIEST: Final = -2
LATEST: Final = -1
_RETRY_S: Final = 0.1
_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST}
_GONE: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE})


class Fetcher:
    """Keeps the buffers of assigned partitions filled.

    Args:
        committed: looks committed offsets up; partitions without one are left out.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        options: ConsumerOptions,
        committed: Callable[[Iterable[TopicPartition]], Awaitable[dict[TopicPartition, int]]],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._committed = committed
        self.assigned: dict[TopicPartition, Assigned] = {}
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._problem: BuswayError | None = None
        self._retry_at = 0.0

    def assign(
        self, partitions: Iterable[TopicPartition], *, held: Iterable[TopicPartition] = (), reset: str = "committed"
    ) -> None:
        """Make `partitions` the assignment; those kept keep their place, those `held` hand nothing out before `release`.

        Args:
            reset: where new ones begin; see `Assigned.reset`.
        """
        old = self.assigned
        self.assigned = {partition: old.get(partition) or Assigned(partition, reset) for partition in partitions}
        for partition in held:
            self.assigned[partition].held = True
        self._wake.set()
        self._arrived.set()

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out what was held back."""
        for partition in partitions:
            if partition in self.assigned:
                self.assigned[partition].held = False
        self._arrived.set()

    def wake(self) -> None:
        """Something changed: a seek, a resume."""
        self._wake.set()
        self._arrived.set()

    # The loop

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                self._wake.clear()
                wait = await self._step()
                try:
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            for task in self._fetches.values():
                task.cancel()
            if self._fetches:
                await asyncio.wait(self._fetches.values())

    async def _step(self) -> float | None:
        unplaced = [found for found in self.assigned.values() if found.position is None]
        try:
            if unplaced:
                await self._place(unplaced)
        except (ConnectionFailed, RequestTimedOut):
            return _RETRY_S
        except BrokerError as problem:
            if problem.retriable:
                return _RETRY_S
            self._fail(problem)
            return None
        except OffsetReset as problem:
            self._fail(problem)
            return None
        return await self._fetch_all()

    def _fail(self, problem: BuswayError) -> None:
        self._problem = problem
        self._arrived.set()

    async def _place(self, unplaced: list[Assigned]) -> None:
        """Find positions: committed offsets first, then the reset policy."""
        waiting = [found for found in unplaced if found.reset == "committed"]
        if waiting:
            offsets = await self._committed([found.partition for found in waiting])
            for found in waiting:
                offset = offsets.get(found.partition)
                if found.position is not None:
                    continue
                if offset is not None and offset >= 0:
                    found.seek(offset)
                elif self._options.auto_offset_reset == "none":
                    name = f"{found.partition.topic}-{found.partition.partition}"
                    raise OffsetReset(
                        f"{name} has no committed offset and auto_offset_reset is none; seek, or choose one"
                    )
                else:
                    found.reset = self._options.auto_offset_reset
        for policy, timestamp in _RESETS.items():
            chosen = [found for found in unplaced if found.position is None and found.reset == policy]
            if chosen:
                found_offsets = await self.look_up({found.partition: timestamp for found in chosen})
                for found in chosen:
                    answer = found_offsets.get(found.partition)
                    if found.position is None and answer is not None:
                        found.seek(answer.offset)

    async def _fetch_all(self) -> float | None:
        """Start a fetch on every broker that has something to fetch and none under way."""
        by_leader: dict[int, list[Assigned]] = {}
        full: set[int] = set()
        stale = False
        for found in self.assigned.values():
            if found.paused or found.position is None:
                continue
            leader = self._cluster.metadata.leader(*found.partition)
            if leader is None:
                stale = True
            elif len(found.chunks) >= CHUNKS_AHEAD:
                full.add(leader)
            elif leader not in self._fetches:
                by_leader.setdefault(leader, []).append(found)
        now = asyncio.get_running_loop().time()
        if now < self._retry_at:
            return self._retry_at - now
        for leader, chosen in by_leader.items():
            task = asyncio.get_running_loop().create_task(self._fetch(leader, chosen, hurry=leader in full))
            self._fetches[leader] = task
        if stale:
            with contextlib.suppress(BuswayError):
                await self._cluster.refresh()
            return _RETRY_S
        return None

    async def _fetch(self, leader: int, chosen: list[Assigned], *, hurry: bool) -> None:
        numbers = {found.partition: found.number for found in chosen}
        topics: dict[str, FetchTopic] = {}
        for found in chosen:
            name, number = found.partition
            topic = topics.setdefault(name, FetchTopic(topic=name, partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=number,
                    fetch_offset=found.fetch_position,
                    partition_max_bytes=self._options.max_partition_fetch_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=min(self._options.fetch_max_wait_ms, _HURRY_MS) if hurry else self._options.fetch_max_wait_ms,
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=self._options.fetch_max_bytes,
            isolation_level=int(self._options.isolation_level == "read_committed"),
            topics=list(topics.values()),
        )
        try:
            connection = await self._cluster.connection(leader, "fetch")
            answer: FetchResponse = await connection.request(request, at_most=NAMES_UNTIL)
            if answer.error_code:
                raise BrokerError(error_for(answer.error_code), "fetching")
            stale = False
            for topic_answer in answer.responses:
                for data in topic_answer.partitions:
                    partition = TopicPartition(topic_answer.topic, data.partition_index)
                    found_now = self.assigned.get(partition)
                    if found_now is not None and found_now.number == numbers.get(partition):
                        stale |= self._take(found_now, data)
            if stale:
                await self._cluster.refresh()
        except (ConnectionFailed, RequestTimedOut):
            self._retry_at = asyncio.get_running_loop().time() + _RETRY_S
            with contextlib.suppress(BuswayError):
                await self._cluster.refresh()
        except BuswayError as problem:
            self._fail(problem)
            self._retry_at = asyncio.get_running_loop().time() + _RETRY_S
        finally:
            self._fetches.pop(leader, None)
            self._wake.set()

    def _take(self, found: Assigned, data: PartitionData) -> bool:
        """Take one partition's answer in; answers whether metadata is stale."""
        code = error_for(data.error_code)
        if code is ErrorCode.NONE:
            found.high_watermark = data.high_watermark
            for aborted in data.aborted_transactions or ():
                found.aborted.append((aborted.first_offset, aborted.producer_id))
            found.aborted.sort()
            if data.records:
                assert isinstance(data.records, memoryview)
                found.fetch_position = take_chunk(found, data.records)
                self._arrived.set()
            return False
        if code in _GONE:
            if found.buffered:
                # What was fetched before comes first; the reader may not even get to the offset that is gone.
                self._retry_at = asyncio.get_running_loop().time() + _RETRY_S
                return False
            if self._options.auto_offset_reset == "none":
                name = f"{found.partition.topic}-{found.partition.partition}"
                self._fail(
                    OffsetReset(f"offset {found.fetch_position} of {name} is gone and auto_offset_reset is none")
                )
            found.position = None
            found.reset = self._options.auto_offset_reset
            found.forget()
            return False
        if not code.retriable:
            self._fail(BrokerError(code, f"fetching {found.partition.topic}-{found.partition.partition}"))
        self._retry_at = asyncio.get_running_loop().time() + _RETRY_S
        return True

    # Reading

    def ready(self, partitions: Iterable[TopicPartition] = (), limit: int = 500) -> dict[TopicPartition, list[Record]]:
        """Records that are here, at most `limit`; positions move past them.

        Raises:
            BuswayError: what went wrong in the background.
        """
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        wanted = set(partitions)
        result: dict[TopicPartition, list[Record]] = {}
        for partition, found in self.assigned.items():
            if found.paused or found.held or (wanted and partition not in wanted):
                continue
            try:
                taken = self._drain(found, limit)
            except BuswayError:
                if result:
                    break  # those come first: their positions have moved; the damage is still there for the next call
                raise
            if taken:
                result[partition] = taken
                limit -= len(taken)
                if limit <= 0:
                    break
        if result:
            # The next call begins with another partition, so that a busy one does not starve the rest.
            first = next(iter(result))
            self.assigned[first] = self.assigned.pop(first)
        return result

    def _drain(self, found: Assigned, limit: int) -> list[Record]:
        taken: list[Record] = []
        while len(taken) < limit and found.buffered:
            if not found.records:
                try:
                    decode_next(
                        found,
                        check_crcs=self._options.check_crcs,
                        read_committed=self._options.isolation_level == "read_committed",
                    )
                except BuswayError:
                    if taken:
                        break
                    raise
                if len(found.chunks) < CHUNKS_AHEAD:
                    self._wake.set()
                continue
            if len(found.records) <= limit - len(taken):
                taken.extend(found.records)
                found.records.clear()
            else:
                taken.extend(found.records.popleft() for _ in range(limit - len(taken)))
        if taken:
            found.position = taken[-1].offset + 1
            if not found.buffered:
                found.position = max(found.position, found.fetch_position)
        return taken

    async def arrival(self, timeout_s: float | None, partitions: Iterable[TopicPartition] = ()) -> None:
        """Return when something has arrived, or after the time; at once if a record for `partitions` is here already."""
        self._arrived.clear()
        wanted = set(partitions)
        if self._problem is not None or any(
            found.buffered and not found.paused and not found.held and (not wanted or partition in wanted)
            for partition, found in self.assigned.items()
        ):
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            pass

    # Looking up

    async def look_up(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offsets by timestamp (-1 the end, -2 the beginning); waits for a leader that is being elected.

        Raises:
            BrokerError: a partition cannot be looked up.
            ConnectionFailed, RequestTimedOut: after the request timeout.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.request_timeout_ms / 1000
        backoff = self._cluster.backoff()
        while True:
            try:
                return await self._look_up_once(wanted)
            except BuswayError as problem:
                permanent = isinstance(problem, BrokerError) and not problem.retriable
                if permanent or loop.time() >= deadline:
                    raise
            await asyncio.sleep(backoff.next())
            with contextlib.suppress(BuswayError):
                await self._cluster.refresh()

    async def _look_up_once(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        await self._cluster.ensure_topics({partition.topic for partition in wanted})
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in wanted.items():
            leader = self._cluster.metadata.leader(*partition)
            if leader is None:
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition.topic}-{partition.partition}")
            by_leader.setdefault(leader, {})[partition] = timestamp
        result: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for leader, chosen in by_leader.items():
            result.update(await self._look_up_on(leader, chosen))
        return result

    async def _look_up_on(
        self, leader: int, chosen: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        topics: dict[str, ListOffsetsTopic] = {}
        for partition, timestamp in chosen.items():
            topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
            topic.partitions.append(ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp))
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self._options.isolation_level == "read_committed"),
            topics=list(topics.values()),
        )
        answer: ListOffsetsResponse = await self._cluster.ask_node(leader, request)
        result: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for topic_answer in answer.topics:
            for found in topic_answer.partitions:
                code = error_for(found.error_code)
                if code is not ErrorCode.NONE:
                    raise BrokerError(code, f"{topic_answer.name}-{found.partition_index}")
                partition = TopicPartition(topic_answer.name, found.partition_index)
                result[partition] = OffsetAndTimestamp(found.offset, found.timestamp) if found.offset >= 0 else None
        return result
