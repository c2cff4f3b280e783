"""Waiting for what a handler sent."""

import asyncio

import pytest

from busway.app.calling.layers import acknowledged
from busway.errors import DeliveryFailed


async def test_who_is_cancelled_leaves_to_others_what_they_wait_for() -> None:
    """Records of several handlers share the future of their batch."""
    common: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cancelled, other = (asyncio.ensure_future(acknowledged([common])) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    common.set_result(None)
    await other


async def test_what_is_not_acknowledged_is_raised() -> None:
    """Nothing sent is acknowledged at once."""
    await acknowledged([])
    sent: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future() for _ in range(2)]
    sent[0].set_result(None)
    sent[1].set_exception(DeliveryFailed("too late"))
    with pytest.raises(DeliveryFailed, match="too late"):
        await acknowledged(sent)
