"""The result of a command to a core.

Here: `Decision`: a core returns a reply with the records that would change its state. The driver appends them and only
then applies them.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

R = TypeVar("R")
Waiter = Any
"""The driver's token for a parked request; opaque to the cores."""


class Unanswered(Enum):
    PARKED = auto()


PARKED: Final = Unanswered.PARKED
"""In place of a reply: a later decision has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[R]):
    """Records to append, in order. Replies are sent once they are durable.

    Attributes:
        reply: to the caller, or `PARKED`.
        responses: (waiter, reply) of parked requests.
        whole: append the records together: a crash leaves all or none. Otherwise very many may be split.
    """

    records: tuple[Any, ...] = ()
    reply: R
    responses: tuple[tuple[Waiter, Any], ...] = ()
    whole: bool = False
