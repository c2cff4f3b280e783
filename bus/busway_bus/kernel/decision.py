"""The result of a command to a core.

What lives here: `Decision`, the value between deciding and applying. A core reads its state and returns the reply with the records that
would change the state. The driver appends the records and only then applies them.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

R = TypeVar("R")
Waiter = Any
"""The driver's token for a parked request; opaque to the cores."""


class Unanswered(Enum):
    """The type of `PARKED`."""

    PARKED = auto()


PARKED: Final = Unanswered.PARKED
"""In place of a reply: the request is parked. A later decision has its reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[R]):
    """Records to append, in order. The replies are sent once they are durable.

    Attributes:
        reply: the reply to the caller, or `PARKED`.
        responses: (waiter, reply) of requests that were parked before.
        whole: whether the records are appended together, so that a crash leaves all of them or none. Without it very many may be split.
    """

    records: tuple[Any, ...] = ()
    reply: R
    responses: tuple[tuple[Waiter, Any], ...] = ()
    whole: bool = False
