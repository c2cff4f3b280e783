"""Faults of a simulation; pure.

Here: kinds of faults, drawing them, seeds as text.
Not here: injecting them (`run`).

Each seed first draws the kinds that may occur (Groce et al., "Swarm Testing"): a history with crashes alone reaches
states that a history with every kind does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from busway.app.extending.extension import CRASH_POINTS

FAULTS_MAX: Final = 8
TROUBLE_S: Final = (5.0, 40.0)
"""Range of the duration of faults, in virtual seconds."""
STEPS_MAX: Final = 60
"""Limit of the arrival at a step that kills."""


class Kind(Enum):
    """Kinds of faults; the value is the text in a trace."""

    KILL = "is killed"
    KILL_AT = "is to be killed"
    FREEZE = "freezes"
    CUT = "loses its connections"
    SILENCE = "cannot reach the broker"
    RESTART = "is restarted in order"
    KILL_BROKER = "broker is killed"
    POWER_CUT = "broker loses its power"
    FREEZE_BROKER = "broker freezes"
    RESTART_BROKER = "broker hands over its leaderships and stops"
    SEPARATE_BROKER = "broker cannot reach the others"
    POWER_CUT_OF_ALL = "all brokers lose their power"
    ELECT_LEADERS = "preferred leaders are elected"


OF_CLUSTER: Final = frozenset({Kind.RESTART_BROKER, Kind.SEPARATE_BROKER, Kind.POWER_CUT_OF_ALL, Kind.ELECT_LEADERS})
"""Faults that need several brokers."""
OF_BROKER: Final = frozenset({Kind.KILL_BROKER, Kind.POWER_CUT, Kind.FREEZE_BROKER}) | OF_CLUSTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a history.

    Attributes:
        number: index in the draw; names the fault in a `Seed`.
        at_s: since faults began.
        lasts_s: until a killed process restarts, or a frozen or silent one continues.
        instance: of the service, from 1; 0 for a broker.
        node: the broker, from 1; 0 for an instance.
        point, step: of `KILL_AT`: the step of handling, and which arrival there, from 1.
    """

    number: int
    kind: Kind
    at_s: float
    lasts_s: float
    instance: int = 0
    node: int = 0
    point: str = ""
    step: int = 0


def draw(chance: Random, instances: int, nodes: int = 1) -> tuple[Fault, ...]:
    every = [kind for kind in Kind if nodes > 1 or kind not in OF_CLUSTER]
    kinds = [kind for kind in every if chance.random() < 0.5] or [chance.choice(every)]
    trouble_s = chance.uniform(*TROUBLE_S)
    moments = sorted(chance.uniform(0, trouble_s) for _ in range(chance.randint(1, FAULTS_MAX)))
    return tuple(
        _one(chance, number, chance.choice(kinds), at_s, instances, nodes=nodes) for number, at_s in enumerate(moments)
    )


def _one(chance: Random, number: int, kind: Kind, at_s: float, instances: int, *, nodes: int) -> Fault:
    # Short faults are survived, long ones expire the member's session.
    lasts_s = chance.uniform(0.05, 3) if chance.random() < 0.7 else chance.uniform(3, 60)
    return Fault(
        number=number,
        kind=kind,
        at_s=at_s,
        lasts_s=min(lasts_s, 20.0) if kind in OF_BROKER else lasts_s,
        instance=0 if kind in OF_BROKER else chance.randint(1, instances),
        node=0 if kind not in OF_BROKER else 1 if nodes == 1 else chance.randint(1, nodes),
        point=chance.choice(CRASH_POINTS) if kind is Kind.KILL_AT else "",
        step=chance.randint(1, STEPS_MAX) if kind is Kind.KILL_AT else 0,
    )


@dataclass(frozen=True, slots=True)
class Seed:
    """The origin of a history: a number, and the faults that happen, None for all.

    `text` and `parse` are inverse: `17`, `17:0,4`, `17:` without any fault.
    """

    number: int
    faults: tuple[int, ...] | None = None

    @property
    def text(self) -> str:
        return str(self.number) if self.faults is None else f"{self.number}:{','.join(map(str, self.faults))}"

    @staticmethod
    def parse(text: str) -> "Seed":
        """Parse a seed; `ValueError` for other text."""
        number, colon, faults = text.strip().partition(":")
        try:
            chosen = tuple(int(number) for number in faults.split(",") if number) if colon else None
            return Seed(int(number), chosen)
        except ValueError:
            raise ValueError(
                f"{text!r} is no seed: a number, or a number with some of its faults, such as 17:0,4"
            ) from None

    def choose(self, faults: Sequence[Fault]) -> tuple[Fault, ...]:
        return tuple(fault for fault in faults if self.faults is None or fault.number in self.faults)
