"""A member's share fetch: waits for and acquires records (KIP-932).

Here: when there is enough, reading, acquiring.
Not here: acknowledgements, the response (`handlers.share_fetch`). A partition's state is read and its records acquired
without an await; after a wait for the disk it is read again.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from busway_bus.log.file_slice import ColdPages, FileSlice, Warming
from busway_bus.scheduling.off_loop import off_loop
from busway_bus.share import fetched
from busway_bus.share.acquisition import AcquireOptions, acquire, wanted_up_to
from busway_bus.share.delayed_share_fetch import Peer, Waiting
from busway_bus.share.in_flight import Acquired
from busway_bus.share.manager import SharePartitions
from busway_bus.share.partition import SharePartition
from busway_bus.share.sessions import TopicIdPartition
from busway_protocol.errors import KafkaError, ProtocolError

LOOKED_AT_TOGETHER: Final = 200
"""Share partitions examined, or batches read, before yielding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


@dataclass(slots=True)
class ShareFetchResult:
    """A member's result from one partition.

    Attributes:
        share: None without records.
    """

    error: KafkaError | None = None
    records: FileSlice | None = None
    acquired: list[Acquired] = field(default_factory=list)
    share: SharePartition | None = None

    def take_back(self, member_id: str) -> None:
        """Undo the acquisition of an unsent response."""
        if self.share is not None:
            self.share.take_back(member_id, self.acquired)


class ShareFetch:
    """One fetch. `gone` is raised when the client disconnects meanwhile."""

    def __init__(
        self,
        shares: SharePartitions,
        group_id: str,
        options: AcquireOptions,
        bounds: Bounds,
        *,
        peer: Peer,
        gone: type[Exception],
    ) -> None:
        self._shares = shares
        self._group_id = group_id
        self._options = options
        self._bounds = bounds
        self._peer = peer
        self._gone = gone
        self._limits = shares.limits(group_id)
        self._wanted: dict[TopicIdPartition, SharePartition] = {}
        self._got: dict[TopicIdPartition, ShareFetchResult] = {}
        self._headers = 0

    async def run(self, partitions: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, ShareFetchResult]:
        for count, partition in enumerate(partitions, 1):
            if count % LOOKED_AT_TOGETHER == 0:
                await asyncio.sleep(0)
                if self._peer.gone:
                    raise self._gone
            try:
                self._wanted[partition] = self._shares.find(self._group_id, partition)
            except KafkaError as problem:
                self._got[partition] = ShareFetchResult(problem)
        if not self._wanted or self._bounds.max_bytes <= 0 or self._options.max_records <= 0:
            return self._got
        until_s = self._shares.machine.monotonic_s() + max(self._bounds.max_wait_ms, 0) / 1000
        with Waiting(self._peer, self._may_have) as waiting:
            waiting.on(self._wanted.values())
            while True:
                left_s = until_s - self._shares.machine.monotonic_s()
                if await self._attempt(last=left_s <= 0):
                    return self._got
                await waiting.wait(max(left_s, 0))

    # Enough

    def _may_have(self, share: SharePartition) -> bool:
        if share.problem is not None:
            return True
        state = share.state
        if state is None or not state.can_acquire(self._limits):
            return False
        return state.next_fetch_offset < share.readable(self._limits)

    async def _attempt(self, *, last: bool) -> bool:
        """Read if there is enough or at `last`; return whether finished."""
        self._limits = self._shares.limits(self._group_id)
        ready: list[TopicIdPartition] = []
        size = 0
        for count, partition in enumerate(tuple(self._wanted), 1):
            try:
                size += self._look(partition, ready)
            except (KafkaError, ProtocolError, OSError) as problem:
                self._refuse(partition, problem)
            if count % LOOKED_AT_TOGETHER == 0:
                await asyncio.sleep(0)
        if self._wanted and not last and (not ready or size < self._bounds.min_bytes):
            return False
        for warming in self._read(ready):
            if warming is None:
                await asyncio.sleep(0)
            else:
                with contextlib.suppress(ProtocolError, OSError):  # the read below reports it
                    await off_loop(warming)
        return True

    def _look(self, partition: TopicIdPartition, ready: list[TopicIdPartition]) -> int:
        share = self._wanted[partition]
        share.check()
        state = share.state
        if state is None or not state.can_acquire(self._limits):
            return 0
        offset, end = state.next_fetch_offset, share.readable(self._limits)
        if offset == state.end and not self._shares.has_room(self._group_id):
            return 0
        ready.append(partition)
        if offset >= end:
            return 0
        if self._bounds.min_bytes <= 1:
            return 1
        extent = share.partition.log.extent(offset, up_to=end)
        return 0 if extent is None else extent.end - extent.position

    def _refuse(self, partition: TopicIdPartition, problem: Exception) -> None:
        share = self._wanted.pop(partition)
        if not isinstance(problem, KafkaError):
            problem = KafkaError(share.partition.damaged(problem))
        self._got[partition] = ShareFetchResult(problem)

    # Reading

    def _read(self, ready: list[TopicIdPartition]) -> Iterator[Warming | None]:
        """Acquire available records, with an equal share of bytes per partition.

        Bytes that one leaves go to the next. Yields None to let others run, a Warming for a read to await.
        """
        left, records = self._bounds.max_bytes, self._options.max_records
        looked_at = 0
        for count, partition in enumerate(ready, 1):
            part = max(left // (len(ready) - count + 1), 1)
            min_one = left == self._bounds.max_bytes
            options = replace(self._options, max_records=records)
            self._headers = 0
            try:
                try:
                    got = self._give(partition, options, part, min_one=min_one, wait=False)
                except ColdPages as cold:
                    yield cold.warm
                    got = self._give(partition, options, part, min_one=min_one, wait=True)
            except (KafkaError, ProtocolError, OSError) as problem:
                self._refuse(partition, problem)
                continue
            self._got[partition] = got
            left -= 0 if got.records is None else len(got.records)
            records -= sum(batch.last - batch.first + 1 for batch in got.acquired)
            looked_at += 1 + self._headers
            if looked_at >= LOOKED_AT_TOGETHER:
                looked_at = 0
                yield None

    def _give(
        self, partition: TopicIdPartition, options: AcquireOptions, max_bytes: int, *, min_one: bool, wait: bool
    ) -> ShareFetchResult:
        """Acquire the available records of a partition.

        Raises:
            KafkaError, ProtocolError, OSError: it cannot be read.
            ColdPages: only without `wait`.
        """
        if self._peer.gone:
            raise self._gone  # its records would stay locked until they expire
        share = self._wanted[partition]
        share.check()
        state, limits = share.state, self._limits
        if state is None or options.max_records <= 0 or max_bytes <= 0 or not state.can_acquire(limits):
            return ShareFetchResult()
        offset, end = state.next_fetch_offset, share.readable(limits)
        if offset >= end:
            return ShareFetchResult()
        read = fetched.read(
            share.partition.log,
            offset,
            wanted_up_to=wanted_up_to(state, offset, min(options.max_records, limits.in_flight)),
            max_bytes=max_bytes,
            up_to=end,
            committed=limits.committed,
            min_one=min_one,
            wait=wait,
        )
        if read is None:
            return ShareFetchResult()
        self._headers = len(read.headers)
        acquired = acquire(
            state,
            options,
            read.spans,
            offset=offset,
            aborted=read.aborted,
            limits=limits,
            now_ms=self._shares.now_ms(),
        )
        share.acquired()
        return ShareFetchResult(None, read.of(acquired), acquired, share) if acquired else ShareFetchResult()
