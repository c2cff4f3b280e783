"""Membership loop of a consumer group (KIP-848).

Not here: heartbeats (`heartbeat_modern`), what both protocols share (`group`).

Heartbeats, and with them the member epoch, advance in a separate thread. This loop processes only the latest response.
"""

import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final
from uuid import UUID

from busway.cluster.client import ClusterClient
from busway.consumer.coordinator import Coordinator
from busway.consumer.group import GroupMember, Listener, shown
from busway.consumer.heartbeat import HeartbeatTimings, OnResponse
from busway.consumer.heartbeat_modern import HeartbeatSession, Refused, converse, leave
from busway.consumer.membership import Membership
from busway.consumer.membership_modern import (
    DesiredSubscription,
    HeartbeatState,
    Identity,
    Share,
    TargetAssignment,
    resolved,
)
from busway.consumer.offset_requests import MODERN
from busway.errors import BrokerError, BuswayError
from busway.net.clock import REAL_TIME
from busway.net.machine import current_machine
from busway.net.retry import Backoff
from busway.options import ConsumerOptions
from busway.types import TopicPartition
from busway_protocol.errors import ErrorCode

logger: logging.Logger = logging.getLogger("busway.consumer")

_ENDED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_NOT_SERVED: Final = frozenset(
    {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.UNSUPPORTED_VERSION}
)
"""Errors of a coordinator that does not serve this as a consumer group: another type, or migration is off."""


