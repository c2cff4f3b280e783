"""Values and interfaces between partitions, a transaction's coordinator and the marker writer.

What lives here: the values and interfaces. What does not: the coordinator (`transactions`, `coordinator.transaction_coordinator`), the
effect of a marker on a partition (`log.producer_state`), or how it is written (`replication.manager`).
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
        """Check whether a producer may write in its transaction. Partitions are (topic, partition); each has a code in the result.

        Args:
            add: add partitions that do not belong to it yet, as clients of transaction version 2 expect of the broker.
            host: the host that the coordinator's memory for it is charged to.
        """


class MarkerWriter(Protocol):
    """Writes the ends of transactions into partitions of this node."""

    async def write(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Write a marker into each partition, by topic and partition. Returns a code for each, once durable."""

    async def write_for_peer(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Write as `write` does, for another node. Its many requests take turns."""
