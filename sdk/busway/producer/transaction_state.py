"""State machine of a producer's transactions; pure.

Not here: actions (`transactions`).
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from busway.errors import InvalidTransactionState


class State(Enum):
    NEW = auto()
    READY = auto()
    OPEN = auto()
    BROKEN = auto()
    """A part of the transaction is lost: it must be aborted."""
    COMMITTING = auto()
    ABORTING = auto()
    OVER = auto()
    """Fenced, or refused permanently."""


class Event(Enum):
    IDENTIFIED = auto()
    BEGIN = auto()
    COMMIT = auto()
    """May repeat while a commit is in doubt."""
    ABORT = auto()
    """May repeat while an abort has no response."""
    ENDED = auto()
    BREAK = auto()
    """The transaction cannot be committed."""
    DIE = auto()
    """No later transaction of this producer can be committed."""


TABLE: Final[Mapping[State, Mapping[Event, State]]] = {
    State.NEW: {Event.IDENTIFIED: State.READY},
    State.READY: {Event.BEGIN: State.OPEN},
    State.OPEN: {Event.COMMIT: State.COMMITTING, Event.ABORT: State.ABORTING, Event.BREAK: State.BROKEN},
    State.BROKEN: {Event.ABORT: State.ABORTING},
    State.COMMITTING: {Event.COMMIT: State.COMMITTING, Event.ENDED: State.READY, Event.BREAK: State.BROKEN},
    State.ABORTING: {Event.ABORT: State.ABORTING, Event.ENDED: State.READY},
    State.OVER: {},
}
"""State → event → next state. DIE leads from every state to OVER."""
_NO_TRANSACTION: Final = "no transaction is open; begin one, best with `async with producer.transaction():`"
_REFUSALS: Final[Mapping[tuple[State, Event], str]] = {
    (State.NEW, Event.BEGIN): "the producer was not started; use `async with Producer(...)` or await start()",
    (State.READY, Event.COMMIT): _NO_TRANSACTION,
    (State.READY, Event.ABORT): _NO_TRANSACTION,
    (State.OPEN, Event.BEGIN): "a transaction is open already; a producer has one at a time, use a producer for each",
    (State.BROKEN, Event.BEGIN): "the transaction before has failed and was not aborted; abort it first",
    (State.COMMITTING, Event.BEGIN): "the transaction before is being committed; await commit_transaction() first",
    (State.COMMITTING, Event.ABORT): "the transaction is being committed, which cannot be taken back",
    (State.ABORTING, Event.BEGIN): "the transaction before is being aborted; await abort_transaction() first",
    (State.ABORTING, Event.COMMIT): "the transaction is being aborted, which cannot be taken back",
}


def after(state: State, event: Event) -> State:
    """Return the next state; raise `InvalidTransactionState` with the remedy."""
    if event is Event.DIE:
        return State.OVER
    following = TABLE[state].get(event)
    if following is None:
        raise InvalidTransactionState(_REFUSALS.get((state, event)) or f"{event.name} in state {state.name}")
    return following
