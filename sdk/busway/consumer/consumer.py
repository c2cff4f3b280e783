"""The consumer that users see.

What lives here: `Consumer`: subscribing, reading, positions, commits. What does not: fetching (`fetcher`) and the group
(`group`), which run in tasks of their own while the consumer is started.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Final

from busway.cluster.client import Addresses, ClusterClient
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
from busway.options import ConsumerOptions, options_from
from busway.types import GroupMetadata, OffsetAndMetadata, Record, TopicPartition

logger = logging.getLogger("busway.consumer")

_LAST_COMMIT_S: Final = 5.0
"""A consumer that stops waits no longer for its coordinator: what is not committed is read again, and whoever stops it is waiting."""


class Consumer(Positions):
    """Reads records, alone or as a member of a group.

    Args:
        topics: to subscribe to at start.
        bootstrap_servers: `host:port`, several with commas or as a list.
        client_id: told to the brokers.
        listener: told of partitions that come and go.
        options: see `ConsumerOptions`, which are also accepted as keyword arguments.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: Addresses = "localhost:9092",
        client_id: str = "busway",
        listener: RebalanceListener | None = None,
        **options: Any,
    ) -> None:
        self.options = options_from(ConsumerOptions, options)

        def connect() -> ClusterClient:
            return ClusterClient(
                bootstrap_servers,
                client_id=client_id,
                request_timeout_s=self.options.request_timeout_ms / 1000,
                create_topics=self.options.allow_auto_create_topics,
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

    # Life

    async def start(self) -> None:
        """Connect and begin to read.

        Raises:
            ConnectionFailed: no broker can be reached.
            BrokerError: a topic cannot be had.
            UnsupportedByBroker: the brokers do not serve the group_protocol that was asked for.
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
        """Commit what was handed out (with auto commit), let the listener finish, leave the group, disconnect."""
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
        """Drop the connections, now and for good, as when the process is killed; `abort` ends the tasks as well."""
        self._cluster.abort()
        if self._group is not None:
            self._group.abort()

    async def abort(self) -> None:
        """End at once, as when the process is killed: nothing is committed, the listener hears of nothing, the group is not left.

        All that happens before anything else runs; this then returns when the tasks have ended.
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
        """What the group calls this member; empty without a group or before it was joined."""
        return self._group.membership.member_id if self._group is not None else ""

    def group_metadata(self) -> GroupMetadata:
        """Return the member as of the last poll, for `Producer.send_offsets_to_transaction`; ValueError without a group.

        It is the one that the records of that poll were handed to: rebalances that have ended since count from the next poll on.
        """
        self._require_group()
        return self._given.metadata()

    def member(self) -> GroupMetadata:
        """Return this consumer as its group knows it now, which may be newer than what it has handed out; ValueError without a group."""
        return self._require_group().metadata()

    def is_subscribed(self) -> bool:
        """Return whether a group shares the partitions out; False also for one that has partitions by `assign`."""
        return self._group is not None and self._group.subscribed

    def is_settled(self) -> bool:
        """Return whether the group is in no rebalance, as far as this member knows."""
        return self._group is not None and self._group.settled

    def transaction_input(self) -> HandedOut:
        """Return what `Producer.transaction` takes along.

        Raises:
            ValueError: the consumer has no group, commits by itself, or would not wait for the transactions of other members.
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
        """Return those of these partitions, or of all, that a commit under way is about."""
        return self._require_group().offsets.under_way(partitions)

    async def __aenter__(self) -> "Consumer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever leaves with an error has not handled what was handed out last.
        await self._stop(
            lambda: self._commit_what_was(self._uncommitted.all() if kind is None else self._uncommitted.handled())
        )

    # What to read

    async def subscribe(
        self, topics: Iterable[str] = (), *, pattern: str | None = None, server_pattern: str | None = None
    ) -> None:
        """Share these topics with the group, or all topics whose name a pattern matches, those that are made later included.
        A `pattern` is a Python regular expression, matched here. A `server_pattern` is one in RE2's syntax, matched by the coordinator as
        soon as a topic is made; it needs group_protocol="consumer". Both match whole names.

        Topics and partitions that are made later are found within metadata_max_age_ms. A group begins with them as with any other; a
        consumer without a group at their first record, because all of them were written after it began.

        Raises:
            ValueError: more or less than one of them is given; a `server_pattern` without a group whose coordinator matches patterns.
            BrokerError: a topic cannot be had.
        """
        names = frozenset(topics)
        if bool(names) + (pattern is not None) + bool(server_pattern) != 1:
            raise ValueError("give either topics or a pattern to subscribe to")
        await self._topics.subscribe(names, re.compile(pattern) if pattern is not None else None, server_pattern)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing them; with auto commit, what was handed out of others is committed.

        Raises:
            BrokerError: a topic cannot be had.
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
        """The partitions that are read now."""
        return frozenset(self._fetcher.assigned)

    # Reading

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Records by partition, at most `max_records`; waits up to `timeout_ms` for the first.

        Raises:
            OffsetReset, DamagedData, BrokerError: what went wrong with a partition.
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
                for partition, found in records.items():
                    behind = OffsetAndMetadata(found[-1].offset + 1, "", found[-1].leader_epoch)
                    self._uncommitted.hand_out(partition, behind)
                    self._given.hand_out(partition, found[0].offset, behind)
                return records
            await self._fetcher.arrival(min(left, 1.0), partitions)

    async def getone(self, *partitions: TopicPartition) -> Record:
        """The next record; waits for it.

        Raises:
            OffsetReset, DamagedData, BrokerError: what went wrong with a partition.
        """
        while True:
            found = await self.getmany(*partitions, timeout_ms=60_000, max_records=1)
            for records in found.values():
                return records[0]

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            # One at a time: what waits here was not seen by the reader, who may break off and must find it again.
            yield await self.getone()

    def _check(self) -> None:
        if not self._tasks:
            raise NotRunning("the consumer is not running; use `async with Consumer(...)` or await start()")
        self._touch()
        if self._group is not None and self._group.problem is not None:
            raise self._group.problem.with_traceback(None)  # which grows whenever it is raised
        if self._background_problem is not None:
            problem, self._background_problem = self._background_problem, None
            raise problem

    def _touch(self) -> None:
        if self._group is not None:
            self._group.polled()

    # Offsets of the group

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit these offsets, or everything handed out so far of partitions that are still assigned.

        Raises:
            CommitFailed: the group has moved on: partitions were given up since their records were handed out, also those that have come
                back, or this consumer is no member now. Offsets of the other partitions are committed.
            InvalidTransactionState: a transaction commits what this consumer hands out.
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
        """What the group has committed for a partition."""
        return (await self.committed_of([partition])).get(partition)

    async def committed_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed for some partitions; those without an offset are missing.

        Raises:
            BrokerError, ConnectionFailed, RequestTimedOut: it cannot be asked.
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
        found = await self._group.offsets.committed(partitions)
        return {partition: committed.offset for partition, committed in found.items()}

    async def _auto_commit(self) -> None:
        while True:
            await REAL_TIME.sleep(self.options.auto_commit_interval_ms / 1000)
            try:
                await self._commit_what_was(self._uncommitted.handled())
            except CommitFailed as problem:  # what was given up is forgotten with its partition
                logger.warning("%s", problem)
            except BuswayError as problem:
                self._background_problem = problem

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
        self._drop(self._fetcher.assigned.keys() - set(assigned))  # what the program had assigned itself
        # The listener may seek, or get ready for the records: none is handed out before it has returned.
        self._fetcher.assign(assigned, held=new)
        await self._listener.on_partitions_assigned(new)
        self._fetcher.release(new)
