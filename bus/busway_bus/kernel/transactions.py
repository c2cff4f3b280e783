"""Values and interfaces between partitions, a transaction's coordinator and the marker writer.

Here: both.
Not here: the coordinator (`transactions`, `coordinator.transaction_coordinator`), a marker's effect on a partition
(`log.producer_state`), writing it (`replication.manager`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from busway_protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """The end of a producer's transaction, decided by its coordinator.

    Attributes:
        coordinator_epoch: leader epoch of the deciding `__transaction_state` partition.
        transaction_version: level of `transaction.version` of the decision (KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


class TransactionVerifier(Protocol):
    """The membership of partitions in a producer's transaction (KIP-890)."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        add: bool,
        host: str,
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Check whether a producer may write in its transaction.

        Args:
            add: add missing partitions, as clients of transaction version 2 expect.
            host: charged for the coordinator's memory.
        """


def _not_elsewhere(waits: bool) -> None:
    """Ignore waits for other nodes."""


class MarkerWriter(Protocol):
    """Writes the ends of transactions into partitions."""

    async def write(
        self,
        marker: EndTransaction,
        partitions: Collection[tuple[str, int]],
        *,
        elsewhere: Callable[[bool], None] = _not_elsewhere,
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Write a marker into each partition; return the codes once durable.

        `elsewhere`: called with True when only other nodes are waited for, and with False after that.
        """

    async def write_for_peer(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """As `write`, for another node, whose many requests take turns."""
