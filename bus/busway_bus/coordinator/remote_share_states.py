"""States of share partitions at the share coordinators of all brokers: a `kernel.share_state.SharePersister`.

Here: which broker coordinates a share partition, requests 83 to 87 to the others, retries while it moves, as in Kafka's
`PersisterStateManager`.
Not here: the states of this broker's shards (`share_state_coordinator`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from busway_bus.coordinator.broker_queues import BrokerQueues, Destination
from busway_bus.coordinator.placement import keeper_of
from busway_bus.coordinator.share_state_coordinator import coordinator_key
from busway_bus.kernel.node_channels import BrokerChannels
from busway_bus.kernel.share_state import SharePartitionKey, SharePersister, ShareState, StateBatch
from busway_bus.kernel.topics import SHARE_STATE_TOPIC
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import NO_LEADER, ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages import share_state as messages

R = TypeVar("R")
_TOGETHER: Final = 100
"""Share partitions of one request."""
_ATTEMPTS: Final = 10
_BACKOFF_S: Final = (0.1, 1.0)
"""First and longest backoff: together about 6 s, in which a failover is over."""
_RETRIED: Final = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
}
"""Errors after which the coordinator is looked up again. A write that was carried out changes nothing when it is repeated."""


class _Kind(NamedTuple):
    """A request, and the type of its entry for a topic."""

    name: str
    request: Callable[..., Any]
    topic: Callable[..., Any]


_INITIALIZE: Final = _Kind("initialize", messages.InitializeShareGroupStateRequest, messages.InitializeStateData)
_READ: Final = _Kind("read", messages.ReadShareGroupStateRequest, messages.ReadStateData)
_WRITE: Final = _Kind("write", messages.WriteShareGroupStateRequest, messages.WriteStateData)
_DELETE: Final = _Kind("delete", messages.DeleteShareGroupStateRequest, messages.DeleteStateData)
_SUMMARY: Final = _Kind("summary", messages.ReadShareGroupStateSummaryRequest, messages.ReadStateSummaryData)


class _Asked(NamedTuple):
    kind: _Kind
    key: SharePartitionKey
    entry: Any


class LocalShareStates(SharePersister, Protocol):
    """The share coordinator of this broker."""

    async def ensure(self) -> None:
        """Create the topic of the states where it does not exist."""


class ClusterSharePersister:
    """Persists share partitions with the leader of the partition that keeps each.

    Args:
        local: for those that this broker coordinates.
        image: the newest image, which names the leaders.
        timeout_ms: of a request.
    """

    def __init__(
        self,
        local: LocalShareStates,
        node_id: int,
        channels: BrokerChannels,
        *,
        image: Callable[[], ClusterImage],
        timeout_ms: int,
    ) -> None:
        self._local = local
        self._node_id = node_id
        self._channels = channels
        self._image = image
        self._timeout_ms = timeout_ms
        self.queues: BrokerQueues[_Asked, Any] = BrokerQueues(
            self._send, key=lambda asked: asked.key, at_once=_TOGETHER
        )

    # `SharePersister`

    async def initialize(self, key: SharePartitionKey, *, state_epoch: int, start_offset: int) -> None:
        """As `SharePersister`; creates the topic if necessary."""
        if SHARE_STATE_TOPIC not in self._image().topics:
            await self._local.ensure()
        entry = messages.InitializeStatePartition(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        await self._with_coordinator(
            _Asked(_INITIALIZE, key, entry),
            lambda: self._local.initialize(key, state_epoch=state_epoch, start_offset=start_offset),
            lambda _: None,
        )

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> ShareState:
        """As `SharePersister`; another broker's response has neither leader epoch nor count, as in Kafka."""
        entry = messages.ReadStatePartition(partition=key.partition, leader_epoch=leader_epoch)
        return await self._with_coordinator(
            _Asked(_READ, key, entry), lambda: self._local.read(key, leader_epoch=leader_epoch), _state
        )

    async def write(self, key: SharePartitionKey, change: ShareState) -> None:
        await self._with_coordinator(
            _Asked(_WRITE, key, _entry(key, change)), lambda: self._local.write(key, change), lambda _: None
        )

    async def summary(self, key: SharePartitionKey) -> ShareState:
        entry = messages.ReadStatePartition(partition=key.partition, leader_epoch=-1)
        return await self._with_coordinator(_Asked(_SUMMARY, key, entry), lambda: self._local.summary(key), _summary)

    async def delete(self, key: SharePartitionKey) -> None:
        entry = messages.DeleteStatePartition(partition=key.partition)
        await self._with_coordinator(_Asked(_DELETE, key, entry), lambda: self._local.delete(key), lambda _: None)

    # The coordinator

    async def _with_coordinator(self, asked: _Asked, here: Callable[[], Awaitable[R]], result: Callable[[Any], R]) -> R:
        """Ask the coordinator, again while it moves.

        KafkaError: COORDINATOR_NOT_AVAILABLE after the last attempt; the coordinator's refusal.
        """
        first_s, longest_s = _BACKOFF_S
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(min(first_s * 2 ** (attempt - 1), longest_s))
            try:
                coordinator = self._coordinator(asked.key)
                if coordinator == self._node_id:
                    return await here()
                return result(await self._ask(coordinator, asked))
            except KafkaError as refusal:
                if refusal.code not in _RETRIED:
                    raise
                problem = refusal
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem.message) from problem

    def _coordinator(self, key: SharePartitionKey) -> int:
        keeper = keeper_of(self._image(), SHARE_STATE_TOPIC, coordinator_key(key))
        if keeper is None or keeper.leader == NO_LEADER:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no broker leads {key}'s part of {SHARE_STATE_TOPIC}"
            )
        return keeper.leader

    async def _ask(self, coordinator: int, asked: _Asked) -> Any:
        """Return the coordinator's entry for a share partition.

        A request is about one group, so that each group and kind of request has its queue.
        """
        row = await self.queues.ask(Destination(coordinator, f"{asked.kind.name} {asked.key.group_id}"), asked)
        if row.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(row.error_code), row.error_message or "")
        return row

    async def _send(self, destination: Destination, asked: Sequence[_Asked]) -> list[Any]:
        kind, group_id = asked[0].kind, asked[0].key.group_id
        topics: dict[UUID, list[Any]] = {}
        for each in asked:
            topics.setdefault(each.key.topic_id, []).append(each.entry)
        request = kind.request(
            group_id=group_id,
            topics=[kind.topic(topic_id=topic_id, partitions=entries) for topic_id, entries in topics.items()],
        )
        response = await self._channels.send(
            destination.node_id, request, purpose="share-states", timeout_ms=self._timeout_ms
        )
        rows = {(topic.topic_id, row.partition): row for topic in response.results for row in topic.partitions}
        return [rows[each.key.topic_id, each.key.partition] for each in asked]

    async def follow(self, image: ClusterImage, delta: Delta) -> None:
        """Give up requests to brokers that are fenced; the next attempts go to other coordinators."""
        self.queues.follow(image)


def _entry(key: SharePartitionKey, change: ShareState) -> messages.WriteStatePartition:
    return messages.WriteStatePartition(
        partition=key.partition,
        state_epoch=change.state_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.delivery_complete_count,
        state_batches=[
            messages.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in change.batches
        ],
    )


def _state(row: messages.ReadStatePartitionResult) -> ShareState:
    return ShareState(
        state_epoch=row.state_epoch,
        start_offset=row.start_offset,
        batches=tuple(
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in row.state_batches
        ),
    )


def _summary(row: messages.ReadSummaryStatePartitionResult) -> ShareState:
    return ShareState(
        state_epoch=row.state_epoch,
        leader_epoch=row.leader_epoch,
        start_offset=row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
    )
