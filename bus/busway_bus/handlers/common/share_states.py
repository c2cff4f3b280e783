"""Common part of the requests about share groups' states.

Here: concurrent requests to the coordinator, one per partition, the check of the feature's level.
Not here: the messages.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from busway_bus.handlers.common.context import RequestContext
from busway_bus.kernel.share_state import SharePartitionKey
from busway_bus.metadata.features import SHARE_VERSION
from busway_protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")
TOGETHER: Final = 100
"""Partitions awaited together."""
BATCHES_TOGETHER: Final = 2_000
"""State batches written together."""


async def each(
    group_id: str,
    topics: Sequence[Any],
    context: RequestContext,
    ask: Callable[[SharePartitionKey, Any], Awaitable[R]],
    refused: Callable[[int, ErrorCode, str], R],
) -> list[tuple[UUID, list[R]]]:
    """Collect each partition's response, by topic.

    Empty if the group has no name, or a topic no partitions, as in Kafka.

    Args:
        ask: answers one partition, with its entry in the request.
        refused: builds a partition's response to an error of `ask`.
    """
    if not group_id or not all(topic.partitions for topic in topics):
        return []

    async def answer(key: SharePartitionKey, asked: Any) -> R:
        try:
            if not context.node.image.features.get(SHARE_VERSION, 0):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            return await ask(key, asked)
        except KafkaError as problem:
            return refused(key.partition, problem.code, problem.message)

    asked = {
        SharePartitionKey(group_id=group_id, topic_id=topic.topic_id, partition=partition.partition): partition
        for topic in topics
        for partition in topic.partitions
    }
    answers: list[R] = []
    keys = sorted(asked, key=lambda key: key.partition)
    for part in _parts(keys, weight=lambda key: len(getattr(asked[key], "state_batches", ()))):
        answers += await asyncio.gather(*(answer(key, asked[key]) for key in part))
    by_topic: dict[UUID, list[R]] = {topic.topic_id: [] for topic in topics}
    for key, response in zip(keys, answers, strict=True):
        by_topic[key.topic_id].append(response)
    return list(by_topic.items())


def _parts(
    keys: Sequence[SharePartitionKey], weight: Callable[[SharePartitionKey], int]
) -> Iterator[list[SharePartitionKey]]:
    part: list[SharePartitionKey] = []
    batches = 0
    for key in keys:
        part.append(key)
        batches += weight(key)
        if len(part) >= TOGETHER or batches >= BATCHES_TOGETHER:
            yield part
            part, batches = [], 0
    if part:
        yield part
