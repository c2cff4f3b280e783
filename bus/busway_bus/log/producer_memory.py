"""Memory limit for producer state of all partitions of a node.

Here: the byte count, the refusal of new producers.
Not here: the state (`producer_entry`). Active producers are never evicted: a retried batch would be written twice. When
memory is short, idle ones expire sooner.
"""

import logging
from typing import Final

from busway_bus.kernel.limits import IDLE_PRODUCERS_KEPT_MS, PRODUCERS_BYTES_MAX
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.log")
_WARNED_AGAIN_BELOW: Final = 0.9
"""Fraction of the limit below which the next refusal is logged again."""


class ProducerMemory:
    """Bytes used by producers of all partitions.

    `used` includes producers recovered at start, without limit.
    """

    def __init__(self, limit: int = PRODUCERS_BYTES_MAX) -> None:
        self._limit = limit
        self._warned = False
        self.used = 0

    @property
    def full(self) -> bool:
        return self.used >= self._limit

    def kept_ms(self, expiration_ms: int) -> int:
        """Return the expiration of idle producers in ms.

        At most `IDLE_PRODUCERS_KEPT_MS` once half of the limit is used.
        """
        return min(expiration_ms, IDLE_PRODUCERS_KEPT_MS) if self.used >= self._limit // 2 else expiration_ms

    def change(self, by: int) -> None:
        self.used += by
        if self.used < self._limit * _WARNED_AGAIN_BELOW:
            self._warned = False

    def refusal(self) -> KafkaError:
        """Build the error for a new producer; log the first."""
        if not self._warned:
            self._warned = True
            logger.warning(
                "new producers are refused: the producer state of this node takes %d MiB, which is the limit; "
                "those that are idle for %d minutes make room, or sooner with a lower producer.id.expiration.ms",
                self._limit >> 20,
                IDLE_PRODUCERS_KEPT_MS // 60_000,
            )
        return KafkaError(
            ErrorCode.POLICY_VIOLATION,
            "the broker remembers as many producers as it can; producer.id.expiration.ms says for how long",
        )
