"""What a core answers to a command.

What lives here: `Decision`, the value between deciding and applying. A core reads its state and returns the records that
would change it, with the reply; the driver appends the records and only then applies them.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

R = TypeVar("R")
Waiter = Any
"""Whatever the driver wants back when a request that was parked is answered; no core ever looks into it."""


class Unanswered(Enum):
    """The type of `PARKED`."""

    PARKED = auto()


PARKED: Final = Unanswered.PARKED
"""Stands for a reply: the request is parked, and a later decision answers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[R]):
    """Records to append, in order, and what to tell once they are durable.

    Attributes:
        reply: the answer to who asked, or `PARKED`.
        due: (waiter, answer) of requests that were parked before.
        whole: whether the records are appended together, so that a crash leaves all of them or none; without it very many may be parted.
    """

    records: tuple[Any, ...] = ()
    reply: R
    due: tuple[tuple[Waiter, Any], ...] = ()
    whole: bool = False
