"""Dead letters for a partition that another broker leads.

Here: one Produce request, acknowledged by all in-sync replicas.
Not here: the topic, the content, retries (`dead_letters`).
"""

from typing import Final

from busway_bus.kernel.node_channels import BrokerChannels
from busway_bus.metadata.image import NO_LEADER, TopicImage
from busway_bus.replication.partition_state import ACKS_ALL
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

_PURPOSE: Final = "dead-letters"


class RemoteDeadLetters:
    """Appends dead letters at other brokers; `timeout_ms` of a request."""

    def __init__(self, channels: BrokerChannels, *, timeout_ms: int) -> None:
        self._channels = channels
        self._timeout_ms = timeout_ms

    async def append(self, leader: int, topic: TopicImage, partition: int, batch: bytes) -> None:
        """Append a batch; return once it is acknowledged with acks=all.

        Raises:
            KafkaError: LEADER_NOT_AVAILABLE; the leader's refusal; an error of `BrokerChannels`, after which the batch may
                be there, and is there twice once it is repeated.
        """
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{partition} has no leader now")
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=self._timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_data=[PartitionProduceData(index=partition, records=batch)],
                )
            ],
        )
        response: ProduceResponse = await self._channels.send(
            leader, request, purpose=_PURPOSE, timeout_ms=self._timeout_ms
        )
        row = response.responses[0].partition_responses[0]
        if row.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(row.error_code), row.error_message or "")
