"""What a seed decides beforehand: how many voters there are, which faults exist at all, how bad they are.

Here: the plan and how it is drawn.
Not here: carrying it out (`simulated`).
"""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a seed has drawn."""

    voters: int
    observer: bool
    directories: bool
    drop: float
    duplicate: float
    delay_ms: int
    disk_ms: int
    skew: float
    fault_every_ms: int
    kinds: tuple[str, ...]
    propose_every_ms: int
    on_the_wire: bool
    batches_per_read: int

    @classmethod
    def drawn(cls, chance: Random) -> "Plan":
        """A plan; most seeds leave most faults out."""
        kinds = ("crash", "crash_all", "isolate", "one_way", "ring", "halves", "freeze", "resign")
        return cls(
            voters=chance.choice((1, 3, 3, 3, 3, 5, 5)),
            observer=chance.random() < 0.25,
            directories=chance.random() < 0.5,
            drop=chance.choice((0.0, 0.0, 0.02, 0.15)),
            duplicate=chance.choice((0.0, 0.0, 0.1)),
            delay_ms=chance.choice((2, 20, 200)),
            disk_ms=chance.choice((1, 10, 100)),
            skew=chance.choice((0.0, 0.0, 0.2)),
            fault_every_ms=chance.choice((150, 400, 1_000)),
            kinds=tuple(chance.sample(kinds, chance.randint(1, 4))),
            propose_every_ms=chance.choice((10, 30, 150)),
            on_the_wire=chance.random() < 0.1,
            batches_per_read=chance.choice((1, 3, 100)),
        )
