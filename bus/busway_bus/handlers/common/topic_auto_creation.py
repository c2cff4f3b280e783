"""Auto-creation of requested topics, in the background as in Kafka.

Here: the queue, with each topic once; until then the client retries on "unknown topic".
Not here: the creation (`topic_creation`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from busway_bus.kernel.limits import TOPICS_UNDER_WAY_MAX
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.topics")


class TopicAutoCreator:
    """Topics being created, one after the other."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[str], Awaitable[object]]] = {}
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    def start(self, name: str, create: Callable[[str], Awaitable[object]]) -> None:
        """Queue a topic once, unless TOPICS_UNDER_WAY_MAX are queued or after `close`."""
        if self._closed or name in self._waiting or len(self._waiting) >= TOPICS_UNDER_WAY_MAX:
            return
        self._waiting[name] = create
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._waiting:
                name, create = next(iter(self._waiting.items()))
                try:
                    await create(name)
                except KafkaError as problem:
                    if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                        logger.info("a client asked for topic %s, which cannot be made: %s", name, problem.message)
                except Exception:
                    logger.exception("making topic %s failed on a mistake of this broker", name)
                finally:
                    del self._waiting[name]
        finally:
            self._worker = None

    async def close(self) -> None:
        """Wait for the topic being created; drop the queue."""
        self._closed = True
        for name in list(self._waiting)[1:]:
            del self._waiting[name]
        if self._worker is not None:
            await self._worker
