"""The features of the cluster that have levels (KIP-584).

What lives here: their names and the levels that this version of Busway supports. What does not: which level is finalized (`image`).
"""

from collections.abc import Mapping
from typing import Final

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {METADATA_VERSION: (7, 30), TRANSACTION_VERSION: (0, 2)}
"""Lowest and highest level. 30 is Kafka 4.3's (4.3-IV0): what the records of the metadata log follow. transaction.version 2 is that of
KIP-890, where each end of a transaction raises the producer's epoch."""
