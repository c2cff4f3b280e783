"""Splits large requests to the controller.

Here: commands small enough for other requests to run in between. Items are independent.
Not here: the commands.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from busway_bus.controller.controller import Command, Controller, ControllerRequestContext
from busway_protocol.errors import KafkaError

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")
STRETCH: Final = 32
"""Items in one command. A topic takes 0.1 ms, and its consequences as much again."""


async def request_each(
    controller: Controller,
    items: Sequence[I],
    command: Callable[[tuple[I, ...]], Command[tuple[R | KafkaError, ...]]],
    context: ControllerRequestContext,
) -> tuple[R | KafkaError, ...]:
    """Request all items; return their replies in order.

    A failed command's error is the reply of each item.
    """
    chunks = [tuple(items[at : at + STRETCH]) for at in range(0, len(items), STRETCH)]
    outcomes = await asyncio.gather(
        *(controller.request(command(chunk), context) for chunk in chunks), return_exceptions=True
    )
    replies: list[R | KafkaError] = []
    for chunk, outcome in zip(chunks, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            replies += (outcome,) * len(chunk)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            replies += outcome
    return tuple(replies)
