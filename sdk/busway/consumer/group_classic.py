"""Membership loop of a classic group: joining, syncing, taking over, rejoining.

Not here: assignments (`membership_classic`), what both protocols share (`group`).
"""

import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.consumer.coordinator import Coordinator, Member
from busway.consumer.group import GroupMember, Listener, check, shown
from busway.consumer.heartbeat import HeartbeatTimings, OnResponse, send_heartbeats
from busway.consumer.listener import Partitions
from busway.consumer.membership_classic import ClassicMembership
from busway.consumer.offset_requests import CLASSIC
from busway.consumer.unassigned import unassigned, unshared_now
from busway.errors import BrokerError, BuswayError
from busway.net.clock import REAL_TIME
from busway.net.retry import Backoff
from busway.options import ConsumerOptions
from busway.types import TopicPartition
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from busway_protocol.errors import ErrorCode, MalformedMessage
from busway_protocol.messages.groups_classic import (
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

logger: logging.Logger = logging.getLogger("busway.consumer")

_JOIN_EXTRA_S: Final = 5.0
_ENDED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class ClassicMember(GroupMember):
    membership: ClassicMembership

    def __init__(
        self,
        cluster: ClusterClient,
        options: ConsumerOptions,
        *,
        connect: Callable[[], ClusterClient],
        listener: Listener,
    ) -> None:
        membership = ClassicMembership(
            strategies=options.partition_assignment_strategy, instance_id=options.group_instance_id
        )
        super().__init__(
            cluster,
            options,
            membership,
            connect=connect,
            listener=listener,
            pace=HeartbeatTimings.of(options),
            versions=CLASSIC,
        )
        self._topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        self._doubts = False
        self._rejoin = False
        self._heartbeat_error: ErrorCode | None = None

    def subscribe(self, topics: Iterable[str], server_pattern: str | None = None) -> None:
        """Join or rejoin; raise `ValueError` for a `server_pattern`, which needs the consumer protocol."""
        if server_pattern is not None:
            raise ValueError(
                "server_pattern is for group_protocol='consumer', and this group is a classic one; give a pattern, which is a Python "
                "regular expression and is matched here"
            )
        self._topics = frozenset(topics)
        self._join_again()

    def metadata_changed(self) -> None:
        counts = self._cluster.metadata.counts()
        if any(counts.get(topic, known) != known for topic, known in self._counts.items()):
            logger.info("group %s: topics have other partitions than were shared; sharing again", self._group)
            self._join_again()

    def _join_again(self) -> None:
        self._rejoin = True
        self._news.set()

    def _is_wanted(self) -> bool:
        return bool(self._topics)

    async def _be_member(self, backoff: Backoff) -> None:
        await self._join()
        backoff.reset()
        await self._stay()

    async def _refused(self, problem: BrokerError) -> None:
        if problem.code in _ENDED:
            logger.warning("group %s: the session of %s is over: %s", self._group, self.membership.member_id, problem)
            await self._lose(identity=problem.code is ErrorCode.UNKNOWN_MEMBER_ID)
        elif problem.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL and self.membership.narrowed:
            logger.info(
                "group %s: a member that cannot share cooperatively has come; giving up everything first", self._group
            )
            self._beat()
            await self._revoke(self.membership.owned)
        elif problem.code is not ErrorCode.REBALANCE_IN_PROGRESS:
            await super()._refused(problem)

    def _beat(self) -> None:
        member, reader, pace = self._member(), self._heartbeat_thread.reader, self._pace

        def heartbeat_loop(coordinator: Coordinator, on_response: OnResponse) -> Coroutine[Any, Any, None]:
            return send_heartbeats(coordinator, member, reader, pace, on_response)

        self._heartbeat_thread.start(heartbeat_loop, self._on_response)

    async def _join(self) -> None:
        self._rejoin, self._heartbeat_error = False, None
        membership = self.membership
        await self._cluster.ensure_topics(self._topics)
        await self._coordinator.connection("join")
        if (revoked := membership.owned) and not membership.cooperative:
            await self._revoke(revoked)
        self._heartbeat_thread.stop()
        self._settled.clear()
        answer = await self._join_request()
        membership.joined(answer.member_id, answer.generation_id, answer.protocol_name or "")
        self._is_overdue = False
        self._beat()
        synced: SyncGroupResponse = await self._coordinator.ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=membership.generation,
                member_id=membership.member_id,
                group_instance_id=membership.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=membership.protocol,
                assignments=await self._shares(answer),
            ),
            timeout_s=self._options.max_poll_interval_ms / 1000 + _JOIN_EXTRA_S,
            purpose="join",
        )
        check(synced.error_code, f"joining group {self._group}")
        self._settled.set()
        given = decode_assignment(synced.assignment) if synced.assignment else []
        await self._take_over(tuple(TopicPartition(*partition) for partition in given))

    async def _shares(self, answer: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        membership = self.membership
        leads = answer.leader == answer.member_id
        logger.info(
            "group %s: joined as %s%s, generation %d, %s",
            self._group,
            membership.member_id,
            " (leader)" if leads else "",
            membership.generation,
            membership.protocol,
        )
        self._counts, self._doubts = {}, False
        if not leads:
            return []
        topics = membership.wanted_topics(answer.members)
        await self._cluster.ensure_topics(topics)
        counts = self._cluster.metadata.counts()
        self._counts = {topic: counts[topic] for topic in topics if topic in counts}
        if answer.skip_assignment:
            self._doubts = True
            return []
        shares = membership.assign(answer.members, self._counts)
        self._doubts = bool(unassigned(self._counts, (data for _, data in shares)))
        return [SyncGroupRequestAssignment(member_id=member_id, assignment=data) for member_id, data in shares]

    async def _take_over(self, given: Partitions) -> None:
        membership = self.membership
        owned = membership.owned
        revoked = tuple(partition for partition in owned if partition not in given)
        if revoked:
            await self._revoke(revoked)
        await self._cluster.ensure_topics({partition.topic for partition in given})
        membership.own(given)
        new = tuple(partition for partition in given if partition not in owned)
        logger.info("group %s: assigned %s", self._group, shown(new) + (f" to {len(owned)} kept" if owned else ""))
        await self._listener.on_assigned(given, new)
        if revoked and membership.cooperative:
            # Revoked partitions are reassigned in a second round (KIP-429).
            self._join_again()

    async def _join_request(self) -> JoinGroupResponse:
        membership = self.membership
        while True:
            answer: JoinGroupResponse = await self._coordinator.ask(
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
                purpose="join",
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                membership.member_id = answer.member_id
                continue
            text = None
            if answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                text = (
                    f"its members share partitions by none of {', '.join(membership.offered)}; all need one "
                    "partition_assignment_strategy in common"
                )
            check(answer.error_code, f"joining group {self._group}", text)
            return answer

    async def _stay(self) -> None:
        while not self._rejoin:
            await self._wait_for_news()
            if self._is_overdue:
                await self._lose_until_polled()
                return
            error, self._heartbeat_error = self._heartbeat_error, None
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                return
            if error is not None:
                check(error, f"group {self._group}")

    async def _wait_for_news(self) -> None:
        """Wait for news; a doubting leader checks the assignment after each session timeout.

        By then a killed member is back or out of the group.
        """
        while self._doubts:
            try:
                async with REAL_TIME.timeout(self._options.session_timeout_ms / 1000):
                    await self._news.wait()
                break
            except TimeoutError:
                await self._share_the_rest()
        await self._news.wait()
        self._news.clear()

    async def _share_the_rest(self) -> None:
        try:
            rest = await unshared_now(self._coordinator, self._counts)
        except (BuswayError, MalformedMessage) as problem:
            logger.info("group %s: cannot be looked at now, trying again: %s", self._group, problem)
            return
        self._doubts = False
        if rest:
            logger.warning("group %s: %s are not assigned; joining again", self._group, shown(rest))
            self._join_again()

    def _member(self) -> Member:
        membership = self.membership
        return Member(
            group=self._group,
            member_id=membership.member_id,
            generation=membership.generation,
            instance_id=membership.instance_id,
        )

    def _on_response(self, member: Member, code: ErrorCode | None) -> None:
        if member != self._member():
            return
        self._is_overdue |= code is None
        self._heartbeat_error = code
        self._news.set()

    async def _leave(self) -> None:
        await self._coordinator.leave(self._member())
