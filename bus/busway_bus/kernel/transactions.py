"""What the broker's parts tell each other of transactions (KIP-98, KIP-890, KIP-1228).

What lives here: the end of a transaction as it goes into partitions, and the two calls between the transaction coordinator and the
partitions. What does not: who answers them (`coordinator.transactions`, `replication.markers`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from busway_protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """How a producer's transaction ends in the partitions that it wrote to.

    Attributes:
        producer_epoch: of the marker: with transaction version 2 one more than that of the records, which fences what comes late.
        coordinator_epoch: the leader epoch of the coordinator's partition; an older one than was seen is a zombie's.
        transaction_version: of the marker (KIP-1228); from 2 on its epoch has to be a new one.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


class TransactionVerifier(Protocol):
    """The transaction coordinator, asked before a producer's first batch of a transaction in a partition."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        add: bool,
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Whether each partition, (topic, number), is part of the producer's ongoing transaction.

        Args:
            add: make it part of the transaction where it is not (KIP-890, Produce 12 and later), which begins where none is ongoing.
        """
        ...


class MarkerWriter(Protocol):
    """The partitions of this node, told that a transaction has ended."""

    async def write(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Write the marker into each partition, (topic, number); durable when it returns, where the code is NONE."""
        ...
