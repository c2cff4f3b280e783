"""What all partitions of a node remember of producers: anybody may write with ids that nobody was given, each kept for a day.

What lives here: the count, and the word to who brings one more where there is no room. What does not: what is remembered
(`producer_entry`). Nobody who may be at work is forgotten for it: a batch that is sent again would be written twice. Where it becomes short,
those go that have been idle for longer than any client sends a batch again.
"""

import logging
from typing import Final

from busway_bus.kernel.limits import IDLE_PRODUCERS_KEPT_MS, PRODUCERS_BYTES_MAX
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.log")
_TOLD_AGAIN_BELOW: Final = 0.9
"""Part of the limit below which the next refusal is told in the log again."""


class ProducerMemory:
    """Bytes of all partitions together.

    Attributes:
        used: now; what a start finds in the logs is taken in however much it is.
    """

    def __init__(self, limit: int = PRODUCERS_BYTES_MAX) -> None:
        self._limit = limit
        self._told = False
        self.used = 0

    @property
    def full(self) -> bool:
        """Whether no producer may come that is not remembered."""
        return self.used >= self._limit

    def kept_ms(self, expiration_ms: int) -> int:
        """For how long an idle producer is remembered: for less than `producer.id.expiration.ms` while half of the room is taken."""
        return min(expiration_ms, IDLE_PRODUCERS_KEPT_MS) if self.used >= self._limit // 2 else expiration_ms

    def change(self, by: int) -> None:
        """More is remembered, or less."""
        self.used += by
        if self.used < self._limit * _TOLD_AGAIN_BELOW:
            self._told = False

    def refusal(self) -> KafkaError:
        """What a producer is told that is not remembered; the log has a line when that begins."""
        if not self._told:
            self._told = True
            logger.warning(
                "new producers are refused: partitions of this node remember producers with %d MiB, which is as much as they may; "
                "those that are idle for %d minutes make room, or sooner with a lower producer.id.expiration.ms",
                self._limit >> 20,
                IDLE_PRODUCERS_KEPT_MS // 60_000,
            )
        return KafkaError(
            ErrorCode.POLICY_VIOLATION,
            "the broker remembers as many producers as it can; producer.id.expiration.ms says for how long",
        )
