"""What only foreign clients' histories tell, beside the operations of `tests.simulation`.

Here: the operations.
Not here: the lines that they are written in (`lines`), any judgement (`checks`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.history import Operation, Partition, Seen


@dataclass(slots=True, kw_only=True)
class InitProducer(Operation):
    """A producer takes over a transactional id; who had it before is fenced."""

    transactional_id: str

    def describe(self) -> str:
        """Which."""
        return f"takes over {self.transactional_id}"


@dataclass(slots=True, kw_only=True)
class StableOffset(Operation):
    """How far readers of committed records may read, and the high watermark; `last` when no transaction may be open any more."""

    partition: Partition
    stable: int
    high: int
    last: bool = False

    def describe(self) -> str:
        """Both."""
        return f"{self.partition} is stable up to {self.stable} of {self.high}"


@dataclass(slots=True, kw_only=True)
class Copy(Operation):
    """A claim: in the end the committed records of `target` are those of `source`, each once.

    Attributes:
        ordered: what comes of one partition comes in its order, within each partition of the target.
    """

    source: str
    target: str
    ordered: bool = True

    def describe(self) -> str:
        """Of what."""
        return f"{self.target} is a copy of {self.source}"


@dataclass(slots=True, kw_only=True)
class Handed(Operation):
    """Records that a member of a share group was given."""

    group: str
    records: Sequence[Seen] = ()

    def describe(self) -> str:
        """How many."""
        return f"is handed {len(self.records)} records of {self.group}"


@dataclass(slots=True, kw_only=True)
class Acknowledged(Operation):
    """A member of a share group is done with the records at `places`."""

    group: str
    partition: Partition
    places: Sequence[int]

    def describe(self) -> str:
        """Which."""
        return f"acknowledges {list(self.places)} of {self.partition} in {self.group}"


@dataclass(slots=True, kw_only=True)
class QueueDone(Operation):
    """A claim: in the end a share group is done with all records of a topic."""

    group: str
    topic: str

    def describe(self) -> str:
        """Of what."""
        return f"{self.group} is done with {self.topic}"
