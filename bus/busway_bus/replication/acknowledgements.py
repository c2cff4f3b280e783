"""Pending acknowledgements of produce requests in one partition.

Here: one queue of callbacks per kind of `acks`, ordered by offset.
Not here: the acknowledged offset (`partition_state`), the response (`handlers.produce`).
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from busway_bus.replication.partition_state import ACKS_ALL, PartitionState
from busway_protocol.errors import KafkaError

Acknowledged: TypeAlias = Callable[[KafkaError | None], None]
"""Called once, with None or the refusal. It must be short, not raise and not append."""
Waiting: TypeAlias = tuple[int, Acknowledged]


def _offset(waiting: Waiting) -> int:
    return waiting[0]


class Acknowledgements:
    __slots__ = ("_committed", "_local")

    def __init__(self) -> None:
        self._committed: deque[Waiting] = deque()
        self._local: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._committed) + len(self._local)

    def add(self, last_offset: int, acks: int, acknowledged: Acknowledged) -> None:
        """Queue `acknowledged` until `last_offset` may be acknowledged.

        A duplicate batch may have a lower offset than the last.
        """
        waiting = self._committed if acks == ACKS_ALL else self._local
        if waiting and waiting[-1][0] > last_offset:
            insort(waiting, (last_offset, acknowledged), key=_offset)
        else:
            waiting.append((last_offset, acknowledged))

    def complete(self, state: PartitionState) -> None:
        if self._committed:
            _complete(self._committed, state.acknowledged_offset(ACKS_ALL))
        if self._local:
            _complete(self._local, state.local_end_offset)

    def fail(self, problem: KafkaError) -> None:
        """Fail all callbacks. Their records may be stored."""
        for waiting in (self._committed, self._local):
            while waiting:
                waiting.popleft()[1](problem)


def _complete(waiting: deque[Waiting], end_offset: int) -> None:
    while waiting and waiting[0][0] < end_offset:
        waiting.popleft()[1](None)
