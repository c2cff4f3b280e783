"""Requests to other brokers, collected while one is under way.

Here: a queue for each broker and kind of request, bounded; all that waits goes in the next request, as in Kafka's
`AddPartitionsToTxnManager` and `TransactionMarkerChannelManager`.
Not here: the requests (`remote_verification`, `remote_markers`, `remote_share_states`), connections
(`kernel.node_channels`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from busway_bus.kernel.limits import QUEUED_FOR_BROKER_MAX
from busway_bus.metadata.image import ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")
logger = logging.getLogger("busway.coordinator")


class Destination(NamedTuple):
    """A broker, and the kind of request to it."""

    node_id: int
    kind: str = ""


@dataclass(slots=True, eq=False)
class _Queued(Generic[I, R]):
    item: I
    answered: "asyncio.Future[R]"


class _Queue(Generic[I, R]):
    def __init__(self) -> None:
        self.waiting: deque[_Queued[I, R]] = deque()
        self.sent: list[_Queued[I, R]] = []
        self.sender: asyncio.Task[None] | None = None


class BrokerQueues(Generic[I, R]):
    """Queues of items to other brokers, with one request under way for each destination.

    Args:
        send: sends items in one request; returns their results in order.
        key: two items with the same key go in two requests.
        at_once: items of one request.
    """

    def __init__(
        self,
        send: Callable[[Destination, Sequence[I]], Awaitable[Sequence[R]]],
        *,
        key: Callable[[I], Hashable],
        at_once: int,
    ) -> None:
        self._send = send
        self._key = key
        self._at_once = at_once
        self._queues: dict[Destination, _Queue[I, R]] = {}

    async def ask(self, destination: Destination, item: I) -> R:
        """Return an item's result.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE, also where too much waits for the broker; NETWORK_EXCEPTION, the outcome
                is unknown; from `send`.
        """
        queue = self._queues.setdefault(destination, _Queue())
        if len(queue.waiting) >= QUEUED_FOR_BROKER_MAX:
            text = f"{QUEUED_FOR_BROKER_MAX:,} requests wait for broker {destination.node_id} already"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
        queued: _Queued[I, R] = _Queued(item, asyncio.get_running_loop().create_future())
        queue.waiting.append(queued)
        if queue.sender is None:
            queue.sender = asyncio.ensure_future(self._send_all(destination, queue))
        return await queued.answered

    async def _send_all(self, destination: Destination, queue: _Queue[I, R]) -> None:
        try:
            while queue.waiting:
                queue.sent = self._take(queue.waiting)
                if queue.sent:
                    await self._send_part(destination, queue.sent)
        finally:
            if self._queues.get(destination) is queue:
                del self._queues[destination]

    def _take(self, waiting: "deque[_Queued[I, R]]") -> "list[_Queued[I, R]]":
        part: list[_Queued[I, R]] = []
        keys: set[Hashable] = set()
        while waiting and len(part) < self._at_once:
            key = self._key(waiting[0].item)
            if key in keys:
                break
            queued = waiting.popleft()
            if not queued.answered.done():  # else its caller is gone
                keys.add(key)
                part.append(queued)
        return part

    async def _send_part(self, destination: Destination, part: "list[_Queued[I, R]]") -> None:
        try:
            results = list(zip(part, await self._send(destination, [queued.item for queued in part]), strict=True))
        except KafkaError as problem:
            _fail(part, problem)
        except Exception:  # a response that makes no sense must not leave its callers waiting
            logger.exception("broker %d gave a response that cannot be used", destination.node_id)
            _fail(part, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response cannot be used"))
        else:
            for queued, result in results:
                if not queued.answered.done():
                    queued.answered.set_result(result)

    def follow(self, image: ClusterImage) -> None:
        """Fail what waits for brokers that are fenced or unregistered: it may be for another broker now."""
        for destination in tuple(self._queues):
            broker = image.brokers.get(destination.node_id)
            if broker is None or broker.fenced:
                self._give_up(destination, f"broker {destination.node_id} is fenced")

    def close(self) -> None:
        for destination in tuple(self._queues):
            self._give_up(destination, "this broker stops")

    def _give_up(self, destination: Destination, reason: str) -> None:
        queue = self._queues.pop(destination)
        if queue.sender is not None:
            queue.sender.cancel()
        _fail(queue.sent, KafkaError(ErrorCode.NETWORK_EXCEPTION, reason))
        _fail(queue.waiting, KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, reason))
        queue.waiting.clear()


def _fail(queued: "Sequence[_Queued[I, R]] | deque[_Queued[I, R]]", problem: KafkaError) -> None:
    for each in queued:
        if not each.answered.done():
            each.answered.set_exception(problem)
            each.answered.exception()  # asyncio logs an exception that is never retrieved
