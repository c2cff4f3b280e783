"""The choice of brokers for new partitions, even over racks and brokers.

Here: Kafka's `StripedReplicaPlacer`. Each partition begins at the next rack, and each rack gives its next broker, unfenced
ones first. The leader is unfenced. Starting points are random, so that topics of one partition spread, too.
Not here: which brokers are usable, and the records (`placement`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar
from uuid import UUID

from busway_protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")
Below = Callable[[int], int]
"""Draws a number from 0 on below the argument."""
_MULTIPLIER, _INCREMENT, _MODULUS = 6_364_136_223_846_793_005, 1_442_695_040_888_963_407, 1 << 64
"""Knuth's linear congruential generator (MMIX)."""


def draws_from(seed: Callable[[], UUID]) -> Below:
    """Make a source of random numbers; `seed` is called if there is a choice at all."""
    state = -1

    def below(bound: int) -> int:
        nonlocal state
        if bound == 1:
            return 0
        if state < 0:
            state = seed().int % _MODULUS
        state = (state * _MULTIPLIER + _INCREMENT) % _MODULUS
        return (state >> 33) % bound

    return below


class UsableBroker(NamedTuple):
    node_id: int
    rack: str | None
    fenced: bool


@dataclass(slots=True)
class _Cycle:
    """Brokers in order; every epoch begins one further."""

    brokers: list[int] = field(default_factory=list)
    offset: int = 0
    _index: int = 0
    _epoch: int = 0

    def next(self, epoch: int) -> int | None:
        """Return the epoch's next broker, None behind the last one."""
        if not self.brokers:
            return None
        if self._epoch != epoch:
            self._epoch, self._index = epoch, 0
            self.offset = (self.offset + 1) % len(self.brokers)
        if self._index >= len(self.brokers):
            return None
        broker = self.brokers[(self._index + self.offset) % len(self.brokers)]
        self._index += 1
        return broker


@dataclass(slots=True)
class _Rack:
    fenced: _Cycle = field(default_factory=_Cycle)
    unfenced: _Cycle = field(default_factory=_Cycle)

    @property
    def cycles(self) -> tuple[_Cycle, _Cycle]:
        return (self.fenced, self.unfenced)

    def next(self, epoch: int) -> int | None:
        broker = self.unfenced.next(epoch)
        return self.fenced.next(epoch) if broker is None else broker


class StripedPlacer:
    """Places partitions of one topic one after the other.

    Args:
        brokers: the usable ones; brokers without a rack are one rack together.
    """

    def __init__(self, brokers: Iterable[UsableBroker], below: Below) -> None:
        self._below = below
        racks: dict[tuple[bool, str], _Rack] = {}
        self._total = self._unfenced = 0
        for broker in sorted(brokers):
            rack = racks.setdefault((broker.rack is not None, broker.rack or ""), _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.node_id)
            self._total += 1
            self._unfenced += not broker.fenced
        self._racks = [racks[name] for name in sorted(racks)]
        self._sorted_racks = tuple(self._racks)
        for rack in self._racks:
            for cycle in rack.cycles:
                cycle.offset = below(len(cycle.brokers)) if cycle.brokers else 0
        self._offset = below(len(self._racks)) if self._racks else 0
        self._epoch = 0

    def place(self, factor: int) -> tuple[int, ...]:
        """Choose the replicas of the next partition, the leader first.

        Raises:
            KafkaError: INVALID_REPLICATION_FACTOR.
        """
        self._check(factor)
        if self._epoch == self._unfenced and self._unfenced > 1:
            self._shuffle()
        if self._offset == len(self._racks):
            self._offset = 0
        at = self._offset
        while (leader := self._racks[at].unfenced.next(self._epoch)) is None:
            at = (at + 1) % len(self._racks)
        replicas = [leader]
        leading_rack: int | None = at
        at = self._offset
        while len(replicas) < factor:
            if at == leading_rack:
                leading_rack = None  # it has its first replica already
            elif (broker := self._racks[at].next(self._epoch)) is not None:
                replicas.append(broker)
            at = (at + 1) % len(self._racks)
        self._epoch += 1
        self._offset += 1
        return tuple(replicas)

    def _check(self, factor: int) -> None:
        text = None
        if factor <= 0:
            text = f"Invalid replication factor {factor}: the replication factor must be positive."
        elif not self._unfenced:
            text = "All brokers are currently fenced, or have all their log directories cordoned."
        elif factor > self._total:
            text = (
                f"The target replication factor of {factor} cannot be reached because only {self._total} broker(s) are registered or some "
                "brokers have all their log directories cordoned."
            )
        if text is not None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition {factor} time(s): {text}"
            )

    def _shuffle(self) -> None:
        """Change the order once every broker has led, so that the same sets of replicas do not return."""
        self._epoch = 0
        _shuffle(self._racks, self._below)
        for rack in self._sorted_racks:
            for cycle in rack.cycles:
                _shuffle(cycle.brokers, self._below)


def _shuffle(items: list[T], below: Below) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = below(last + 1)
        items[last], items[other] = items[other], items[last]
