"""What the parts of a transaction say to each other: partitions, their producers' coordinator, and who writes its markers.

What lives here: the values and interfaces. What does not: the coordinator (`transactions`, `coordinator.transaction_coordinator`), what a marker
does to a partition (`log.producer_state`), or how it is written (`replication.manager`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from busway_protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """The end of a producer's transaction, as its coordinator decided it.

    Attributes:
        committed: whether it is committed; aborted otherwise.
        coordinator_epoch: leader epoch of the partition of `__transaction_state` whose leader decided.
        transaction_version: level of `transaction.version` that the decision follows (KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


class TransactionVerifier(Protocol):
    """Knows which partitions belong to a producer's transaction (KIP-890)."""

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
        """Whether a producer may write to partitions, by topic and number, as part of its transaction: a code for each.

        Args:
            add: add those that do not belong to it yet, as clients of transaction version 2 leave it to the broker.
            host: whose share of the coordinator's memory is taken by that.
        """


class MarkerWriter(Protocol):
    """Writes the ends of transactions into partitions of this node."""

    async def write(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Write a marker into each partition, by topic and number; a code for each, durable when it returns."""

    async def write_for_peer(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """As `write`, for one of many that another node asks for: they take turns."""
