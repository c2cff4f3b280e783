"""Asking the controller for many things at once.

What lives here: cutting a request into commands so small that each is decided between two others' requests. What does not: what is asked
for. Each thing is judged for itself, so that nobody notices where the cuts are.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from busway_bus.controller.controller import Command, Controller, ControllerRequestContext
from busway_protocol.errors import KafkaError

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")
STRETCH: Final = 32
"""Things in one command: deciding on a topic takes a tenth of a millisecond, and what it leads to as much again."""


async def request_each(
    controller: Controller,
    items: Sequence[I],
    command: Callable[[tuple[I, ...]], Command[tuple[R | KafkaError, ...]]],
    context: ControllerRequestContext,
) -> tuple[R | KafkaError, ...]:
    """The replies to all items, in their order; where a command could not be carried out, why not, for each of its items."""
    stretches = [tuple(items[at : at + STRETCH]) for at in range(0, len(items), STRETCH)]
    outcomes = await asyncio.gather(
        *(controller.request(command(stretch), context) for stretch in stretches), return_exceptions=True
    )
    replies: list[R | KafkaError] = []
    for stretch, outcome in zip(stretches, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            replies += (outcome,) * len(stretch)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            replies += outcome
    return tuple(replies)
