"""A member of a group at work: joins, shows that it lives, commits.

What lives here: the loop around the group protocol and the requests to the coordinator. What does not: what an assignment is
(`membership_classic`) and reading (`fetcher`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.consumer.membership_classic import Membership
from busway.errors import BrokerError, BuswayError, CommitFailed, ConnectionFailed, RequestTimedOut
from busway.options import ConsumerOptions
from busway.types import OffsetAndMetadata, TopicPartition
from busway_protocol.apis import ApiKey
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

_JOIN_EXTRA_S: Final = 5.0
_ONE_GROUP_OFFSET_FETCH: Final = 7
_NAMED_COMMIT: Final = 9
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_REJOIN: Final = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS})

Partitions = tuple[TopicPartition, ...]


class GroupCoordinatorClient:
    """Keeps one member in its group.

    Args:
        on_revoked: awaited with partitions before they are given up; while it runs they are still this member's.
        on_assigned: awaited with the whole new assignment and what of it is new.
        on_lost: awaited when the partitions are gone already.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        options: ConsumerOptions,
        *,
        on_revoked: Callable[[Partitions], Awaitable[None]],
        on_assigned: Callable[[Partitions, Partitions], Awaitable[None]],
        on_lost: Callable[[Partitions], Awaitable[None]],
    ) -> None:
        assert options.group_id is not None
        self._cluster = cluster
        self._options = options
        self._group = options.group_id
        self._on_revoked, self._on_assigned, self._on_lost = on_revoked, on_assigned, on_lost
        self.membership = Membership(
            strategies=options.partition_assignment_strategy, instance_id=options.group_instance_id
        )
        self._topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        self._node: int | None = None
        self._rejoin = asyncio.Event()
        self._polled_at = 0.0
        self._polled = asyncio.Event()
        self.problem: Exception | None = None

    def polled(self) -> None:
        """The reader has asked for records."""
        self._polled_at = asyncio.get_running_loop().time()
        self._polled.set()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join, or join again, for these topics."""
        self._topics = frozenset(topics)
        self._rejoin.set()

    # Requests

    async def _ask(
        self, message: Any, *, timeout_s: float | None = None, at_most: int | None = None, own: bool = False
    ) -> Any:
        """Ask the coordinator. Joins and syncs wait long, so they have a connection of their own."""
        if self._node is None:
            self._node = await self._cluster.find_coordinator(self._group)
        try:
            connection = await self._cluster.connection(self._node, "join" if own else "group")
            return await connection.request(message, timeout_s=timeout_s, at_most=at_most)
        except (ConnectionFailed, RequestTimedOut):
            self._node = None
            with contextlib.suppress(BuswayError):
                await self._cluster.refresh()
            raise

    # Membership

    async def run(self) -> None:
        """Stay in the group until cancelled."""
        backoff = self._cluster.backoff()
        while True:
            if not self._topics:
                await self._rejoin.wait()
                self._rejoin.clear()
                continue
            try:
                await self._join()
                backoff.reset()
                await self._stay()
            except BrokerError as problem:
                if problem.code in _MOVED:
                    self._node = None
                elif problem.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
                    await self._lose(identity=problem.code is ErrorCode.UNKNOWN_MEMBER_ID)
                elif not problem.retriable and problem.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    self.problem = problem
                    return
                await asyncio.sleep(backoff.next())
            except (ConnectionFailed, RequestTimedOut):
                await asyncio.sleep(backoff.next())
            except Exception as problem:  # noqa: BLE001 - a listener's own error too: whoever reads gets it
                self.problem = problem
                return

    async def _with_heartbeats(self, listening: Awaitable[None]) -> None:
        """Let a listener take its time: the member shows that it lives meanwhile."""
        beating = asyncio.ensure_future(self._beat())
        try:
            await listening
        finally:
            beating.cancel()
            await asyncio.wait([beating])

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._options.heartbeat_interval_ms / 1000)
            with contextlib.suppress(BuswayError):
                await self._heartbeat()  # what it answers is acted upon once the listener has returned

    async def _heartbeat(self) -> ErrorCode:
        answer = await self._ask(
            HeartbeatRequest(
                group_id=self._group,
                generation_id=self.membership.generation,
                member_id=self.membership.member_id,
                group_instance_id=self.membership.instance_id,
            )
        )
        return error_for(answer.error_code)

    async def _lose(self, *, identity: bool) -> None:
        lost, self.membership.owned = self.membership.owned, ()
        self.membership.forget(identity=identity)
        if lost:
            await self._on_lost(lost)

    async def _join(self) -> None:
        """One rebalance: give up what has to be given up, join, sync, take over."""
        self._rejoin.clear()
        membership = self.membership
        await self._cluster.ensure_topics(self._topics)
        if membership.owned and not membership.cooperative:
            revoked, membership.owned = membership.owned, ()
            await self._with_heartbeats(self._on_revoked(revoked))
        answer = await self._join_request()
        membership.joined(answer.member_id, answer.generation_id, answer.protocol_name or "")
        assignments: list[SyncGroupRequestAssignment] = []
        if answer.leader == answer.member_id and not answer.skip_assignment:
            topics = membership.wanted_topics(answer.members)
            await self._cluster.ensure_topics(topics)
            counts = self._cluster.metadata.counts()
            self._counts = {topic: counts[topic] for topic in topics if topic in counts}
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in membership.assign(answer.members, self._counts)
            ]
        else:
            self._counts = {}
        synced: SyncGroupResponse = await self._ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=membership.generation,
                member_id=membership.member_id,
                group_instance_id=membership.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=membership.protocol,
                assignments=assignments,
            ),
            timeout_s=self._options.max_poll_interval_ms / 1000 + _JOIN_EXTRA_S,
            own=True,
        )
        _check(synced.error_code, f"joining group {self._group}")
        given = decode_assignment(synced.assignment) if synced.assignment else []
        await self._take_over(tuple(TopicPartition(*partition) for partition in given))

    async def _take_over(self, given: Partitions) -> None:
        membership = self.membership
        owned = membership.owned
        revoked = tuple(partition for partition in owned if partition not in given)
        if revoked:
            await self._with_heartbeats(self._on_revoked(revoked))
            membership.owned = tuple(partition for partition in owned if partition in given)
        await self._cluster.ensure_topics({partition.topic for partition in given})
        membership.owned = given
        new = tuple(partition for partition in given if partition not in owned)
        await self._with_heartbeats(self._on_assigned(given, new))
        if revoked and membership.cooperative:
            # What was given up is handed on in a second round (KIP-429).
            self._rejoin.set()

    async def _join_request(self) -> JoinGroupResponse:
        membership = self.membership
        while True:
            answer: JoinGroupResponse = await self._ask(
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout_ms=self._options.session_timeout_ms,
                    rebalance_timeout_ms=self._options.max_poll_interval_ms,
                    member_id=membership.member_id,
                    group_instance_id=membership.instance_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=membership.protocols(self._topics),
                ),
                timeout_s=self._options.max_poll_interval_ms / 1000 + _JOIN_EXTRA_S,
                own=True,
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                membership.member_id = answer.member_id
                continue
            _check(answer.error_code, f"joining group {self._group}")
            return answer

    async def _stay(self) -> None:
        """Heartbeat until the group or the subscription changes."""
        loop = asyncio.get_running_loop()
        interval = self._options.heartbeat_interval_ms / 1000
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._rejoin.wait()
            if self._rejoin.is_set():
                return
            if loop.time() - self._polled_at > self._options.max_poll_interval_ms / 1000:
                await self.leave()
                await self._lose(identity=True)
                await self._return()
                return
            code = await self._heartbeat()
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                return
            _check(code, f"group {self._group}")
            if self._counts and await self._grown():
                return

    async def _return(self) -> None:
        """A reader that was away for too long is out until it asks again."""
        self._polled.clear()
        await self._polled.wait()

    async def _grown(self) -> bool:
        """Whether a topic has got more partitions since the leader assigned them."""
        await self._cluster.refresh_if_old()
        counts = self._cluster.metadata.counts()
        return any(counts.get(topic, known) != known for topic, known in self._counts.items())

    async def leave(self) -> None:
        """Leave the group, so that the others need not wait for the session to end; static members stay."""
        membership = self.membership
        if membership.member_id and membership.instance_id is None:
            identity = MemberIdentity(member_id=membership.member_id, group_instance_id=None)
            with contextlib.suppress(BuswayError):
                version = (await self._cluster.any_connection()).version(ApiKey.LEAVE_GROUP)
                old = version < 3
                request = (
                    LeaveGroupRequest(group_id=self._group, member_id=membership.member_id)
                    if old
                    else LeaveGroupRequest(group_id=self._group, members=[identity])
                )
                await self._ask(request)
        membership.forget(identity=True)

    # Offsets

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets; partitions without one are left out.

        Raises:
            BrokerError, ConnectionFailed, RequestTimedOut.
        """
        topics: dict[str, OffsetFetchRequestTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(
                partition.topic, OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[])
            )
            topic.partition_indexes.append(partition.partition)
        request = OffsetFetchRequest(group_id=self._group, topics=list(topics.values()))
        answer = await self._ask(request, at_most=_ONE_GROUP_OFFSET_FETCH)
        if answer.error_code in _MOVED:
            self._node = None
        _check(answer.error_code, f"offsets of group {self._group}")
        found = {}
        for topic_answer in answer.topics:
            for partition_answer in topic_answer.partitions:
                _check(partition_answer.error_code, f"offsets of group {self._group}")
                if partition_answer.committed_offset >= 0:
                    key = TopicPartition(topic_answer.name, partition_answer.partition_index)
                    found[key] = OffsetAndMetadata(
                        partition_answer.committed_offset,
                        partition_answer.metadata or "",
                        partition_answer.committed_leader_epoch,
                    )
        return found

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit; tries again while that can help.

        Raises:
            CommitFailed: the group has moved on without this member.
            BrokerError: the offsets are refused.
            ConnectionFailed, RequestTimedOut: after the request timeout.
        """
        if not offsets:
            return
        generation = self.membership.generation
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.request_timeout_ms / 1000
        backoff = self._cluster.backoff()
        while True:
            problem: BuswayError
            try:
                code = await self._commit_once(offsets)
                if code is ErrorCode.NONE:
                    return
                if code in _REJOIN or code is ErrorCode.FENCED_INSTANCE_ID:
                    raise CommitFailed(
                        f"group {self._group} has moved on ({code.name}): the offsets were not committed, their records "
                        "will be read again by whoever has the partitions now"
                    )
                if code in _MOVED:
                    self._node = None
                problem = BrokerError(code, f"committing offsets of group {self._group}")
                if not code.retriable:
                    raise problem
            except (ConnectionFailed, RequestTimedOut) as failed:
                problem = failed
            if loop.time() >= deadline:
                raise problem
            await asyncio.sleep(backoff.next())
            if self.membership.generation != generation:
                # The offsets of one generation, sent in the name of the next, would undo what its members commit.
                raise CommitFailed(f"group {self._group} was joined anew while its offsets were being committed")

    async def _commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> ErrorCode:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, offset in offsets.items():
            topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic, partitions=[]))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        answer = await self._ask(
            OffsetCommitRequest(
                group_id=self._group,
                generation_id_or_member_epoch=self.membership.generation,
                member_id=self.membership.member_id,
                group_instance_id=self.membership.instance_id,
                topics=list(topics.values()),
            ),
            at_most=_NAMED_COMMIT - 1,
        )
        codes = {error_for(found.error_code) for topic in answer.topics for found in topic.partitions}
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)


def _check(number: int, what: str) -> None:
    code = error_for(number)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, what)
