"""The states of a classic group, with the transition table.

Here: the next state by state and event; a missing pair is a bug.
Not here: actions (`group`).
"""

from enum import Enum
from typing import Final

from busway_bus.kernel.transitions import Table


class State(Enum):
    """The states, with Kafka's names.

    PreparingRebalance: until all have rejoined or the deadline. CompletingRebalance: the leader's assignment is
    pending.
    """

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """The events of a group.

    The first two have no record and are lost with the coordinator.
    """

    REBALANCE = "a member joined, left, or changed its subscription"
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
        # A static member got a new member id; or a replay, which skips the states between two generations.
        (State.STABLE, Event.ASSIGNED): State.STABLE,
        (State.EMPTY, Event.ASSIGNED): State.STABLE,
        (State.PREPARING, Event.EMPTIED): State.EMPTY,
        # A group's first record; or a replay.
        (State.EMPTY, Event.EMPTIED): State.EMPTY,
        (State.STABLE, Event.EMPTIED): State.EMPTY,
        (State.EMPTY, Event.DELETED): State.DEAD,
        # It was converted to a consumer group; or a replay.
        (State.STABLE, Event.DELETED): State.DEAD,
        (State.PREPARING, Event.DELETED): State.DEAD,
        (State.COMPLETING, Event.DELETED): State.DEAD,
        # A replay of a generation without a leader, whose members have to rejoin.
        (State.PREPARING, Event.ASSIGNED): State.STABLE,
    },
)
