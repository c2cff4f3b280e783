"""The share partitions of this node and their members (KIP-932).

Here: the loaded share partitions, limits, releasing a member's records when its session or connection ends.
Not here: one share partition (`partition`), one fetch (`fetching`), sessions (`sessions`).
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from busway_bus.kernel.limits import (
    SHARE_GROUP_RECORDS_MAX,
    SHARE_PARTITIONS_LOOKED_AT_MAX,
    SHARE_PARTITIONS_MAX,
    SHARE_RECORDS_MAX,
    SHARE_RELEASES_AT_ONCE_MAX,
)
from busway_bus.kernel.resets import Begin, parse_reset
from busway_bus.kernel.share_state import SharePartitionKey, SharePersister
from busway_bus.metadata.group_settings import GroupSettings
from busway_bus.replication.manager import ReplicaManager
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import Role
from busway_bus.share.delayed_share_fetch import Peer, Watch
from busway_bus.share.limits import ShareLimits
from busway_bus.share.partition import SharePartition
from busway_bus.share.partition_dead_letters import LetterWriter
from busway_bus.share.rounds import Rounds
from busway_bus.share.sessions import ShareSession, ShareSessions, TopicIdPartition
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.machine import Machine


class SharePartitions:
    def __init__(
        self,
        replicas: ReplicaManager,
        machine: Machine,
        *,
        persister: SharePersister,
        setting: GroupSettings,
        letters: LetterWriter,
        sessions_max: int,
    ) -> None:
        self.replicas = replicas
        self.machine = machine
        self.persister = persister
        self.setting = setting
        self._letters = letters
        self.sessions = ShareSessions(sessions_max)
        self._shares: dict[SharePartitionKey, SharePartition] = {}
        self._of_group: dict[str, dict[SharePartitionKey, SharePartition]] = {}
        self._watched: dict[ShareSession, tuple[Peer, Watch]] = {}
        self._held = 0
        self._held_by: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._due: deque[SharePartition] = deque()
        self._expiring = False
        self._rounds = Rounds()
        self._releasing: dict[tuple[str, str], Iterator[int]] = {}
        self._going_on = False

    # Calls of share partitions

    def now_ms(self) -> int:
        return int(self.machine.monotonic_s() * 1000)

    def limits(self, group_id: str) -> ShareLimits:
        return ShareLimits.of(group_id, self.setting)

    def current(self, share: SharePartition) -> bool:
        partition = share.partition
        return self.replicas.local.get((partition.topic, partition.index)) is partition

    def due(self, share: SharePartition) -> None:
        """Queue a share partition with expired locks.

        Expiry runs in rounds, as very many may be due.
        """
        self._due.append(share)
        if not self._expiring:
            self._expiring = True
            self._run(self._expire())

    async def _expire(self) -> None:
        looked_at = 0
        try:
            while self._due:
                share = self._due.popleft()
                looked_at += 1 + share.size
                share.expire()
                if looked_at >= SHARE_RELEASES_AT_ONCE_MAX:
                    looked_at = 0
                    await self.turn()
        finally:
            self._expiring = False

    async def turn(self) -> None:
        await self._rounds.turn()

    def gone(self, share: SharePartition) -> None:
        if self._shares.get(share.key) is share:
            del self._shares[share.key]
            group = self._of_group[share.key.group_id]
            del group[share.key]
            if not group:
                del self._of_group[share.key.group_id]

    def reinitialized(self, key: SharePartitionKey) -> None:
        """End a share partition with reset or deleted state; the next request reloads it."""
        share = self._shares.get(key)
        if share is not None:
            share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the group starts again with this partition"))

    def settled(self, share: SharePartition) -> None:
        """Unload an idle share partition without sessions."""
        if share.idle and not self.sessions.members(share.key.group_id):
            share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # Finding

    def loaded(self, group_id: str, partition: TopicIdPartition) -> SharePartition:
        """Return a share partition that was fetched from, or raise UNKNOWN_TOPIC_OR_PARTITION."""
        share = self._shares.get(_key(group_id, partition))
        if share is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no member has acquired records of this partition")
        return share

    def find(self, group_id: str, partition: TopicIdPartition) -> SharePartition:
        """Return a share partition; start loading a missing one.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR;
                COORDINATOR_NOT_AVAILABLE where too many are in use.
        """
        key = _key(group_id, partition)
        share = self._shares.get(key)
        if share is not None:
            try:
                share.check()
            except KafkaError:
                pass  # its replacement is looked up below
            else:
                return share
        topic = self.replicas.name_of(partition[0])
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition_of_topic = self._led(topic, partition[1])
        self._make_room()
        share = SharePartition(key, partition_of_topic, persister=self.persister, owner=self, writer=self._letters)
        self._shares[key] = share
        self._of_group.setdefault(group_id, {})[key] = share
        self._run(share.load(partial(self._begin, group_id)))
        return share

    def _led(self, topic: str, partition_index: int) -> Partition:
        """Return a partition of a known topic that this node leads.

        KafkaError: NOT_LEADER_OR_FOLLOWER, also where it has no replica; KAFKA_STORAGE_ERROR.
        """
        try:
            partition = self.replicas.find(topic, partition_index)
        except KafkaError as problem:
            if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, problem.message) from None
        if partition.state.role is not Role.LEADER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def _make_room(self) -> None:
        if len(self._shares) < SHARE_PARTITIONS_MAX:
            return
        for share in tuple(islice(self._shares.values(), SHARE_PARTITIONS_LOOKED_AT_MAX)):
            if share.spare:
                share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                return
            self._shares[share.key] = self._shares.pop(share.key)  # examined last next time
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_PARTITIONS_MAX} share partitions are in use")

    async def _begin(self, group_id: str, partition: Partition) -> int:
        """Return the start offset by `share.auto.offset.reset`.

        by_duration without such a record starts at the end. ValueError: the setting is invalid.
        """
        reset = parse_reset(self.setting(group_id, "share.auto.offset.reset"))
        if reset.begin is Begin.EARLIEST:
            return partition.log.start_offset
        end = partition.high_watermark
        if reset.begin is Begin.LATEST:
            return end
        search = partition.log.search_time(self.machine.wall_ms() - reset.duration_ms, up_to=end)
        try:
            match = await self.replicas.slices.run(search)
        except (ProtocolError, OSError) as problem:
            raise KafkaError(partition.damaged(problem)) from problem
        return end if match is None else match[0]

    # Records in flight

    def holds(self, share: SharePartition, by: int) -> None:
        group_id = share.key.group_id
        self._held += by
        held = self._held_by.pop(group_id, 0) + by
        if held:
            self._held_by[group_id] = held

    def has_room(self, group_id: str) -> bool:
        return self._held < SHARE_RECORDS_MAX and self._held_by.get(group_id, 0) < SHARE_GROUP_RECORDS_MAX

    # Sessions

    def open(self, group_id: str, member_id: str, partitions: Iterable[TopicIdPartition], peer: Peer) -> ShareSession:
        """Open a session that ends with its connection.

        Records acquired in an earlier one stay locked. SHARE_SESSION_LIMIT_REACHED keeps the earlier session.
        """
        self._release_now(group_id, member_id)
        earlier = None
        with contextlib.suppress(KafkaError):
            earlier = self.sessions.find(group_id, member_id)
        session = self.sessions.open(group_id, member_id, partitions)
        if earlier is not None:
            self._unwatch(earlier)
        watch = _SessionWatch(self, session)
        self._watched[session] = (peer, watch)
        peer.polls.add(watch)
        return session

    def end(self, session: ShareSession) -> None:
        """End a session and release its member's records.

        Releases run in rounds, as a connection may have very many sessions.
        """
        if not self.sessions.close(session):
            return
        self._unwatch(session)
        self._release_now(session.group_id, session.member_id)
        self._releasing[session.group_id, session.member_id] = self._release(session)
        if not self._going_on:
            self._going_on = True
            self._release_some()
            self._run(self._release_on())

    def _release(self, session: ShareSession) -> Iterator[int]:
        for share in tuple(self._of_group.get(session.group_id, {}).values()):
            size = 1 + share.size
            share.release(session.member_id)
            self.settled(share)
            yield size

    def _release_some(self) -> None:
        looked_at = 0
        while self._releasing:
            member, releasing = next(iter(self._releasing.items()))
            for size in releasing:
                looked_at += size
                if looked_at >= SHARE_RELEASES_AT_ONCE_MAX:
                    return
            del self._releasing[member]

    async def _release_on(self) -> None:
        try:
            while self._releasing:
                await self.turn()
                self._release_some()
        finally:
            self._going_on = False

    def _release_now(self, group_id: str, member_id: str) -> None:
        """Finish a member's releases before its next session: later they would take its new records."""
        for _ in self._releasing.pop((group_id, member_id), ()):
            pass

    def _unwatch(self, session: ShareSession) -> None:
        peer, watch = self._watched.pop(session, (None, None))
        if peer is not None:
            peer.polls.discard(watch)

    # Tasks

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, *, within_ms: int) -> None:
        """End every share partition; writes have `within_ms` to finish."""
        for share in self._shares.values():
            share.dead_letters.stop()
        at_work = [task for share in self._shares.values() for task in (share.writing, share.dead_letters.task)]
        under_way = {task for task in at_work if task is not None} | self._tasks
        if under_way:
            _, late = await asyncio.wait(under_way, timeout=within_ms / 1000)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for share in tuple(self._shares.values()):
            share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))


class _SessionWatch:
    def __init__(self, shares: SharePartitions, session: ShareSession) -> None:
        self._shares = shares
        self._session = session

    def end(self, _: Exception) -> None:
        self._shares.end(self._session)


def _key(group_id: str, partition: TopicIdPartition) -> SharePartitionKey:
    return SharePartitionKey(group_id=group_id, topic_id=partition[0], partition=partition[1])
