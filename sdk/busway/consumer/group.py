"""A member of a group at work: in it, with partitions that come and go.

What lives here: `GroupMember`, which is what a consumer needs of its group, and what both group protocols share: giving up, losing,
refusals. What does not: the protocols (`group_classic`, `group_modern`), which of them is spoken (`protocols`), where the coordinator is
(`coordinator`), showing that the member lives (`heartbeat`, `heartbeat_modern`), commits (`offsets`) and reading (`fetcher`).

Partitions are given up when the group says so: a rebalance that takes them, or the end of the session. A coordinator that is away for a
while is neither.
"""

import asyncio
import dataclasses
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from busway.cluster.client import ClusterClient
from busway.cluster.coordinator import PASSING
from busway.cluster.retry import Backoff
from busway.consumer.coordinator import Coordinator
from busway.consumer.heartbeat import HeartbeatTimings
from busway.consumer.heartbeat_thread import HeartbeatThread
from busway.consumer.listener import Partitions
from busway.consumer.membership import Membership
from busway.consumer.offset_requests import OffsetVersions
from busway.consumer.offsets import GroupOffsets
from busway.errors import BrokerError, ConnectionFailed, RequestTimedOut
from busway.net.clock import REAL_TIME
from busway.options import ConsumerOptions
from busway.types import GroupMetadata, TopicPartition
from busway_protocol.errors import ErrorCode, error_for

logger = logging.getLogger("busway.consumer")

_SHOWN: Final = 20
"""Partitions that a line of the log names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who is told about a member's partitions.

    Attributes:
        on_revoked: awaited with partitions before they are given up; while it runs they are still this member's.
        on_assigned: awaited with the whole new assignment and what of it is new.
        on_lost: awaited when the partitions are gone already.
    """

    on_revoked: Callable[[Partitions], Awaitable[None]]
    on_assigned: Callable[[Partitions, Partitions], Awaitable[None]]
    on_lost: Callable[[Partitions], Awaitable[None]]


class GroupMember(ABC):
    """Keeps one member in its group.

    Args:
        connect: makes a client of its own for what shows that the member lives, on another event loop.
        versions: in which offsets are asked for and committed.
    """

    membership: Membership

    def __init__(
        self,
        cluster: ClusterClient,
        options: ConsumerOptions,
        membership: Membership,
        *,
        connect: Callable[[], ClusterClient],
        listener: Listener,
        pace: HeartbeatTimings,
        versions: OffsetVersions,
    ) -> None:
        assert options.group_id is not None
        self._cluster = cluster
        self._options = options
        self._group = options.group_id
        self._listener = listener
        self.membership = membership
        self._coordinator = Coordinator(cluster, self._group)
        self._settled = asyncio.Event()
        self._settled.set()
        self.offsets = GroupOffsets(
            self._coordinator,
            membership,
            self._settled,
            versions=versions,
            timeout_s=options.request_timeout_ms / 1000,
            stable=options.isolation_level == "read_committed",
            subscribed=self._is_wanted,
        )
        self._pace = pace
        self._heart = HeartbeatThread(self._coordinator, connect)
        self._news = asyncio.Event()
        """Something that `run` waits for was set."""
        self._is_overdue = False
        self._polled = asyncio.Event()
        self.problem: Exception | None = None
        self._metadata = GroupMetadata(group_id=self._group, instance_id=membership.instance_id)

    @property
    def subscribed(self) -> bool:
        """Whether the group shares partitions out to this member, or will."""
        return self._is_wanted()

    @property
    def settled(self) -> bool:
        """Whether the member is in no rebalance."""
        return self._settled.is_set()

    def polled(self) -> None:
        """The reader has asked for records."""
        self._heart.reader.polled()
        self._polled.set()

    @abstractmethod
    def subscribe(self, topics: Iterable[str], server_pattern: str | None = None) -> None:
        """Join, or join again, for these topics, or for those that the coordinator finds to match an RE2 pattern."""

    @abstractmethod
    def metadata_changed(self) -> None:
        """Topics may have other partitions than before."""

    def metadata(self) -> GroupMetadata:
        """The member as its group knows it now."""
        membership, known = self.membership, self._metadata
        if (known.generation, known.member_id) != (membership.generation, membership.member_id):
            self._metadata = dataclasses.replace(
                known, generation=membership.generation, member_id=membership.member_id
            )
        return self._metadata

    # Membership

    async def run(self) -> None:
        """Stay in the group until cancelled."""
        backoff = self._coordinator.backoff()
        try:
            while self.problem is None:
                await self._go_on(backoff)
        finally:
            self._heart.stop()

    async def _go_on(self, backoff: Backoff) -> None:
        if not self._is_wanted():
            await self._news.wait()
            self._news.clear()
            return
        try:
            await self._be_member(backoff)
        except BrokerError as problem:
            await self._refused(problem)
            await REAL_TIME.sleep(backoff.next())
        except (ConnectionFailed, RequestTimedOut) as problem:
            logger.info("group %s: cannot be joined now, trying again: %s", self._group, problem)
            await REAL_TIME.sleep(backoff.next())
        except Exception as problem:  # noqa: BLE001 - a listener's own error too: whoever reads gets it
            self.problem = problem

    @abstractmethod
    def _is_wanted(self) -> bool:
        """Whether there is anything to be a member for."""

    @abstractmethod
    async def _be_member(self, backoff: Backoff) -> None:
        """Join and stay, until the group has to be joined again; resets the backoff once it has joined.

        Raises:
            BrokerError, ConnectionFailed, RequestTimedOut: it cannot be joined, or the session is over.
        """

    async def _refused(self, problem: BrokerError) -> None:
        if problem.code in PASSING:
            self._coordinator.forget()
        elif not problem.retriable:
            self.problem = problem

    async def _lose(self, *, identity: bool) -> None:
        self._heart.stop()
        lost = self.membership.owned
        self.membership.own(())
        self.membership.forget(identity=identity)
        self._settled.set()
        if lost:
            logger.warning("group %s: lost %s", self._group, shown(lost))
            await self._listener.on_lost(lost)

    async def _lose_until_polled(self) -> None:
        """A reader that was away for too long is out until it asks again."""
        self._is_overdue = False
        self._polled.clear()
        await self._lose(identity=True)
        await self._polled.wait()

    async def _revoke(self, revoked: Partitions) -> None:
        logger.info("group %s: revoking %s", self._group, shown(revoked))
        await self._listener.on_revoked(revoked)
        self.membership.own(partition for partition in self.membership.owned if partition not in revoked)

    # The end

    def abort(self) -> None:
        """Show no more that it lives, as when the process is killed."""
        self._heart.abort()

    async def leave(self) -> None:
        """Leave the group, so that the others need not wait for the session to end."""
        self._heart.stop()
        await self._leave()
        self.membership.forget(identity=True)

    @abstractmethod
    async def _leave(self) -> None: ...

    async def close(self) -> None:
        """Let go of everything; to be called last, also when it was aborted."""
        await self._heart.close()


def check(number: int, what: str, text: str | None = None) -> None:
    """Whether a broker's answer is no refusal.

    Raises:
        BrokerError: it is one.
    """
    code = error_for(number)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, what, text)


def shown(partitions: Sequence[TopicPartition]) -> str:
    """Partitions as the log shows them."""
    names = [f"{topic}-{number}" for topic, number in sorted(partitions)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more
