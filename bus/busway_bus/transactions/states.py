"""The states of a transactional id, and the transition table.

Here: states with the numbers and names of Kafka's `TransactionState`, events, the table.
Not here: other effects of an event (`transaction`), permission (`fencing`).
"""

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import Final

from busway_bus.kernel.transitions import Table


class State(IntEnum):
    """State of a transactional id, numbered as in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def shown(self) -> str:
        return _SHOWN[self]

    @property
    def prepared(self) -> bool:
        """Whether the end is decided and its markers are being written."""
        return self in {State.PREPARE_COMMIT, State.PREPARE_ABORT}

    @property
    def idle(self) -> bool:
        return self in {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}


_SHOWN: Final[Mapping[State, str]] = {
    state: "".join(word.capitalize() for word in state.name.split("_")) for state in State
}
BY_NAME: Final[Mapping[str, State]] = {name: state for state, name in _SHOWN.items()}
"""States by their names in requests."""


class Event(Enum):
    INITIALIZED = auto()
    ADDED = auto()
    COMMITTED = auto()
    ABORTED = auto()
    """By its producer, or by the coordinator (timeout, new producer)."""
    MARKED = auto()
    """Every partition has the marker."""
    EXPIRED = auto()
    """Unused for `transactional.id.expiration.ms`."""


_IDLE: Final = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
TRANSITIONS: Final[Table[State, Event, State]] = Table(
    "a transactional id in the state",
    {
        **{(state, Event.INITIALIZED): State.EMPTY for state in _IDLE},
        **{(state, Event.ADDED): State.ONGOING for state in (*_IDLE, State.ONGOING)},
        (State.ONGOING, Event.COMMITTED): State.PREPARE_COMMIT,
        # A client of transaction version 2 may abort without an added partition: it cannot detect that.
        **{(state, Event.ABORTED): State.PREPARE_ABORT for state in (*_IDLE, State.ONGOING)},
        (State.PREPARE_COMMIT, Event.MARKED): State.COMPLETE_COMMIT,
        (State.PREPARE_ABORT, Event.MARKED): State.COMPLETE_ABORT,
        **{(state, Event.EXPIRED): State.DEAD for state in _IDLE},
    },
)
"""(state, event) → the next state. Events are checked before."""
