"""A member of a group at work: joins, takes over, gives up.

What lives here: the loop around the group protocol. What does not: what an assignment is (`membership_classic`), where the coordinator
is (`coordinator`), showing that the member lives (`heart`), commits (`offsets`) and reading (`fetcher`).

Partitions are given up when the group says so: a rebalance that takes them, or the end of the session. A coordinator that is away for a
while is neither.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from busway.cluster.client import ClusterClient
from busway.cluster.coordinator import PASSING
from busway.consumer.coordinator import Coordinator, Member
from busway.consumer.heart import Pace
from busway.consumer.heart_thread import ThreadHeart
from busway.consumer.membership_classic import Membership
from busway.consumer.offsets import GroupOffsets
from busway.consumer.sharing import unshared, unshared_now
from busway.errors import BrokerError, BuswayError, ConnectionFailed, RequestTimedOut
from busway.options import ConsumerOptions
from busway.types import GroupMetadata, TopicPartition
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from busway_protocol.errors import ErrorCode, MalformedMessage, error_for
from busway_protocol.messages.groups_classic import (
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

log = logging.getLogger("busway.consumer")

_JOIN_EXTRA_S: Final = 5.0
_SHOWN: Final = 20
"""Partitions that a line of the log names."""
_ENDED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})

Partitions = tuple[TopicPartition, ...]


class GroupMember:
    """Keeps one member in its group.

    Args:
        connect: makes a client of its own for what shows that the member lives, on another event loop.
        on_revoked: awaited with partitions before they are given up; while it runs they are still this member's.
        on_assigned: awaited with the whole new assignment and what of it is new.
        on_lost: awaited when the partitions are gone already.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        options: ConsumerOptions,
        *,
        connect: Callable[[], ClusterClient],
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
        self._doubts = False
        """This member leads, and does not know that all is shared."""
        self._coordinator = Coordinator(cluster, self._group)
        self._settled = asyncio.Event()
        self._settled.set()
        self.offsets = GroupOffsets(
            self._coordinator,
            self.membership,
            self._settled,
            group=self._group,
            timeout_s=options.request_timeout_ms / 1000,
            stable=options.isolation_level == "read_committed",
        )
        self._heart = ThreadHeart(self._coordinator, connect, Pace.of(options))
        self._news = asyncio.Event()
        """Something of what follows was set."""
        self._rejoin = False
        self._verdict: ErrorCode | None = None
        self._is_overdue = False
        self._polled = asyncio.Event()
        self.problem: Exception | None = None

    def polled(self) -> None:
        """The reader has asked for records."""
        self._heart.reader.polled()
        self._polled.set()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join, or join again, for these topics."""
        self._topics = frozenset(topics)
        self._join_again()

    def metadata_changed(self) -> None:
        """Share again if a topic has got more partitions since this member, the leader, assigned them."""
        counts = self._cluster.metadata.counts()
        if any(counts.get(topic, known) != known for topic, known in self._counts.items()):
            log.info("group %s: topics have other partitions than were shared; sharing again", self._group)
            self._join_again()

    def _join_again(self) -> None:
        self._rejoin = True
        self._news.set()

    def metadata(self) -> GroupMetadata:
        """The member as its group knows it now."""
        membership = self.membership
        return GroupMetadata(
            group_id=self._group,
            generation=membership.generation,
            member_id=membership.member_id,
            instance_id=membership.instance_id,
        )

    # Membership

    async def run(self) -> None:
        """Stay in the group until cancelled."""
        backoff = self._coordinator.backoff()
        try:
            while self.problem is None:
                if not self._topics:
                    await self._news.wait()
                    self._news.clear()
                    continue
                try:
                    await self._join()
                    backoff.reset()
                    await self._stay()
                except BrokerError as problem:
                    await self._refused(problem)
                    await asyncio.sleep(backoff.next())
                except (ConnectionFailed, RequestTimedOut) as problem:
                    log.info("group %s: cannot be joined now, trying again: %s", self._group, problem)
                    await asyncio.sleep(backoff.next())
                except Exception as problem:  # noqa: BLE001 - a listener's own error too: whoever reads gets it
                    self.problem = problem
        finally:
            await self._heart.close()

    async def _refused(self, problem: BrokerError) -> None:
        if problem.code in PASSING:
            self._coordinator.forget()
        elif problem.code in _ENDED:
            log.warning("group %s: the session of %s is over: %s", self._group, self.membership.member_id, problem)
            await self._lose(identity=problem.code is ErrorCode.UNKNOWN_MEMBER_ID)
        elif problem.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL and self.membership.narrowed:
            log.info(
                "group %s: a member that cannot share cooperatively has come; giving up everything first", self._group
            )
            self._heart.start(self._member(), self._told)
            await self._revoke(self.membership.owned)
        elif not problem.retriable and problem.code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self.problem = problem

    async def _lose(self, *, identity: bool) -> None:
        self._heart.stop()
        lost = self.membership.owned
        self.membership.own(())
        self.membership.forget(identity=identity)
        self._settled.set()
        if lost:
            log.warning("group %s: lost %s", self._group, _shown(lost))
            await self._on_lost(lost)

    async def _join(self) -> None:
        """One rebalance: give up what has to be given up, join, sync, take over."""
        self._rejoin, self._verdict = False, None
        membership = self.membership
        await self._cluster.ensure_topics(self._topics)
        await self._coordinator.connection("join")
        if (revoked := membership.owned) and not membership.cooperative:
            await self._revoke(revoked)
        self._heart.stop()
        self._settled.clear()
        answer = await self._join_request()
        membership.joined(answer.member_id, answer.generation_id, answer.protocol_name or "")
        self._is_overdue = False
        self._heart.start(self._member(), self._told)
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
        _check(synced.error_code, f"joining group {self._group}")
        self._settled.set()
        given = decode_assignment(synced.assignment) if synced.assignment else []
        await self._take_over(tuple(TopicPartition(*partition) for partition in given))

    async def _shares(self, answer: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The leader's work; nothing for the others."""
        membership = self.membership
        leads = answer.leader == answer.member_id
        log.info(
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
        self._doubts = bool(unshared(self._counts, (data for _, data in shares)))
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
        log.info("group %s: assigned %s", self._group, _shown(new) + (f" to {len(owned)} kept" if owned else ""))
        await self._on_assigned(given, new)
        if revoked and membership.cooperative:
            # What was given up is handed on in a second round (KIP-429).
            self._join_again()

    async def _revoke(self, revoked: Partitions) -> None:
        log.info("group %s: revoking %s", self._group, _shown(revoked))
        await self._on_revoked(revoked)
        self.membership.own(partition for partition in self.membership.owned if partition not in revoked)

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
            _check(answer.error_code, f"joining group {self._group}", text)
            return answer

    async def _stay(self) -> None:
        """Until the group, the subscription or the reader wants another rebalance.

        Raises:
            BrokerError: the session is over.
        """
        while not self._rejoin:
            await self._wait_for_news()
            if self._is_overdue:
                self._is_overdue = False
                self._polled.clear()
                await self._lose(identity=True)
                await self._polled.wait()  # a reader that was away for too long is out until it asks again
                return
            verdict, self._verdict = self._verdict, None
            if verdict is ErrorCode.REBALANCE_IN_PROGRESS:
                return
            if verdict is not None:
                _check(verdict, f"group {self._group}")

    async def _wait_for_news(self) -> None:
        """A leader that doubts whether all is shared looks after a session: by then who was killed is back, or out of the group."""
        while self._doubts:
            try:
                async with asyncio.timeout(self._options.session_timeout_ms / 1000):
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
            log.info("group %s: cannot be looked at now, trying again: %s", self._group, problem)
            return
        self._doubts = False
        if rest:
            log.warning("group %s: nobody has %s; sharing again", self._group, _shown(rest))
            self._join_again()

    def _member(self) -> Member:
        membership = self.membership
        return Member(
            group=self._group,
            member_id=membership.member_id,
            generation=membership.generation,
            instance_id=membership.instance_id,
        )

    def _told(self, member: Member, code: ErrorCode | None) -> None:
        if member != self._member():
            return
        self._is_overdue |= code is None
        self._verdict = code
        self._news.set()

    def abort(self) -> None:
        """Show no more that it lives, as when the process is killed."""
        self._heart.abort()

    async def leave(self) -> None:
        """Leave the group, so that the others need not wait for the session to end; static members stay."""
        self._heart.stop()
        await self._coordinator.leave(self._member())
        self.membership.forget(identity=True)


def _check(number: int, what: str, text: str | None = None) -> None:
    code = error_for(number)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, what, text)


def _shown(partitions: Sequence[TopicPartition]) -> str:
    names = [f"{topic}-{number}" for topic, number in sorted(partitions)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more
