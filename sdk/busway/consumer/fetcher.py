"""The loop that fetches assigned partitions ahead of the reader.

Here: one fetch in flight per broker, the choice of the replica (KIP-392), buffers, retries.
Not here: requests (`fetch_exchange`), initial positions (`position_resolver`), decoding (`isolation`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final
from uuid import UUID

from busway.cluster.client import ClusterClient
from busway.consumer.fetch_exchange import FetchExchange
from busway.consumer.fetch_plan import CHUNKS_AHEAD, plan
from busway.consumer.isolation import decode_next, take_aborted, take_chunk
from busway.consumer.offset_lookup import OffsetLookup
from busway.consumer.position_resolver import PositionResolver
from busway.consumer.subscription import FetchPosition
from busway.errors import AuthenticationFailed, BrokerError, BuswayError, ConnectionFailed, OffsetReset, RequestTimedOut
from busway.net.clock import REAL_TIME
from busway.net.retry import is_passing
from busway.options import ConsumerOptions
from busway.types import Record, TopicPartition
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.fetch import NodeEndpoint, PartitionData
from busway_protocol.types import ZERO_UUID

logger: logging.Logger = logging.getLogger("busway.consumer")

_OTHER_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
_SESSION: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_RETRY_S: Final = 0.1
"""Delay before a failed partition is tried again; others continue."""


_Lookup = Callable[[list[FetchPosition]], Awaitable[dict[FetchPosition, BuswayError]]]


class Fetcher:
    def __init__(
        self,
        cluster: ClusterClient,
        options: ConsumerOptions,
        committed: Callable[[Iterable[TopicPartition]], Awaitable[dict[TopicPartition, int]]],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self.look_ups: OffsetLookup = OffsetLookup(cluster, options)
        self._placing = PositionResolver(self.look_ups, options, committed)
        self.assigned: dict[TopicPartition, FetchPosition] = {}
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._exchange = FetchExchange(cluster, options)
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._silent: set[int] = set()
        """Brokers whose last fetch failed; only changes are logged."""
        self._unreachable: set[int] = set()
        """Brokers that did not respond, left alone until the metadata was refreshed: their partitions may have moved."""
        self._refused: set[int] = set()
        """Brokers that refused the session of the last fetch."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._problem: BuswayError | None = None

    def assign(
        self, partitions: Iterable[TopicPartition], *, held: Iterable[TopicPartition] = (), reset: str = "committed"
    ) -> None:
        """Replace the assignment; kept partitions keep their position. With `held`, hand nothing out before `release`."""
        old = self.assigned
        self.assigned = {partition: old.get(partition) or FetchPosition(partition, reset) for partition in partitions}
        for partition in held:
            self.assigned[partition].held = True
        self._wake.set()
        self._arrived.set()

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self.assigned:
                self.assigned[partition].held = False
        self._arrived.set()

    def wake(self) -> None:
        self._wake.set()
        self._arrived.set()

    # The loop

    async def run(self) -> None:
        try:
            while True:
                self._wake.clear()
                wait = self._step()
                try:
                    async with REAL_TIME.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _step(self) -> float | None:
        """Start every request that is due, without waiting, so that a slow broker blocks no other.

        Return the seconds until the next step; None until woken.
        """
        metadata = self._cluster.metadata
        now = REAL_TIME.now_s()
        requests = plan(
            self.assigned.values(),
            now,
            lambda assigned: metadata.leader(*assigned.partition),
            self._replica_of,
            self._fetches.keys() | self._unreachable,
        )
        if requests.uncommitted:
            self._place(requests.uncommitted, self._placing.by_commits)
        for leader, chosen in requests.unplaced.items():
            self._place(chosen, partial(self._placing.by_policy, leader))
        for node, wanting in requests.wanting.items():
            chosen = [assigned for assigned in wanting if self._is_same_topic(assigned)]
            if not chosen:
                continue
            for assigned in chosen:  # a former leader may be behind, and would send the reader back
                assigned.leader_epoch = metadata.leader_epoch(*assigned.partition)
            self._fetches[node] = self._start(self._fetch(node, chosen, hurry=node in requests.full))
        if requests.leaderless:
            self._put_off(requests.leaderless)
            return _RETRY_S
        return requests.wait_s

    def _replica_of(self, assigned: FetchPosition, leader: int) -> int:
        replica = assigned.replica
        if replica is None or replica not in self._cluster.metadata.brokers or assigned.is_replica_due():
            assigned.replica = None
            return leader
        return replica

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _fail(self, problem: BuswayError) -> None:
        self._problem = problem
        self._arrived.set()

    def _put_off(self, partitions: Iterable[FetchPosition]) -> None:
        later = REAL_TIME.now_s() + _RETRY_S
        for assigned in partitions:
            assigned.retry_at = later
            assigned.avoid_replica()
        self._look_up()

    def _look_up(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._start(self._refresh())

    async def _refresh(self) -> None:
        try:
            with contextlib.suppress(BuswayError):
                await self._cluster.refresh()
        finally:
            self._unreachable.clear()
            self._wake.set()

    def _place(self, chosen: list[FetchPosition], look: _Lookup) -> None:
        for assigned in chosen:
            assigned.placing = True
        self._start(self._place_now(chosen, look))

    async def _place_now(self, chosen: list[FetchPosition], look: _Lookup) -> None:
        try:
            problems = await look(chosen)
        except BuswayError as failed:
            problems = dict.fromkeys(chosen, failed)
        finally:
            for assigned in chosen:
                assigned.placing = False
        for problem in problems.values():
            if not is_passing(problem):
                self._fail(problem)
        if problems:
            self._put_off(problems)
        self._wake.set()

    async def _fetch(self, node: int, chosen: list[FetchPosition], *, hurry: bool) -> None:
        try:
            arrived, endpoints = await self._exchange.fetch(node, chosen, self._current, hurry=hurry)
            for assigned, data in arrived:
                self._take(assigned, data, endpoints)
            self._refused.discard(node)
            if node in self._silent:
                self._silent.discard(node)
                logger.info("broker %d answers again", node)
        except AuthenticationFailed as problem:  # the next poll raises it, as in Kafka
            self._fail(problem)
            self._put_off(chosen)
        except (ConnectionFailed, RequestTimedOut) as problem:
            if node not in self._silent:
                self._silent.add(node)
                logger.warning("broker %d cannot be read from, trying until it can: %s", node, problem)
            self._unreachable.add(node)
            self._put_off(chosen)
        except BuswayError as problem:
            is_session = isinstance(problem, BrokerError) and problem.code in _SESSION
            if is_session and node not in self._refused:  # the next request begins another, at once
                self._refused.add(node)
                return
            if not is_passing(problem):
                self._fail(problem)
            self._put_off(chosen)
        finally:
            self._fetches.pop(node, None)
            self._wake.set()

    def _current(self, partition: TopicPartition) -> FetchPosition | None:
        return self.assigned.get(partition)

    async def close(self) -> None:
        """Close the fetch sessions, after `run` has ended."""
        await self._exchange.close()

    def _take(self, assigned: FetchPosition, data: PartitionData, endpoints: list[NodeEndpoint]) -> None:
        code = error_for(data.error_code)
        if assigned.replica is not None and (code is not ErrorCode.NONE or data.diverging_epoch.epoch >= 0):
            self._put_off([assigned])  # a follower may be behind, or be no replica any more: the leader decides
            return
        if code is ErrorCode.NONE and data.diverging_epoch.epoch >= 0:
            assigned.placing = True
            self._start(self._diverged(assigned, assigned.number, data.diverging_epoch.end_offset))
            return
        if code is ErrorCode.NONE:
            assigned.high_watermark = data.high_watermark
            if data.preferred_read_replica >= 0:
                assigned.prefer(data.preferred_read_replica, self._options.metadata_max_age_ms / 1000)
            if data.records:
                assert isinstance(data.records, memoryview)
                assigned.fetch_position = take_chunk(assigned, data.records)
                take_aborted(assigned, data.aborted_transactions or ())
                self._arrived.set()
            return
        if self._cluster.metadata.move_leader(*assigned.partition, data.current_leader, endpoints):
            self._look_up()  # while the next fetch asks the leader that this response names
            return
        if code in _OTHER_TOPIC:
            self._put_off([assigned])  # the metadata refresh detects a recreated topic
            return
        if code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            if not code.retriable:
                self._fail(BrokerError(code, f"fetching {assigned.name}"))
            self._put_off([assigned])
            return
        self._apply_reset_policy(assigned)

    def _is_same_topic(self, assigned: FetchPosition) -> bool:
        """Report whether the topic is the same; reset the position if it was recreated."""
        known = self.topic_id(assigned.partition)
        if assigned.topic_id is None or known is None:
            assigned.topic_id = known
        if assigned.topic_id == known:
            return True
        if not assigned.buffered:
            logger.warning(
                "topic %s was deleted and created again; %s, read up to offset %d, is begun as auto_offset_reset=%s says",
                assigned.partition.topic,
                assigned.name,
                assigned.fetch_position - 1,
                self._options.auto_offset_reset,
            )
        self._apply_reset_policy(assigned)
        self._wake.set()
        return False

    def _apply_reset_policy(self, assigned: FetchPosition) -> None:
        if assigned.buffered:
            # Hand out what is buffered first: the reader may never reach the missing offset.
            self._put_off([assigned])
            return
        if self._options.auto_offset_reset == "none":
            self._fail(
                OffsetReset(
                    f"offset {assigned.fetch_position} of {assigned.name} is gone and auto_offset_reset is none"
                )
            )
        assigned.position, assigned.gone = None, assigned.fetch_position
        assigned.reset = self._options.auto_offset_reset
        assigned.forget()

    def topic_id(self, partition: TopicPartition) -> UUID | None:
        topic = self._cluster.metadata.topics.get(partition.topic)
        return None if topic is None or topic.topic_id == ZERO_UUID else topic.topic_id

    def read_topic_id(self, partition: TopicPartition) -> UUID | None:
        assigned = self.assigned.get(partition)
        return self.topic_id(partition) if assigned is None or assigned.topic_id is None else assigned.topic_id

    def is_replaced(self, partition: TopicPartition, topic_id: UUID | None) -> bool:
        return None not in {topic_id, known := self.topic_id(partition)} and topic_id != known

    async def _diverged(self, assigned: FetchPosition, generation: int, end_offset: int) -> None:
        try:
            await self._cluster.refresh()
        except BuswayError:
            self._put_off([assigned])
            return
        finally:
            assigned.placing = False
            self._wake.set()
        if assigned.number != generation:  # outdated after a seek
            return
        if self.topic_id(assigned.partition) == assigned.topic_id:
            self._go_back(assigned, end_offset)
        else:
            self._apply_reset_policy(assigned)

    def _go_back(self, assigned: FetchPosition, end_offset: int) -> None:
        """Continue where the log diverges from what was fetched: its lost end was overwritten (KIP-320)."""
        position = assigned.fetch_position if assigned.position is None else assigned.position
        gone = f"{assigned.name} has lost what was behind offset {end_offset - 1}, and was read up to {position - 1}"
        if position > end_offset and self._options.auto_offset_reset == "none":
            assigned.forget()
            assigned.position = None
            self._fail(
                OffsetReset(f"{gone}; auto_offset_reset is none: seek to {end_offset} to read what took its place")
            )
            return
        logger.warning("%s; reading continues at offset %d", gone, min(position, end_offset))
        assigned.reset_to(min(position, end_offset))

    # Reading

    def ready(self, partitions: Iterable[TopicPartition] = (), limit: int = 500) -> dict[TopicPartition, list[Record]]:
        """Return up to `limit` buffered records and move the positions past them.

        Raise a `BuswayError` of the background, or of decoding.
        """
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        wanted = set(partitions)
        result: dict[TopicPartition, list[Record]] = {}
        for partition, assigned in self.assigned.items():
            if assigned.paused or assigned.held or (wanted and partition not in wanted):
                continue
            try:
                taken = self._drain(assigned, limit)
            except BuswayError:
                if result:
                    break  # their positions have moved; the next call raises the error
                raise
            if taken:
                result[partition] = taken
                limit -= len(taken)
                if limit <= 0:
                    break
        if result:
            # Start the next call with another partition, so that a busy one does not starve the rest.
            first = next(iter(result))
            self.assigned[first] = self.assigned.pop(first)
        return result

    def _drain(self, assigned: FetchPosition, limit: int) -> list[Record]:
        taken: list[Record] = []
        while len(taken) < limit and assigned.buffered:
            if not assigned.records:
                try:
                    decode_next(
                        assigned,
                        check_crcs=self._options.check_crcs,
                        read_committed=self._options.isolation_level == "read_committed",
                    )
                except BuswayError:
                    if taken:
                        break
                    if assigned.position is not None:
                        assigned.fetch_position = assigned.position  # fetch again: the damage may be repaired by then
                        assigned.forget()
                        self._wake.set()
                    raise
                if len(assigned.chunks) < CHUNKS_AHEAD:
                    self._wake.set()
                continue
            if len(assigned.records) <= limit - len(taken):
                taken.extend(assigned.records)
                assigned.records.clear()
            else:
                taken.extend(assigned.records.popleft() for _ in range(limit - len(taken)))
        if taken:
            assigned.position = taken[-1].offset + 1
            if not assigned.buffered:
                assigned.position = max(assigned.position, assigned.fetch_position)
        return taken

    async def arrival(self, timeout_s: float | None, partitions: Iterable[TopicPartition] = ()) -> None:
        self._arrived.clear()
        wanted = set(partitions)
        if self._problem is not None or any(
            assigned.buffered and not assigned.paused and not assigned.held and (not wanted or partition in wanted)
            for partition, assigned in self.assigned.items()
        ):
            return
        try:
            async with REAL_TIME.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            pass
