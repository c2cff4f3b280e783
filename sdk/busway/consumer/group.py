"""Group membership, as far as both group protocols share it.

Here: `GroupMember`: revoking, losing, errors.
Not here: the protocols (`group_classic`, `group_modern`), commits (`offsets`).

Partitions are given up in a rebalance or at the end of the session. An unavailable coordinator is neither.
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
from busway.consumer.coordinator import Coordinator
from busway.consumer.heartbeat import HeartbeatTimings
from busway.consumer.heartbeat_thread import HeartbeatThread
from busway.consumer.listener import Partitions
from busway.consumer.membership import Membership
from busway.consumer.offset_requests import OffsetVersions
from busway.consumer.offsets import GroupOffsets
from busway.errors import AuthenticationFailed, BrokerError, ConnectionFailed, RequestTimedOut
from busway.net.clock import REAL_TIME
from busway.net.retry import Backoff
from busway.options import ConsumerOptions
from busway.types import GroupMetadata, TopicPartition
from busway_protocol.errors import ErrorCode, error_for

logger: logging.Logger = logging.getLogger("busway.consumer")

_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Callbacks about a member's partitions.

    Attributes:
        on_revoked: awaited before partitions are given up, while this member owns them.
        on_assigned: awaited with the whole assignment and its new partitions.
        on_lost: awaited when the partitions are already lost.
    """

    on_revoked: Callable[[Partitions], Awaitable[None]]
    on_assigned: Callable[[Partitions, Partitions], Awaitable[None]]
    on_lost: Callable[[Partitions], Awaitable[None]]


class GroupMember(ABC):
    """Base class of the members of a group; `connect` creates the client for heartbeats, used on another event loop."""

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
        self.offsets: GroupOffsets = GroupOffsets(
            self._coordinator,
            membership,
            self._settled,
            versions=versions,
            timeout_s=options.request_timeout_ms / 1000,
            stable=options.isolation_level == "read_committed",
            subscribed=self._is_wanted,
        )
        self._pace = pace
        self._heartbeat_thread = HeartbeatThread(self._coordinator, connect)
        self._news = asyncio.Event()
        self._is_overdue = False
        self._polled = asyncio.Event()
        self.problem: Exception | None = None
        self._metadata = GroupMetadata(group_id=self._group, instance_id=membership.instance_id)

    @property
    def subscribed(self) -> bool:
        return self._is_wanted()

    @property
    def settled(self) -> bool:
        return self._settled.is_set()

    def polled(self) -> None:
        self._heartbeat_thread.reader.polled()
        self._polled.set()

    @abstractmethod
    def subscribe(self, topics: Iterable[str], server_pattern: str | None = None) -> None:
        """Join or rejoin with these topics, or an RE2 pattern for the coordinator."""

    @abstractmethod
    def metadata_changed(self) -> None:
        """React to changed partition counts."""

    def metadata(self) -> GroupMetadata:
        membership, known = self.membership, self._metadata
        if (known.generation, known.member_id) != (membership.generation, membership.member_id):
            self._metadata = dataclasses.replace(
                known, generation=membership.generation, member_id=membership.member_id
            )
        return self._metadata

    # Membership

    async def run(self) -> None:
        """Stay in the group until cancelled or `problem` is set."""
        backoff = self._coordinator.backoff()
        try:
            while self.problem is None:
                await self._run_once(backoff)
        finally:
            self._heartbeat_thread.stop()

    async def _run_once(self, backoff: Backoff) -> None:
        if not self._is_wanted():
            await self._news.wait()
            self._news.clear()
            return
        try:
            await self._be_member(backoff)
        except BrokerError as problem:
            await self._refused(problem)
            await REAL_TIME.sleep(backoff.next())
        except AuthenticationFailed as problem:
            self.problem = problem
        except (ConnectionFailed, RequestTimedOut) as problem:
            logger.info("group %s: cannot be joined now, trying again: %s", self._group, problem)
            await REAL_TIME.sleep(backoff.next())
        except Exception as problem:  # noqa: BLE001 - also the listener's errors: the next poll raises them
            self.problem = problem

    @abstractmethod
    def _is_wanted(self) -> bool:
        """Return whether the member has a subscription."""

    @abstractmethod
    async def _be_member(self, backoff: Backoff) -> None:
        """Join and stay until a rejoin is needed; reset the backoff after joining."""

    async def _refused(self, problem: BrokerError) -> None:
        if problem.code in PASSING:
            self._coordinator.forget()
        elif not problem.retriable:
            self.problem = problem

    async def _lose(self, *, identity: bool) -> None:
        self._heartbeat_thread.stop()
        lost = self.membership.owned
        self.membership.own(())
        self.membership.forget(identity=identity)
        self._settled.set()
        if lost:
            logger.warning("group %s: lost %s", self._group, shown(lost))
            await self._listener.on_lost(lost)

    async def _lose_until_polled(self) -> None:
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
        self._heartbeat_thread.abort()

    async def leave(self) -> None:
        self._heartbeat_thread.stop()
        await self._leave()
        self.membership.forget(identity=True)

    @abstractmethod
    async def _leave(self) -> None: ...

    async def close(self) -> None:
        await self._heartbeat_thread.close()


def check(error_code: int, what: str, text: str | None = None) -> None:
    code = error_for(error_code)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, what, text)


def shown(partitions: Sequence[TopicPartition]) -> str:
    names = [f"{topic}-{partition_index}" for topic, partition_index in sorted(partitions)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more
