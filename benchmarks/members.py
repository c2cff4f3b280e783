"""Members of groups that cost next to nothing, so that the coordinator is what limits them.

Here: what a member says in each of the two protocols, and who has which partitions.
Not here: what is measured (`groups`).
"""

import asyncio
from collections.abc import Mapping
from typing import Final
from uuid import UUID, uuid4

from tests.support.raw_client import RawClient

from benchmarks.clients import LoadFailed
from busway_protocol.assignors.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from busway_protocol.assignors.range import assign
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from busway_protocol.messages.groups_modern import ConsumerGroupHeartbeatRequest, TopicPartitions
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

HEARTBEAT_S = 0.1
SESSION_MS = 45_000
REBALANCE_MS = 60_000
_COME_AGAIN: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


class Share:
    """Who has which partitions of one topic."""

    def __init__(self, topic: str, topic_id: UUID, partitions: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = partitions
        self._owned: dict[str, frozenset[int]] = {}
        self._changed = asyncio.Event()

    @classmethod
    async def of(cls, client: RawClient, topic: str, partitions: int) -> "Share":
        """The topic as the broker knows it."""
        answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        return cls(topic, answer.topics[0].topic_id, partitions)

    def has(self, member_id: str, partitions: frozenset[int] | None) -> None:
        """What a member has now; None while it has to wait for its share."""
        if partitions is None:
            self._owned.pop(member_id, None)
        else:
            self._owned[member_id] = partitions
        self._changed.set()

    async def settled(self, members: int) -> None:
        """Return when so many members have equal shares that are all of the topic."""
        while not self._is_settled(members):
            self._changed.clear()
            await self._changed.wait()

    def _is_settled(self, members: int) -> bool:
        counts = {len(owned) for owned in self._owned.values()}
        return (
            len(self._owned) == members
            and sum(len(owned) for owned in self._owned.values()) == self.partitions
            and max(counts) - min(counts) <= 1
        )

    def says(self) -> str:
        """How far it is, for a message."""
        return f"{len(self._owned)} members have {sum(len(owned) for owned in self._owned.values())} partitions"


class Member:
    """One member with a connection of its own."""

    def __init__(self, bootstrap_servers: str, group: str, share: Share) -> None:
        self._client = RawClient(bootstrap_servers)
        self._group = group
        self._share = share
        self._member_id = ""

    async def run(self) -> None:
        """Be a member until cancelled."""
        raise NotImplementedError


class ClassicMember(Member):
    """A member by the classic protocol, eager, with the range assignor."""

    async def run(self) -> None:
        """Be a member until cancelled."""
        async with self._client as client:
            while True:
                generation = await self._join(client)
                while generation >= 0:
                    await asyncio.sleep(HEARTBEAT_S)
                    answer = await client.ask(
                        HeartbeatRequest(group_id=self._group, generation_id=generation, member_id=self._member_id), 4
                    )
                    if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                        break
                    _expect(answer.error_code)

    async def _join(self, client: RawClient) -> int:
        """The generation, -1 where it is over before it began."""
        self._share.has(self._member_id, None)
        protocol = JoinGroupRequestProtocol(
            name="range", metadata=encode_subscription(Subscription(topics=(self._share.topic,)))
        )
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[protocol],
            )
            joined = await client.ask(request, 7)
            self._member_id = joined.member_id
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
        _expect(joined.error_code)
        synced = await client.ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name="range",
                assignments=self._assignments([member.member_id for member in joined.members]),
            ),
            5,
        )
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return -1
        _expect(synced.error_code)
        owned = frozenset(number for _, number in decode_assignment(synced.assignment))
        self._share.has(self._member_id, owned)
        return int(joined.generation_id)

    def _assignments(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """What the leader says; no other member knows any."""
        if not members:
            return []
        subscriptions = {member: Subscription(topics=(self._share.topic,)) for member in members}
        assigned = assign({self._share.topic: self._share.partitions}, subscriptions)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
            for member, partitions in assigned.items()
        ]


class ConsumerMember(Member):
    """A member by the consumer protocol (KIP-848), which gives up and takes over at once what it is asked to."""

    def __init__(self, bootstrap_servers: str, group: str, share: Share) -> None:
        super().__init__(bootstrap_servers, group, share)
        self._member_id = str(uuid4())

    async def run(self) -> None:
        """Be a member until cancelled."""
        epoch, owned, reported = 0, frozenset[int](), False
        async with self._client as client:
            while True:
                answer = await client.ask(self._heartbeat(epoch, owned, reported=reported), 1)
                _expect(answer.error_code)
                epoch, reported = answer.member_epoch, True
                if answer.assignment is None:
                    self._share.has(self._member_id, owned)
                    await asyncio.sleep(HEARTBEAT_S)
                    continue
                assigned = [number for topic in answer.assignment.topic_partitions for number in topic.partitions]
                reported, owned = frozenset(assigned) == owned, frozenset(assigned)
                self._share.has(self._member_id, owned)

    def _heartbeat(self, epoch: int, owned: frozenset[int], *, reported: bool) -> ConsumerGroupHeartbeatRequest:
        """Everything when it joins, then what it has where that has changed."""
        partitions = [TopicPartitions(topic_id=self._share.topic_id, partitions=sorted(owned))] if owned else []
        request = ConsumerGroupHeartbeatRequest(group_id=self._group, member_id=self._member_id, member_epoch=epoch)
        if epoch == 0:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [self._share.topic]
            request.topic_partitions = []
        elif not reported:
            request.topic_partitions = partitions
        return request


async def coordinated(client: RawClient, group: str) -> None:
    """Return when there is a coordinator that answers for the group; Kafka makes and loads the topic when it is first asked."""
    for _ in range(200):
        coordinator = await client.ask(FindCoordinatorRequest(key=group), 2)
        if coordinator.error_code == ErrorCode.NONE:
            described = await client.ask(DescribeGroupsRequest(groups=[group]), 4)
            if described.groups[0].error_code not in _COME_AGAIN:
                return
        await asyncio.sleep(HEARTBEAT_S)
    raise LoadFailed(f"{group} has no coordinator")


KINDS: Final[Mapping[str, type[Member]]] = {"classic": ClassicMember, "consumer": ConsumerMember}


def _expect(code: int) -> None:
    if code != ErrorCode.NONE:
        raise LoadFailed(f"a member was told {ErrorCode(code).name}")
