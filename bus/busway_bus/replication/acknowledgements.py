"""Who waits for the acknowledgement of records in one partition.

What lives here: one list for each kind of `acks`, in the order of offsets, emptied from its front. What does not: which offset may be
acknowledged (`partition_state`), and what an answer looks like (`handlers.produce`). Nobody waits in a task of its own.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from busway_bus.replication.partition_state import ACKS_ALL, PartitionState
from busway_protocol.errors import KafkaError

Acknowledged: TypeAlias = Callable[[KafkaError | None], None]
"""Called once, with None, or with why the records will not be acknowledged. It does little, raises nothing and appends nothing."""
Waiting: TypeAlias = tuple[int, Acknowledged]


def _offset(waiting: Waiting) -> int:
    return waiting[0]


class Acknowledgements:
    """The producers of one partition that wait for their answers."""

    __slots__ = ("_committed", "_local")

    def __init__(self) -> None:
        self._committed: deque[Waiting] = deque()
        self._local: deque[Waiting] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._committed) + len(self._local)

    def add(self, last_offset: int, acks: int, acknowledged: Acknowledged) -> None:
        """Wait until `last_offset` may be acknowledged; those of an earlier one, which a duplicate may be, come first."""
        waiting = self._committed if acks == ACKS_ALL else self._local
        if waiting and waiting[-1][0] > last_offset:
            insort(waiting, (last_offset, acknowledged), key=_offset)
        else:
            waiting.append((last_offset, acknowledged))

    def complete(self, state: PartitionState) -> None:
        """Answer all whose offset may be acknowledged by now."""
        if self._committed:
            _complete(self._committed, state.acknowledged_offset(ACKS_ALL))
        if self._local:
            _complete(self._local, state.local_end_offset)

    def fail(self, problem: KafkaError) -> None:
        """Answer all: their records may be there, but will not be acknowledged by this node."""
        for waiting in (self._committed, self._local):
            while waiting:
                waiting.popleft()[1](problem)


def _complete(waiting: deque[Waiting], end_offset: int) -> None:
    while waiting and waiting[0][0] < end_offset:
        waiting.popleft()[1](None)
