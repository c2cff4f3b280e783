"""AlterPartition requests of this node's leaders (key 56, KIP-497).

Here: batches of what the leaders ask for, one request in flight, retries; Kafka's `DefaultAlterPartitionManager`.
Not here: what they ask for (`partition_state`), the controller's decision (`controller.partition_changes`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final
from uuid import UUID

from busway_bus.kernel.limits import PARTITIONS_CHANGED_AT_ONCE_MAX
from busway_bus.kernel.node_channels import ControllerChannel
from busway_bus.replication.isr import AlterPartition
from busway_bus.replication.partition import Partition
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.partitions import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    BrokerState,
)

logger = logging.getLogger("busway.replication")

RETRY_S: Final = 0.05
"""Pause before a failed request is sent again, in s, as in Kafka."""
_UNDONE: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""The controller has the same partition epoch and did not apply the request, nor will another."""
_FINAL: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""This node's metadata is behind; the partition's next record ends the request."""


class IsrUpdates:
    """The requests of one node.

    Args:
        broker_epoch: of this process; -1 while it is not registered, when nothing is sent.
    """

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], controller: ControllerChannel) -> None:
        self._node_id, self._broker_epoch, self._controller = node_id, broker_epoch, controller
        self._waiting: dict[Partition, AlterPartition] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def submit(self, partition: Partition, request: AlterPartition) -> None:
        """Send a request, in place of an older one of the partition that was not sent yet."""
        self._waiting[partition] = request
        if self._task is None and not self._closed:
            self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                requests = self._take()
                if requests and not await self._send(requests):
                    for partition, request in requests.items():
                        self._waiting.setdefault(partition, request)
                    await asyncio.sleep(RETRY_S)
        finally:
            self._task = None

    def _take(self) -> dict[Partition, AlterPartition]:
        """Take waiting requests for one message, without those that a newer record of the partition has ended."""
        taken = [
            (partition, self._waiting.pop(partition))
            for partition in tuple(islice(self._waiting, PARTITIONS_CHANGED_AT_ONCE_MAX))
        ]
        return {partition: request for partition, request in taken if partition.state.in_flight is request}

    async def _send(self, requests: Mapping[Partition, AlterPartition]) -> bool:
        """Send one request; return False if all of it has to be sent again."""
        broker_epoch = self._broker_epoch()
        if broker_epoch < 0:
            return False
        try:
            response: AlterPartitionResponse = await self._controller.send(
                request_of(requests, node_id=self._node_id, broker_epoch=broker_epoch)
            )
        except KafkaError as problem:
            logger.warning("the controller cannot be asked for ISRs, and it is tried again: %s", problem)
            return False
        if response.error_code != ErrorCode.NONE:
            logger.warning(
                "the controller refuses ISRs, and it is tried again: %s", ErrorCode(response.error_code).name
            )
            return False
        answers = {
            (topic.topic_id, partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        for partition, request in requests.items():
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None:
                self._waiting.setdefault(partition, request)
            elif partition.state.in_flight is request:
                self._answered(partition, request, answer)
        return True

    def _answered(self, partition: Partition, request: AlterPartition, answer: AlterPartitionResponsePartition) -> None:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            done = replace(
                request,
                leader_epoch=answer.leader_epoch,
                partition_epoch=answer.partition_epoch,
                isr=tuple(answer.isr),
            )
            partition.isr_altered(done, request)
            logger.info("ISR of %s-%d: %s", partition.topic, partition.index, answer.isr)
        elif code in _UNDONE or code in _FINAL:
            partition.isr_refused(request, undone=code in _UNDONE)
        else:
            logger.warning("the ISR of %s-%d is refused: %s", partition.topic, partition.index, code.name)
            self._waiting.setdefault(partition, request)


def request_of(
    requests: Mapping[Partition, AlterPartition], *, node_id: int, broker_epoch: int
) -> AlterPartitionRequest:
    topics: dict[UUID, AlterPartitionRequestTopic] = {}
    for partition, request in requests.items():
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = AlterPartitionRequestTopic(topic_id=partition.topic_id, partitions=[])
        topic.partitions.append(
            AlterPartitionRequestPartition(
                partition_index=partition.index,
                leader_epoch=request.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=replica, broker_epoch=broker_epoch if replica == node_id else epoch)
                    for replica, epoch in zip(request.isr, request.broker_epochs, strict=True)
                ],
                partition_epoch=request.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=node_id, broker_epoch=broker_epoch, topics=list(topics.values()))
