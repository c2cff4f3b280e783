"""The states of a transactional id, and the table of what leads from one to another.

What lives here: states with the numbers and names of Kafka's `TransactionState`, events, the table. What does not: what an event changes
beside the state (`transaction`), or who may cause it (`fencing`).
"""

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import Final

from busway_bus.kernel.transitions import Table


class State(IntEnum):
    """Where a transactional id is; the numbers are those in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def shown(self) -> str:
        """The name that clients are told."""
        return _SHOWN[self]

    @property
    def prepared(self) -> bool:
        """Whether the end is decided and its markers are being written."""
        return self in {State.PREPARE_COMMIT, State.PREPARE_ABORT}

    @property
    def idle(self) -> bool:
        """Whether there is nothing that would have to be ended."""
        return self in {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}


_SHOWN: Final[Mapping[State, str]] = {
    state: "".join(word.capitalize() for word in state.name.split("_")) for state in State
}
BY_NAME: Final[Mapping[str, State]] = {name: state for state, name in _SHOWN.items()}
"""States by the names that clients use."""


class Event(Enum):
    """What happens to a transactional id."""

    INITIALIZED = auto()
    """A producer began with it: InitProducerId."""
    ADDED = auto()
    """Partitions joined its transaction."""
    COMMITTED = auto()
    """Its producer decided for commit."""
    ABORTED = auto()
    """Its producer decided against it, or the coordinator did: it took too long, or another producer came."""
    MARKED = auto()
    """Every partition has the marker."""
    EXPIRED = auto()
    """Nobody used it for transactional.id.expiration.ms."""


_IDLE: Final = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
TRANSITIONS: Final[Table[State, Event, State]] = Table(
    "a transactional id in the state",
    {
        **{(state, Event.INITIALIZED): State.EMPTY for state in _IDLE},
        **{(state, Event.ADDED): State.ONGOING for state in (*_IDLE, State.ONGOING)},
        (State.ONGOING, Event.COMMITTED): State.PREPARE_COMMIT,
        # A client of transaction version 2 aborts without knowing whether any partition was added for it.
        **{(state, Event.ABORTED): State.PREPARE_ABORT for state in (*_IDLE, State.ONGOING)},
        (State.PREPARE_COMMIT, Event.MARKED): State.COMPLETE_COMMIT,
        (State.PREPARE_ABORT, Event.MARKED): State.COMPLETE_ABORT,
        **{(state, Event.EXPIRED): State.DEAD for state in _IDLE},
    },
)
"""(state, event) → the next state. What is not here does not happen: whoever may cause events looks first."""