class ModernMember(GroupMember):
    def __init__(
        self,
        cluster: ClusterClient,
        options: ConsumerOptions,
        *,
        connect: Callable[[], ClusterClient],
        listener: Listener,
    ) -> None:
        membership = Membership(instance_id=options.group_instance_id)
        pace = HeartbeatTimings.of(options)
        super().__init__(cluster, options, membership, connect=connect, listener=listener, pace=pace, versions=MODERN)
        self._identity = Identity(
            group=self._group, member_id=str(current_machine().uuid4()), instance_id=options.group_instance_id
        )
        self._subscription = DesiredSubscription(
            assignor=options.group_remote_assignor, rebalance_timeout_ms=options.max_poll_interval_ms
        )
        self._heartbeat_session: HeartbeatSession | None = None
        self._session = 0
        self._given: TargetAssignment | None = None
        self._heartbeat_error: Refused | None = None
        self._names: dict[UUID, str] = {}
        self._has: Share = frozenset()
        self._stepped: TargetAssignment | None = None
        self._acknowledged: TargetAssignment | None = None
        """The last assignment processed (`_stepped`), and the last one completed."""

    def subscribe(self, topics: Iterable[str], server_pattern: str | None = None) -> None:
        self._subscription = DesiredSubscription(
            topics=tuple(sorted(topics)),
            pattern=server_pattern,
            assignor=self._subscription.assignor,
            rebalance_timeout_ms=self._subscription.rebalance_timeout_ms,
        )
        if self._heartbeat_session is not None:
            self._heartbeat_thread.call(self._heartbeat_session.wants, self._subscription)
        self._news.set()

    def metadata_changed(self) -> None:
        """Do nothing: the coordinator detects new partitions."""

    def _is_wanted(self) -> bool:
        return bool(self._subscription)

    # A session

    async def _be_member(self, backoff: Backoff) -> None:
        if self._heartbeat_session is None:
            self._join()
        while True:
            self._news.clear()
            if self._is_overdue:
                await self._lose_until_polled()
                return
            if self._heartbeat_error is not None:
                raise BrokerError(self._heartbeat_error.code, f"group {self._group}", self._heartbeat_error.text)
            if self._given is not None and self._given != self._acknowledged:
                if not await self._step(self._given):
                    await self._wait_for_names(backoff)
                    continue
                backoff.reset()
            await self._news.wait()

    def _join(self) -> None:
        self._session += 1
        self._given = self._heartbeat_error = self._stepped = self._acknowledged = None
        self._is_overdue = False
        self._heartbeat_session = heartbeats = HeartbeatSession(
            HeartbeatState(self._identity, self._subscription), self._session
        )
        reader, pace = self._heartbeat_thread.reader, self._pace

        def heartbeat_loop(coordinator: Coordinator, on_response: OnResponse) -> Coroutine[Any, Any, None]:
            return converse(coordinator, heartbeats, reader, pace, on_response)

        self._heartbeat_thread.start(heartbeat_loop, self._on_response)

    def _on_response(self, session: int, what: TargetAssignment | Refused | None) -> None:
        if session != self._session or self._heartbeat_session is None:
            return
        if what is None:
            self._is_overdue = True
        elif isinstance(what, Refused):
            self._heartbeat_error = what
        else:
            if self._given is None:
                self.membership.member_id = self._identity.member_id
                logger.info("group %s: joined as %s, epoch %d", self._group, self._identity.member_id, what.epoch)
            self._given = what
            self.membership.generation = what.epoch
        self._news.set()

    async def _step(self, given: TargetAssignment) -> bool:
        """Revoke removed partitions, take over new ones, then acknowledge.

        Return whether all assigned topics have a known name, or the session ended.
        """
        await self._learn_names(given.share)
        ready, nameless = resolved(given.share, self._names)
        if gone := self._has - ready:
            await self._revoke(self._partitions(gone))
            self._has -= gone
        if self._is_over():
            return True
        if new := ready - self._has:
            await self._take_over(new)
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in _topics(self._has)}
        if self._is_over():
            return True
        if gone or new or given != self._stepped:
            self._report_owned(done=True)
        self._stepped = given
        if not nameless:
            self._acknowledged = given
        return not nameless

    async def _take_over(self, new: Share) -> None:
        had, kept = self._has, self.membership.owned
        added = self._partitions(new)
        await self._cluster.ensure_topics({partition.topic for partition in added})
        if self._is_over():
            return
        self._has = had | new
        self._report_owned(done=False)  # a full heartbeat must not report these as given up
        self.membership.own((*kept, *added))
        logger.info("group %s: assigned %s", self._group, shown(added) + (f" to {len(kept)} kept" if kept else ""))
        try:
            await self._listener.on_assigned(self.membership.owned, added)
        except BuswayError:  # the step is retried
            self._has = had
            self.membership.own(kept)
            raise

    def _is_over(self) -> bool:
        return self._heartbeat_error is not None or self._is_overdue

    def _report_owned(self, *, done: bool) -> None:
        if self._heartbeat_session is not None:
            self._heartbeat_thread.call(self._heartbeat_session.has, self._has, done)

    def _partitions(self, share: Share) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(TopicPartition(self._names[topic_id], partition_index) for topic_id, partition_index in share)
        )

    # The names of topics

    async def _learn_names(self, share: Share) -> None:
        self._take_names(_topics(share))
        if missing := _topics(share) - self._names.keys():
            with contextlib.suppress(BuswayError):
                self._names |= await self._cluster.topic_names(sorted(missing))

    def _take_names(self, topic_ids: frozenset[UUID]) -> None:
        for name, topic in self._cluster.metadata.topics.items():
            if topic.topic_id in topic_ids:
                self._names[topic.topic_id] = name

    async def _wait_for_names(self, backoff: Backoff) -> None:
        with contextlib.suppress(TimeoutError):
            async with REAL_TIME.timeout(backoff.next()):
                await self._news.wait()

    # The end of a session

    async def _refused(self, problem: BrokerError) -> None:
        error = self._heartbeat_error
        if error is None:
            await super()._refused(problem)
            return
        joined = self._given is not None
        await self._lose(identity=True)
        if error.code in _ENDED or (joined and error.code is ErrorCode.GROUP_ID_NOT_FOUND):
            logger.warning("group %s: the session of %s is over: %s", self._group, self._identity.member_id, problem)
        elif error.code in _NOT_SERVED:
            remedy = "its coordinator does not balance it: to be a member of it, say group_protocol='classic'"
            problem = BrokerError(error.code, f"group {self._group}", f"{error.text}; {remedy}")
            self.problem: Exception | None = problem
        else:
            self.problem = problem

    async def _lose(self, *, identity: bool) -> None:
        self._heartbeat_session = None
        self._has = frozenset()
        self._names = {}
        await super()._lose(identity=identity)

    async def _leave(self) -> None:
        if self._heartbeat_session is not None:
            identity = self._identity
            # On the heartbeat connection, behind a join that may be in flight.
            await self._heartbeat_thread.close(lambda coordinator: leave(coordinator, identity))


def _topics(share: Share) -> frozenset[UUID]:
    return frozenset(topic_id for topic_id, _ in share)
