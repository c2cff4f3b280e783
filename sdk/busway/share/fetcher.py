"""Requests to all leaders of a member's partitions, for records or acknowledgements.

Not here: the requests (`leader`), the assignment (`membership`).

Nothing is fetched ahead: a record's lock runs from its acquisition.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.errors import (
    AcknowledgementFailed,
    BrokerError,
    BuswayError,
    ConnectionFailed,
    DamagedData,
    NotRunning,
    RequestTimedOut,
)
from busway.net.clock import REAL_TIME
from busway.options import ShareConsumerOptions
from busway.share.held import HeldPartition
from busway.share.leader import Leader, is_elsewhere
from busway.share.membership import ShareMember
from busway.share.session import Id
from busway.types import Record, TopicPartition
from busway_protocol.errors import ErrorCode

logger: logging.Logger = logging.getLogger("busway.share")

_RETRY_S: Final = 0.1
_FULL_S: Final = 1.0


class ShareFetcher:
    def __init__(self, cluster: ClusterClient, options: ShareConsumerOptions, member: ShareMember) -> None:
        self._cluster = cluster
        self._options = options
        self._member = member
        self._leaders: dict[int, Leader] = {}
        self._names: dict[Id, TopicPartition] = {}
        self._demand = 0
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._problem: BuswayError | None = None
        self._closing = False

    @property
    def lock_s(self) -> float:
        """Shortest lock time of the leaders, seconds; 0 before the first response."""
        return min((leader.lock_s for leader in self._leaders.values() if leader.lock_s), default=0.0)

    def wake(self) -> None:
        self._wake.set()
        self._arrived.set()

    # The loop

    async def run(self) -> None:
        try:
            while True:
                self._wake.clear()
                wait = self._step()
                with contextlib.suppress(TimeoutError):
                    async with REAL_TIME.timeout(wait):
                        await self._wake.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            for leader in self._leaders.values():
                leader.end()

    def _step(self) -> float | None:
        if self._closing:
            return None
        now = REAL_TIME.now_s()
        wanted, unknown = self._wanted()
        if unknown:
            self._refresh_soon()
        for node in wanted:
            if node not in self._leaders:
                self._leaders[node] = self._leader(node)
        waits = [_RETRY_S] if unknown else []
        single = self._options.acquire_mode == "record_limit"
        fetching = single and any(leader.is_fetching for leader in self._leaders.values())
        for node, leader in list(self._leaders.items()):
            if not leader.is_idle:
                continue
            if leader.retry_at > now:
                waits.append(leader.retry_at - now)
                continue
            partitions = wanted.get(node, {})
            if leader.is_urgent(partitions) or (leader.waiting and not (self._demand and partitions)):
                leader.task = self._start(self._ask(leader, leader.acknowledge()))
            elif self._demand and not fetching and (partitions or leader.session.partitions):
                fetching, leader.is_fetching = single, True
                leader.task = self._start(self._ask(leader, leader.fetch(partitions, self._demand)))
                if single:  # start the next call with another leader
                    self._leaders[node] = self._leaders.pop(node)
            elif leader.waiting:
                leader.task = self._start(self._ask(leader, leader.acknowledge()))
        return min(waits, default=None)

    def _leader(self, node: int) -> Leader:
        return Leader(node, self._cluster, self._options, self._member.member_id, self._names.get)

    def _wanted(self) -> tuple[dict[int, dict[Id, TopicPartition]], bool]:
        metadata = self._cluster.metadata
        names = {topic.topic_id: topic.name for topic in metadata.topics.values()}
        wanted: dict[int, dict[Id, TopicPartition]] = {}
        unknown = False
        for key in sorted(self._member.assigned):
            topic_id, partition_index = key
            name = names.get(topic_id)
            leader = None if name is None else metadata.leader(name, partition_index)
            if name is None or leader is None:
                unknown = True
                continue
            partition = TopicPartition(name, partition_index)
            self._names[key] = partition
            wanted.setdefault(leader, {})[key] = partition
        return wanted, unknown

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._wake.set()

    async def _ask(self, leader: Leader, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (ConnectionFailed, RequestTimedOut) as problem:
            logger.warning("broker %d cannot be reached, what it gave is released: %s", leader.node, problem)
            self._put_off(leader, _RETRY_S)
        except BrokerError as problem:
            full = problem.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
            if is_elsewhere(problem):
                logger.info("share group %s: %s", self._member.group, problem)
            else:
                self._problem = problem
            self._put_off(leader, _FULL_S if full else _RETRY_S)
        except NotRunning:
            return
        except BuswayError as problem:
            self._problem = problem
            self._put_off(leader, _RETRY_S)
        if leader.acquired:
            self._demand = 0
        if leader.acquired or self._problem is not None:
            self._arrived.set()

    def _put_off(self, leader: Leader, wait_s: float) -> None:
        leader.retry_at = REAL_TIME.now_s() + wait_s
        self._refresh_soon()

    def _refresh_soon(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._start(self._refresh())

    async def _refresh(self) -> None:
        await REAL_TIME.sleep(_RETRY_S)
        with contextlib.suppress(BuswayError):
            await self._cluster.refresh()

    # Reading

    def ready(self, limit: int) -> dict[TopicPartition, list[Record]]:
        """Return at most `limit` records that are here; raise an error of the background, or `DamagedData`."""
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        now = REAL_TIME.now_s()
        result: dict[TopicPartition, list[Record]] = {}
        for node, leader in list(self._leaders.items()):
            while limit > 0 and (ready := leader.take(limit, now)) is not None:
                partition, taken = ready
                if taken.records:
                    result.setdefault(partition, []).extend(taken.records)
                    limit -= len(taken.records)
                    self._leaders[node] = self._leaders.pop(node)  # start the next call with another leader
                if taken.problem is not None:
                    logger.error("%s", taken.problem)
                    self._problem = taken.problem
                    limit = 0
        if any(leader.waiting for leader in self._leaders.values()):
            self._wake.set()
        if not result and isinstance(self._problem, DamagedData):
            problem, self._problem = self._problem, None
            raise problem
        return result

    async def arrival(self, timeout_s: float, limit: int) -> None:
        self._arrived.clear()
        self._demand = limit
        self._wake.set()
        try:
            async with REAL_TIME.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            pass
        finally:
            self._demand = 0

    # Acknowledgements

    def acknowledge(self, partition: TopicPartition, offset: int, kind: int) -> "asyncio.Future[None]":
        """Acknowledge a record; the future is done when its leader has responded.

        Raise `AcknowledgementFailed` if it is not held.
        """
        held = self._find(partition, offset)
        if held is None:
            raise AcknowledgementFailed(
                f"{partition.topic}-{partition.partition} offset {offset} is not held: it was acknowledged already, "
                "its lock has ended, or its leader has moved"
            )
        result = held.acknowledge(offset, kind)
        self._wake.set()
        return result

    def _find(self, partition: TopicPartition, offset: int) -> HeldPartition | None:
        for leader in self._leaders.values():
            if (held := leader.held(partition, offset)) is not None:
                return held
        return None

    def acknowledge_all(self, kind: int) -> None:
        for leader in self._leaders.values():
            for held, offsets in leader.everything_held():
                for offset in offsets:
                    held.acknowledge(offset, kind)
        self._wake.set()

    def unreported(self) -> "list[asyncio.Future[None]]":
        return [future for leader in self._leaders.values() for future in leader.futures()]

    async def close(self) -> None:
        self._closing = True
        self._demand = 0
        if busy := [leader.task for leader in self._leaders.values() if leader.task is not None]:
            await asyncio.wait(busy)
        open_ones = [leader for leader in self._leaders.values() if leader.session.is_open]
        ended = await asyncio.gather(*(leader.close() for leader in open_ones), return_exceptions=True)
        for problem in ended:
            if isinstance(problem, BuswayError):
                logger.warning("a share session was not ended in order, its records wait for their locks: %s", problem)
            elif problem is not None:
                raise problem
