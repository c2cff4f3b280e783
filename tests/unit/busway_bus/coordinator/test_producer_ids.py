"""Blocks of producer ids: one request at a time, the next block before the last one is used up."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from busway_bus.controller.producer_ids import BLOCK_SIZE
from busway_bus.coordinator.producer_ids import ProducerIds
from busway_protocol.errors import ErrorCode, KafkaError


class Reserving:
    """A controller that answers when the test lets it."""

    def __init__(self) -> None:
        self.requests: list[asyncio.Future[range]] = []
        image = SimpleNamespace(brokers={1: SimpleNamespace(epoch=7)})
        self.ids = ProducerIds(self, 1, lambda: image)  # type: ignore[arg-type]

    async def request(self, command: Any, context: Any) -> Any:
        assert (command.broker_id, command.broker_epoch) == (1, 7)
        answered: asyncio.Future[range] = asyncio.get_running_loop().create_future()
        self.requests.append(answered)
        return await answered

    def answer(self) -> None:
        start = BLOCK_SIZE * len(self.requests)
        self.requests[-1].set_result(range(start, start + BLOCK_SIZE))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_concurrent_callers_share_a_reservation() -> None:
    """Also its failure: each client tries again."""
    reserving = Reserving()
    callers = [asyncio.ensure_future(reserving.ids.take()) for _ in range(20)]
    await turn()
    assert len(reserving.requests) == 1
    reserving.requests[0].set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    for caller in callers:
        with pytest.raises(KafkaError) as refusal:
            await caller
        assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    callers = [asyncio.ensure_future(reserving.ids.take()) for _ in range(20)]
    await turn()
    reserving.answer()
    assert sorted(await asyncio.gather(*callers)) == list(range(2 * BLOCK_SIZE, 2 * BLOCK_SIZE + 20))


async def test_a_caller_that_is_gone_ends_no_reservation() -> None:
    reserving = Reserving()
    gone, stays = [asyncio.ensure_future(reserving.ids.take()) for _ in range(2)]
    await turn()
    gone.cancel()
    await turn()
    reserving.answer()
    assert await stays == BLOCK_SIZE


async def test_the_next_block_is_there_before_it_is_needed() -> None:
    """As in Kafka from nine tenths on: no caller waits for a controller that moves. A failure is tried again when ids run out."""
    reserving = Reserving()
    first = asyncio.ensure_future(reserving.ids.take())
    await turn()
    reserving.answer()
    taken = [await first, *[await reserving.ids.take() for _ in range(BLOCK_SIZE * 9 // 10 - 2)]]
    await turn()
    assert len(reserving.requests) == 1
    taken += [await reserving.ids.take() for _ in range(2)]
    await turn()
    assert len(reserving.requests) == 2
    reserving.answer()
    taken += [await reserving.ids.take() for _ in range(BLOCK_SIZE - len(taken) + 3)]
    assert len(reserving.requests) == 2
    assert taken == [*range(BLOCK_SIZE, 2 * BLOCK_SIZE), *range(2 * BLOCK_SIZE, 2 * BLOCK_SIZE + 3)]
