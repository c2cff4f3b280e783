"""A table of transitions: a state and an event to a result.

Here: the lookup, its error.
Not here: states, events and tables.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
N = TypeVar("N")


class IllegalTransition(AssertionError):
    """An event in a state without it: a bug of this broker."""


class Table(dict[tuple[S, E], N]):
    """Map (state, event) to what follows.

    `subject`: owner of the states, for the error: "a group in the state".
    """

    def __init__(self, subject: str, transitions: Mapping[tuple[S, E], N]) -> None:
        super().__init__(transitions)
        self._subject = subject

    def after(self, state: S, event: E) -> N:
        try:
            return self[state, event]
        except KeyError:
            raise IllegalTransition(f"{event.name} came to {self._subject} {state.name}") from None
