"""The public consumer.

Not here: positions (`positions`); fetching (`fetcher`) and the group (`group`), which are background tasks.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Final

from busway.cluster.client import ClusterClient, MetadataRecovery
from busway.cluster.rate_limited_log import RateLimitedLog
from busway.consumer.fetcher import Fetcher
from busway.consumer.group import GroupMember, Listener
from busway.consumer.handed_out import HandedOut
from busway.consumer.listener import Partitions, RebalanceListener
from busway.consumer.positions import Positions
from busway.consumer.protocols import group_member
from busway.consumer.topics import Topics
from busway.consumer.uncommitted import Uncommitted
from busway.errors import BuswayError, CommitFailed, InvalidTransactionState, NotRunning
from busway.net.clock import REAL_TIME
from busway.net.retry import is_passing
from busway.options import ConsumerOptions, options_from
from busway.security.choosing import taken
from busway.types import Addresses, GroupMetadata, OffsetAndMetadata, Record, TopicPartition

logger: logging.Logger = logging.getLogger("busway.consumer")

_LAST_COMMIT_S: Final = 5.0
"""Timeout of the commit before `stop` or `assign`, seconds. Uncommitted records are read again."""


class Consumer(Positions):
    """Consumer of records, alone or as a member of a group.

    Args:
        topics: subscribed to at start.
        bootstrap_servers: `host:port`, several with commas or as a list.
        listener: called when partitions are assigned, revoked or lost.
        options: the fields of `ConsumerOptions` and of `SecurityOptions`, or `security`, such an object.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: Addresses = "localhost:9092",
        client_id: str = "busway",
        listener: RebalanceListener | None = None,
        **options: Any,
    ) -> None:
        security, options = taken(options)
        self.options: ConsumerOptions = options_from(ConsumerOptions, options)

        def connect() -> ClusterClient:
            return ClusterClient(
                bootstrap_servers,
                client_id=client_id,
                request_timeout_s=self.options.request_timeout_ms / 1000,
                create_topics=self.options.allow_auto_create_topics,
                security=security,
                recovery=MetadataRecovery.of(self.options),
            )

        self._cluster = connect()
        self._listener = listener or RebalanceListener()
        self._fetcher = Fetcher(self._cluster, self.options, self._committed_offsets)
        self._connect = connect
        self._group: GroupMember | None = None
        self._wanted = frozenset(topics)
        self._topics = Topics(self._cluster, self._fetcher, max_age_s=self.options.metadata_max_age_ms / 1000)
        self._tasks: list[asyncio.Task[None]] = []
        self._committing: asyncio.Task[None] | None = None
        self._uncommitted = Uncommitted(self._fetcher)
        automatic = self.options.enable_auto_commit
        self._given = HandedOut(self, self._fetcher, self._uncommitted, automatic=automatic)
        self._background_problem: BuswayError | None = None
        self._rate_limited_log = RateLimitedLog(logger)

    # Lifecycle

    async def start(self) -> None:
        """Connect and start reading.

        Raises:
            ConnectionFailed: no broker is reachable.
            AuthenticationFailed: the brokers refuse this client, or their certificates are refused.
            BrokerError: a topic is not available.
            UnsupportedByBroker: the brokers do not support the group_protocol or group_remote_assignor.
        """
        await self._cluster.start()
        if self.options.group_id is not None:
            listener = Listener(on_revoked=self._revoked, on_assigned=self._assigned, on_lost=self._lost)
            try:
                self._group = await group_member(self._cluster, self.options, connect=self._connect, listener=listener)
            except BaseException:
                await self._cluster.close()
                raise
            self._topics.group = self._group
        loop = asyncio.get_running_loop()
        self._touch()
        self._tasks = [
            loop.create_task(self._fetcher.run(), name="busway-fetcher"),
            loop.create_task(self._topics.watch(), name="busway-topics"),
        ]
        if self._group is not None:
            self._tasks.append(loop.create_task(self._group.run(), name="busway-group"))
            if self.options.enable_auto_commit:
                self._committing = loop.create_task(self._auto_commit(), name="busway-auto-commit")
                self._tasks.append(self._committing)
        try:
            if self._wanted:
                await self._topics.subscribe(self._wanted)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Commit handed-out offsets (with auto commit), call the listener, leave the group, disconnect."""
        await self._stop(lambda: self._commit_what_was(self._uncommitted.all()))

    async def _stop(self, commit: Callable[[], Awaitable[None]]) -> None:
        tasks, self._tasks = self._tasks, []
        if not tasks:
            await self._disconnect()
            return
        try:
            if self._committing is not None:
                self._committing.cancel()
                await self._commit_last(commit)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        try:
            if self._group is not None:
                if owned := self._group.membership.owned:
                    await self._listener.on_partitions_revoked(owned)
                await self._group.leave()
            await self._fetcher.close()
        finally:
            await self._disconnect()

    async def _disconnect(self) -> None:
        try:
            if self._group is not None:
                await self._group.close()
        finally:
            await self._cluster.close()

    async def _commit_last(self, commit: Callable[[], Awaitable[None]]) -> None:
        try:
            async with REAL_TIME.timeout(_LAST_COMMIT_S):
                await commit()
        except (BuswayError, TimeoutError) as problem:
            logger.warning(
                "group %s: the last offsets were not committed, their records come again: %s",
                self.options.group_id,
                problem or "no answer in time",
            )

    def cut(self) -> None:
        """Drop the connections permanently, as if the process were killed; `abort` also ends the tasks."""
        self._cluster.abort()
        if self._group is not None:
            self._group.abort()

    async def abort(self) -> None:
        """Stop as if the process were killed: no commit, no listener call, no LeaveGroup.

        All this happens before the first await; the call returns when the tasks have ended.
        """
        tasks, self._tasks = self._tasks, []
        self.cut()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._group is not None:
            await self._group.close()

    def member_id(self) -> str:
        """Return the member id; empty without a group or before the first join."""
        return self._group.membership.member_id if self._group is not None else ""

    def group_metadata(self) -> GroupMetadata:
        """Return the member as of the last poll, for `Producer.send_offsets_to_transaction`.

        The records of that poll were handed to this member; later rebalances count from the next poll.

        Raises:
            ValueError: this consumer has no group.
        """
        self._require_group()
        return self._given.metadata()

    def member(self) -> GroupMetadata:
        """Return this member's current identity, perhaps newer than `group_metadata`.

        Raises:
            ValueError: this consumer has no group.
        """
        return self._require_group().metadata()

    def is_subscribed(self) -> bool:
        """Return whether a group, rather than `assign`, assigns the partitions."""
        return self._group is not None and self._group.subscribed

    def is_settled(self) -> bool:
        """Return whether the member is in no rebalance; False without a group."""
        return self._group is not None and self._group.settled

    def transaction_input(self) -> HandedOut:
        """Return the input of `Producer.transaction`.

        Raises:
            ValueError: the consumer has no group, commits automatically, or isolation_level is not "read_committed".
        """
        self._require_group()
        self._given.allow(())
        if self.options.isolation_level != "read_committed":
            raise ValueError(
                "a member that takes a partition over has to wait for the transaction of the one before: "
                'isolation_level="read_committed" is needed'
            )
        return self._given

    def committing(self, partitions: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        return self._require_group().offsets.under_way(partitions)

    async def __aenter__(self) -> "Consumer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the last records handed out do not count as handled.
        await self._stop(
            lambda: self._commit_what_was(self._uncommitted.all() if kind is None else self._uncommitted.handled())
        )

    # Subscription and assignment

    async def subscribe(
        self, topics: Iterable[str] = (), *, pattern: str | None = None, server_pattern: str | None = None
    ) -> None:
        """Subscribe to topics, or to all topics that match a pattern.

        A `pattern` is a Python regular expression, matched here. A `server_pattern` is an RE2 expression, matched by
        the coordinator as soon as a topic is created; it needs group_protocol="consumer". Both match whole names.

        New topics and partitions are found within metadata_max_age_ms. A group starts them like any other; a consumer
        without a group starts at their first record, because all records were written after it started.

        Raises:
            ValueError: not exactly one of the three is given; or a `server_pattern` without a group, or in a classic
                group.
            BrokerError: a topic is not available.
        """
        names = frozenset(topics)
        if bool(names) + (pattern is not None) + bool(server_pattern) != 1:
            raise ValueError("give either topics or a pattern to subscribe to")
        await self._topics.subscribe(names, re.compile(pattern) if pattern is not None else None, server_pattern)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, not assigned by a group.

        With auto commit, what was handed out of removed partitions is committed.

        Raises:
            BrokerError: a topic is not available.
        """
        self._topics.forget()
        wanted = [TopicPartition(*partition) for partition in partitions]
        await self._cluster.ensure_topics({partition.topic for partition in wanted})
        dropped = self._fetcher.assigned.keys() - set(wanted)
        if self._committing is not None and dropped:
            await self._commit_last(lambda: self._commit_what_was(self._uncommitted.all_of(dropped)))
        self._drop(dropped)
        self._fetcher.assign(wanted)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are read now."""
        return frozenset(self._fetcher.assigned)

    # Reading

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Return up to `max_records` records by partition (default max_poll_records).

        Waits up to `timeout_ms` for the first.

        Raises:
            OffsetReset, DamagedData, BrokerError: a partition, the group or an automatic commit failed. While a broker
                cannot be reached, or moves, automatic commits are retried.
            NotRunning: the consumer was not started.
        """
        deadline = REAL_TIME.now_s() + timeout_ms / 1000
        limit = self.options.max_poll_records if max_records is None else max_records
        self._uncommitted.polling()
        self._given.polling()
        while True:
            self._check()
            records = self._fetcher.ready(partitions, limit)
            left = deadline - REAL_TIME.now_s()
            if records or left <= 0:
                self._uncommitted.take_resets()
                self._given.polled()
                for partition, received in records.items():
                    behind = OffsetAndMetadata(received[-1].offset + 1, "", received[-1].leader_epoch)
                    self._uncommitted.hand_out(partition, behind)
                    self._given.hand_out(partition, received[0].offset, behind)
                return records
            await self._fetcher.arrival(min(left, 1.0), partitions)

    async def getone(self, *partitions: TopicPartition) -> Record:
        """Wait for the next record. Errors as in `getmany`."""
        while True:
            polled = await self.getmany(*partitions, timeout_ms=60_000, max_records=1)
            for records in polled.values():
                return records[0]

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            # One at a time: records buffered here would count as handed out when the reader leaves the loop.
            yield await self.getone()

    def _check(self) -> None:
        if not self._tasks:
            raise NotRunning("the consumer is not running; use `async with Consumer(...)` or await start()")
        self._touch()
        if self._group is not None and self._group.problem is not None:
            raise self._group.problem.with_traceback(None)  # the traceback grows with every raise
        if self._background_problem is not None:
            problem, self._background_problem = self._background_problem, None
            raise problem

    def _touch(self) -> None:
        if self._group is not None:
            self._group.polled()

    # Offsets of the group

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit these offsets, or everything handed out of partitions still assigned.

        Raises:
            CommitFailed: partitions were revoked after their records were handed out, even if assigned again since, or
                this consumer is not a member. Offsets of the other partitions are committed.
            InvalidTransactionState: a transaction commits this consumer's offsets.
            ValueError: this consumer has no group.
        """
        group = self._require_group()
        if self._given.in_transaction:
            raise InvalidTransactionState(
                "what this consumer hands out is committed with the transaction that it was given to, which may yet be aborted; leave "
                "commit() out"
            )
        if offsets is None:
            await self._commit_what_was(self._uncommitted.all())
            return
        gone = self._given.given_up(offsets)
        replaced = self._given.of_replaced_topics(offsets)
        await self._commit_what_was(
            {
                partition: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
                for partition, offset in offsets.items()
                if partition not in gone and partition not in replaced
            }
        )
        if gone:
            raise group.offsets.failed(gone, "they were given up since their records were handed out")

    async def _commit_what_was(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        before = self._uncommitted.handled()
        await self._require_group().offsets.commit(offsets)
        self._given.settled(offsets)
        self._uncommitted.committed(offsets, before)

    async def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the group's committed offset of a partition."""
        return (await self.committed_of([partition])).get(partition)

    async def committed_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets. Partitions without one are missing.

        Raises:
            BrokerError, ConnectionFailed, RequestTimedOut: the request failed.
        """
        return await self._require_group().offsets.committed(partitions)

    def _require_group(self) -> GroupMember:
        if self.options.group_id is None:
            raise ValueError("this consumer has no group_id, so it has no committed offsets")
        if self._group is None:
            raise NotRunning("the consumer was not started; use `async with Consumer(...)` or await start()")
        return self._group

    async def _committed_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self._group is None:
            return {}
        offsets = await self._group.offsets.committed(partitions)
        return {partition: committed.offset for partition, committed in offsets.items()}

    async def _auto_commit(self) -> None:
        while True:
            await REAL_TIME.sleep(self.options.auto_commit_interval_ms / 1000)
            try:
                await self._commit_what_was(self._uncommitted.handled())
            except CommitFailed as problem:  # _drop removes the offsets of revoked partitions
                logger.warning("%s", problem)
            except BuswayError as problem:
                if not is_passing(problem):
                    self._background_problem = problem
                    continue
                again = "group %s: an automatic commit failed, the next follows after auto_commit_interval_ms: %s"
                self._rate_limited_log.log(logging.WARNING, "commit", again, self.options.group_id, problem)

    # Rebalances

    async def _revoked(self, revoked: Partitions) -> None:
        if self.options.enable_auto_commit:
            with contextlib.suppress(BuswayError):
                await self._commit_what_was(self._uncommitted.handled())
        await self._listener.on_partitions_revoked(revoked)
        self._drop(revoked)

    async def _lost(self, lost: Partitions) -> None:
        self._drop(lost)
        await self._listener.on_partitions_lost(lost)

    def _drop(self, gone: Collection[TopicPartition]) -> None:
        self.forget(gone)
        self._given.keep(self._cluster.metadata.topics)
        self._fetcher.assign([partition for partition in self._fetcher.assigned if partition not in gone])

    async def _assigned(self, assigned: Partitions, new: Partitions) -> None:
        self._drop(self._fetcher.assigned.keys() - set(assigned))  # assigned manually before
        # The listener may seek: nothing is handed out before it has returned.
        self._fetcher.assign(assigned, held=new)
        await self._listener.on_partitions_assigned(new)
        self._fetcher.release(new)
