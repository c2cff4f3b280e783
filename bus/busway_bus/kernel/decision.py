"""What a core answers to a command.

What lives here: `Decision`, the value between deciding and applying. A core reads its state and returns the records that
would change it, with the reply; the driver appends the records and only then applies them (architecture, rule 2).
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[R]):
    """Records to append, in order, and the reply to give once they are durable."""

    records: tuple[Any, ...] = ()
    reply: R
