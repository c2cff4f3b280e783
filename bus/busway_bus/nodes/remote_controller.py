"""The controller of a cluster, for the parts of a broker.

Here: a broker's own commands as requests to the active controller.
Not here: clients' requests (`forwarding`), the commands (`controller`), the connection (`channels`).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from busway_bus.controller.controller import Command, ControllerRequestContext
from busway_bus.controller.producer_ids import AllocateProducerIds
from busway_bus.controller.topics import CreateTopics, NewTopic
from busway_bus.kernel.node_channels import ControllerChannel
from busway_bus.metadata.image import TopicImage
from busway_bus.nodes.forwarding import LOOPBACK, envelope
from busway_bus.quorum.metadata_images import Published
from busway_protocol.apis import ApiKey, api, request_header_version, response_header_version
from busway_protocol.compile import decode, decode_from, encode
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.headers import RequestHeader, ResponseHeader
from busway_protocol.messages.forwarding import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    EnvelopeResponse,
)
from busway_protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

R = TypeVar("R")
FOLLOWED_S: Final = 5.0
"""Wait for a created topic in this node's image, in s."""
_CREATE_VERSION: Final = 7


class RemoteController:
    """A `controller.controller.Controller` for the commands that the parts of a broker have.

    Args:
        leader: the voter that leads, -1 if unknown.
    """

    def __init__(self, node_id: int, channel: ControllerChannel, images: Published, leader: Callable[[], int]) -> None:
        self._node_id, self._channel, self._images, self._leader = node_id, channel, images, leader
        self._waiting: dict[asyncio.Future[None], UUID] = {}
        images.watch(self._moved)

    @property
    def leader_id(self) -> int:
        """The broker that clients send admin requests to: the active controller, or any if that is no broker."""
        leader_id = self._leader()
        broker = self._images.image.brokers.get(leader_id)
        return self._node_id if broker is None or broker.fenced else leader_id

    async def request(self, command: Command[R], context: ControllerRequestContext) -> R:
        """See `controller.controller.Controller`. KafkaError: REQUEST_TIMED_OUT, no controller answered in time."""
        reply: Any
        match cast("Any", command):
            case AllocateProducerIds() as allocation:
                reply = await self._allocate(allocation)
            case CreateTopics() as creation:
                reply = await self._create(creation, context)
            case _:
                raise AssertionError(f"{type(command).__name__} is no command of a broker's own")
        return cast("R", reply)

    async def _allocate(self, command: AllocateProducerIds) -> range:
        answer: AllocateProducerIdsResponse = await self._channel.send(
            AllocateProducerIdsRequest(broker_id=command.broker_id, broker_epoch=command.broker_epoch)
        )
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    async def _create(
        self, command: CreateTopics, context: ControllerRequestContext
    ) -> tuple[TopicImage | KafkaError, ...]:
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in command.topics], validate_only=command.validate_only
        )
        answer: CreateTopicsResponse = await self._enveloped(ApiKey.CREATE_TOPICS, _CREATE_VERSION, request, context)
        rows = {row.name: row for row in answer.topics}
        replies: list[TopicImage | KafkaError] = []
        for topic in command.topics:
            row = rows[topic.name]
            if row.error_code:
                replies.append(KafkaError(ErrorCode(row.error_code), row.error_message or ""))
            else:
                replies.append(TopicImage(name=row.name, topic_id=row.topic_id))
        if command.validate_only:
            return tuple(replies)
        return tuple([reply if isinstance(reply, KafkaError) else await self._followed(reply) for reply in replies])

    async def _enveloped(self, key: ApiKey, version: int, request: Any, context: ControllerRequestContext) -> Any:
        header = RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=0, client_id=str(self._node_id)
        )
        frame = encode(header, request_header_version(key, version)) + encode(request, version)
        answer: EnvelopeResponse = await self._channel.send(envelope(frame, context.principal, LOOPBACK))
        if answer.error_code or answer.response_data is None:
            raise KafkaError(ErrorCode(answer.error_code) if answer.error_code else ErrorCode.UNKNOWN_SERVER_ERROR)
        _, position = decode_from(ResponseHeader, response_header_version(key, version), answer.response_data, 0)
        return decode(api(key).response, version, answer.response_data, position)

    async def _followed(self, created: TopicImage) -> TopicImage:
        """Return the topic once this node's image has it; without partitions if that takes too long."""
        if created.topic_id not in self._images.image.names:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = created.topic_id
            try:
                async with asyncio.timeout(FOLLOWED_S):
                    await waiter
            except TimeoutError:
                pass
            finally:
                del self._waiting[waiter]
        image = self._images.image
        return image.topics.get(image.names.get(created.topic_id, ""), created)

    def _moved(self) -> None:
        for waiter, topic_id in self._waiting.items():
            if topic_id in self._images.image.names and not waiter.done():
                waiter.set_result(None)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in topic.assignments
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
