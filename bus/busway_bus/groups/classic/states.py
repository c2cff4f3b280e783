"""The states of a classic group, and the table that moves it.

What lives here: which event leads from which state to which; a pair that is not in the table is a mistake of ours. What does not:
what is done on the way (`group`).
"""

from enum import Enum
from typing import Final

from busway_bus.kernel.transitions import Table


class State(Enum):
    """The states with Kafka's names.

    Empty: no members; offsets may be left. PreparingRebalance: members are asked to join again; ends when all have, or at the
    deadline. CompletingRebalance: everyone has joined, the leader's assignment is awaited. Stable: all have their assignment.
    Dead: the group is deleted.
    """

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """What moves a group. The first two are its members' doing and leave nothing behind when the coordinator fails; the other three
    are records that were written, now or before the coordinator began."""

    REBALANCE = "somebody came, left, or has something new to say"
    JOINED = "all have joined again, or time is up"
    ASSIGNED = "a generation was written, with members and assignments"
    EMPTIED = "a generation was written that has no members"
    DELETED = "a tombstone was written"


TRANSITIONS: Final[Table[State, Event, State]] = Table(
    "a group in the state",
    {
        (State.EMPTY, Event.REBALANCE): State.PREPARING,
        (State.COMPLETING, Event.REBALANCE): State.PREPARING,
        (State.STABLE, Event.REBALANCE): State.PREPARING,
        (State.PREPARING, Event.JOINED): State.COMPLETING,
        (State.COMPLETING, Event.ASSIGNED): State.STABLE,
        # A static member took its seat under a new id; or a log is read, which does not tell what was between two generations.
        (State.STABLE, Event.ASSIGNED): State.STABLE,
        (State.EMPTY, Event.ASSIGNED): State.STABLE,
        (State.PREPARING, Event.EMPTIED): State.EMPTY,
        # A group's first record; or again what is between two records of a log.
        (State.EMPTY, Event.EMPTIED): State.EMPTY,
        (State.STABLE, Event.EMPTIED): State.EMPTY,
        (State.EMPTY, Event.DELETED): State.DEAD,
        # A group that the coordinator balances was made of it; or a log is read.
        (State.STABLE, Event.DELETED): State.DEAD,
        (State.PREPARING, Event.DELETED): State.DEAD,
        (State.COMPLETING, Event.DELETED): State.DEAD,
        # A log is read, where a generation without a leader was written, whose members are to join again.
        (State.PREPARING, Event.ASSIGNED): State.STABLE,
    },
)
"""(state, event) → the state after it."""
