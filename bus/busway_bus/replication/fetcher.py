"""Copies partitions from one leader, with one fetch at a time.

Here: the loop of fetch, append and sync; pauses after errors.
Not here: decisions (`following`), requests (`fetcher_session`), the logs (`follower_logs`), which leader (`replicator`).

The next fetch is sent when everything appended is on disk, so the leader counts flushed records only. One round of
syncs covers all partitions of a response. A partition that gets this leader does not wait for the end of a long poll:
the next fetch is sent on a second connection, in a new session.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from busway_bus.kernel.node_channels import BrokerChannels
from busway_bus.replication.fetcher_session import FetcherSession, FetchLimits, Key
from busway_bus.replication.follower_logs import FollowerLogs, view
from busway_bus.replication.following import (
    Append,
    Ignore,
    LookUp,
    Restart,
    Retry,
    Truncate,
    Wait,
    out_of_range,
    step,
)
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import NO_EPOCH, Role
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from busway_protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

logger = logging.getLogger("busway.replication")

PURPOSE: Final = "replica-fetcher"
LATEST, EARLIEST = -1, -2
_LOGGED_FAILURE: Final = 3
"""Which of consecutive failures is logged."""
_EXPECTED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a leader whose metadata is behind; they pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """Settings of all fetchers.

    Attributes:
        backoff_s: pause after an error, in s (replica.fetch.backoff.ms).
        timeout_ms: of a request (replica.socket.timeout.ms).
    """

    limits: FetchLimits = field(default_factory=FetchLimits)
    backoff_s: float = 1.0
    timeout_ms: int = 30_000


@dataclass(slots=True, eq=False)
class _Followed:
    """A partition; `epoch` is the leader epoch of its last record."""

    partition: Partition
    epoch: int = NO_EPOCH
    paused: asyncio.TimerHandle | None = None

    @property
    def key(self) -> Key:
        return self.partition.topic, self.partition.index


class Fetcher:
    """Fetches the partitions that one broker leads and this node follows.

    Args:
        broker_epoch: of this process; -1 while it is not registered, when nothing is fetched.
    """

    def __init__(
        self,
        leader: int,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        channels: BrokerChannels,
        logs: FollowerLogs,
        settings: FetcherSettings,
    ) -> None:
        self.leader = leader
        self._node_id, self._broker_epoch = node_id, broker_epoch
        self._channels, self._logs, self._settings = channels, logs, settings
        self._followed: dict[Key, _Followed] = {}
        self._names: dict[UUID, str] = {}
        self._due: dict[Key, None] = {}
        """Partitions to be synced and then fetched from their new end."""
        self._session = FetcherSession(settings.limits)
        self._moved = False
        """Whether a partition with a new leader epoch is due."""
        self._asking = False
        """Whether the loop waits for an answer that `_wake` may abandon."""
        self._waits: asyncio.Future[None] | None = None
        """Pending while the loop waits for the end of a pause, or partitions."""
        self._closing = False
        self._connection, self._busy_until_s = 0, 0.0
        """Which of the two connections is used; until when the other may have an abandoned long poll."""
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def put(self, partition: Partition) -> None:
        """Follow a partition, or its leader's new epoch."""
        key = partition.topic, partition.index
        followed = self._followed.get(key)
        if followed is None or followed.partition is not partition:
            self.remove(key)
            followed = self._followed[key] = _Followed(partition)
            self._names[partition.topic_id] = partition.topic
        if followed.epoch == partition.state.leader_epoch:
            return
        followed.epoch = partition.state.leader_epoch
        self._moved = True
        self._resume(followed)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def remove(self, key: Key) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None and followed.paused is not None:
            followed.paused.cancel()
        self._due.pop(key, None)
        self._session.remove(key)

    async def close(self) -> None:
        for key in tuple(self._followed):
            self.remove(key)
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # The loop

    async def _run(self) -> None:
        while not self._closing:  # a channel that fails as it is cancelled hides that
            try:
                await self._round()
            except KafkaError as problem:
                self._log_problem(str(problem))
                self._session.failed()
                await self._back_off()
            except Exception:  # a mistake in one round must not end the replication of all partitions of this leader
                logger.exception("fetching from broker %d failed on a mistake of this broker", self.leader)
                self._session.failed()
                await self._back_off()

    async def _round(self) -> None:
        await self._sync()
        if self._session.is_idle:
            if not self._due:
                await self._wait()
            return
        broker_epoch = self._broker_epoch()
        if broker_epoch < 0:
            await self._back_off()
            return
        response = await self._ask(self._session.request(replica_id=self._node_id, broker_epoch=broker_epoch))
        if response is None:
            self._session.failed()
            return
        if not self._session.answered(response):
            if response.error_code not in {
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            }:
                raise KafkaError(ErrorCode(response.error_code))
            return
        self._failures = 0
        await self._take(response)

    async def _ask(self, request: FetchRequest) -> FetchResponse | None:
        """Send a fetch; return its response, or None if a partition moved to this leader meanwhile."""
        assert self._task is not None, "it runs in its task"
        self._moved, self._asking = False, True
        try:
            response: FetchResponse = await self._channels.send(
                self.leader,
                request,
                purpose=f"{PURPOSE}-{self._connection}",
                timeout_ms=self._settings.timeout_ms + request.max_wait_ms,
            )
        except asyncio.CancelledError:
            if self._asking or self._closing or self._task.cancelling() > 1:
                raise
        else:
            return response
        finally:
            if not self._asking:
                self._task.uncancel()  # that of `_wake`
            self._asking = False
        self._connection = 1 - self._connection
        self._busy_until_s = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        return None

    async def _back_off(self) -> None:
        """Pause; a partition that moves to this leader ends the pause."""
        if self._closing:
            return
        self._moved = False
        timer = asyncio.get_running_loop().call_later(self._settings.backoff_s, self._wake)
        try:
            await self._wait()
        finally:
            timer.cancel()

    async def _wait(self) -> None:
        self._waits = asyncio.get_running_loop().create_future()
        try:
            await self._waits
        finally:
            self._waits = None

    def _wake(self) -> None:
        if self._asking and self._task is not None:
            self._asking = False
            self._task.cancel()  # without a task or a future of its own for each fetch
        elif self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    async def _sync(self) -> None:
        """Sync the partitions that are due, then fetch them from their ends."""
        while self._due:
            due = [self._followed[key] for key in self._due]
            for followed in due:
                if followed.partition.unfinished is not None and self._is_due(followed):  # perhaps of an earlier leader
                    await self._cut(followed, followed.partition.finish_cut())
            await self._logs.synced([followed.partition for followed in due if self._is_due(followed)])
            for followed in due:
                if self._followed.get(followed.key) is followed:
                    self._due.pop(followed.key, None)
                    if followed.paused is None:
                        self._fetch(followed)

    def _is_due(self, followed: _Followed) -> bool:
        return self._followed.get(followed.key) is followed and followed.key in self._due

    def _fetch(self, followed: _Followed) -> None:
        partition = followed.partition
        log = partition.log
        wanted = FetchPartition(
            partition=partition.index,
            current_leader_epoch=partition.state.leader_epoch,
            fetch_offset=log.end_offset,
            last_fetched_epoch=log.epochs.latest,
            log_start_offset=log.start_offset,
            partition_max_bytes=self._settings.limits.partition_max_bytes,
        )
        self._session.put(followed.key, partition.topic_id, wanted)

    def _resume(self, followed: _Followed) -> None:
        if followed.paused is not None:
            followed.paused.cancel()
            followed.paused = None
        self._due[followed.key] = None
        if self._session.is_idle or (self._moved and asyncio.get_running_loop().time() >= self._busy_until_s):
            self._wake()

    def _pause(self, followed: _Followed) -> None:
        self._session.remove(followed.key)
        self._due.pop(followed.key, None)
        followed.paused = asyncio.get_running_loop().call_later(self._settings.backoff_s, self._resume, followed)

    # A response

    async def _take(self, response: FetchResponse) -> None:
        """Carry out the answers, with a turn of the event loop between two that take long."""
        long = False
        for topic in response.responses:
            name = topic.topic or self._names.get(topic.topic_id, "")
            for answer in topic.partitions:
                if long:
                    await asyncio.sleep(0)
                key = name, answer.partition_index
                followed, request = self._followed.get(key), self._session.requested(key)
                if followed is None or request is None or followed.partition.state.role is not Role.FOLLOWER:
                    continue
                long = await self._carry_out(followed, request, answer)

    async def _carry_out(self, followed: _Followed, request: FetchPartition, answer: PartitionData) -> bool:
        """Do what the answer asks for; return whether it took long."""
        partition = followed.partition
        match step(view(partition), request, answer):
            case Append() as append:
                if (offset := self._logs.must_restart(partition, append)) is not None:
                    await self._cut(followed, self._logs.restart(partition, offset))
                    return True
                return self._append(followed, append)
            case Truncate(offset):
                await self._cut(followed, self._logs.truncate(partition, offset))
                return True
            case LookUp():
                await self._look_up(followed)
                return True
            case Wait():
                self._session.remove(followed.key)
                self._due.pop(followed.key, None)
            case Retry(code):
                if code not in _EXPECTED:
                    logger.error("broker %d refuses %s-%d: %s", self.leader, *followed.key, code.name)
                self._pause(followed)
            case Ignore():
                self._due[followed.key] = None
        return False

    def _append(self, followed: _Followed, append: Append) -> bool:
        size_bytes = 0
        log = followed.partition.log
        before = log.start_offset, log.end_offset
        try:
            size_bytes = self._logs.append(followed.partition, append)
        except (ProtocolError, KafkaError) as problem:
            logger.error("%s-%d cannot be copied from broker %d: %s", *followed.key, self.leader, problem)
            self._pause(followed)
        if (log.start_offset, log.end_offset) != before and followed.paused is None:
            self._due[followed.key] = None
        return size_bytes > 0

    async def _cut(self, followed: _Followed, cut: Coroutine[Any, Any, None]) -> None:
        """Truncate or restart a log, which is due then; after a failure of the disk once more after a pause.

        Another leader may follow meanwhile: its fetcher repeats the cut.
        """
        try:
            await cut
        except (OSError, KafkaError) as problem:
            logger.error("%s-%d cannot be truncated, and it is tried again: %s", *followed.key, problem)
            if self._followed.get(followed.key) is followed:
                self._pause(followed)
            return
        if self._followed.get(followed.key) is followed:
            self._due[followed.key] = None

    async def _look_up(self, followed: _Followed) -> None:
        partition = followed.partition
        epoch = partition.state.leader_epoch
        try:
            leader_end = await self._offset(partition, LATEST)
            leader_start = await self._offset(partition, EARLIEST)
        except KafkaError as problem:
            if problem.code not in _EXPECTED:
                logger.warning("the offsets of %s-%d cannot be looked up: %s", *followed.key, problem)
            self._pause(followed)
            return
        if self._followed.get(followed.key) is not followed or partition.state.leader_epoch != epoch:
            return
        cut = out_of_range(view(partition), leader_start=leader_start, leader_end=leader_end)
        logger.warning(
            "%s-%d ends at %d, outside of the leader's log from %d to %d",
            *followed.key,
            partition.log.end_offset,
            leader_start,
            leader_end,
        )
        match cut:
            case Truncate(offset):
                await self._cut(followed, self._logs.truncate(partition, offset))
            case Restart(offset):
                await self._cut(followed, self._logs.restart(partition, offset))
            case Ignore():
                self._pause(followed)

    async def _offset(self, partition: Partition, timestamp: int) -> int:
        query = ListOffsetsPartition(
            partition_index=partition.index,
            current_leader_epoch=partition.state.leader_epoch,
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(
            replica_id=self._node_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[query])]
        )
        response = await self._channels.send(
            self.leader,
            request,
            purpose=f"{PURPOSE}-{self._connection}",
            timeout_ms=self._settings.timeout_ms,
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(answer.error_code))
        return int(answer.offset)

    def _log_problem(self, text: str) -> None:
        """Log a failure that lasts, once: the first one is followed by a new leader, or by the end of this node."""
        self._failures += 1
        if self._failures == _LOGGED_FAILURE:
            logger.warning("cannot fetch from broker %d, and it is tried again: %s", self.leader, text)
