"""Asking whether a partition belongs to a producer's transaction, and noticing where that ends before the answer is acted upon (KIP-890).

What lives here: the question, the codes that it is answered with, and whether the answer holds still. What does not: who knows
(`kernel.transactions.TransactionVerifier`).

Between the answer, or looking whether it holds, and the append nothing may be awaited. What ends in between is told by `ended`: an append
after the marker would open a transaction that nobody ends.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from busway_bus.kernel.limits import VERIFICATION_ASKS_MAX
from busway_bus.kernel.transactions import TransactionVerifier
from busway_protocol.errors import ErrorCode, KafkaError

_CODES: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""What the producer is told instead, as in Kafka: it knows the one, and comes again without looking for the coordinator for the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalProducer:
    """Who writes within a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


class OffsetCommitVerifications:
    """Those that are under way, or are acted upon."""

    def __init__(self) -> None:
        self._under_way: dict[int, set[object]] = {}

    def ended(self, producer_id: int) -> None:
        """A transaction of this producer ends: what is being asked for it holds no more."""
        self._under_way.pop(producer_id, None)

    @contextmanager
    def following(self, producer_id: int) -> Iterator[Callable[[], bool]]:
        """Tell, when asked, whether no transaction of a producer has ended since."""
        question = object()
        self._under_way.setdefault(producer_id, set()).add(question)
        try:
            yield lambda: question in self._under_way.get(producer_id, ())
        finally:
            others = self._under_way.get(producer_id, set())
            others.discard(question)
            if not others:
                self._under_way.pop(producer_id, None)

    async def verify(
        self,
        verifier: TransactionVerifier,
        producer: TransactionalProducer,
        partition: tuple[str, int],
        *,
        add: bool,
        host: str,
    ) -> None:
        """Return when the producer may write to the partition as a part of its transaction.

        With `add` each transaction has an epoch of its own, so that the end of the one before may come while the coordinator is asked: it
        is asked again then. Without, the next transaction may have the same epoch, and must not take in what belongs to the last.

        Raises:
            KafkaError: it may not; TRANSACTION_ABORTABLE where the transaction has ended meanwhile.
        """
        for _ in range(VERIFICATION_ASKS_MAX if add else 1):
            with self.following(producer.producer_id) as ongoing:
                codes = await verifier.verify(
                    producer.transactional_id, producer.producer_id, producer.epoch, (partition,), add=add, host=host
                )
                holds = ongoing()
            code = codes[partition]
            if code is not ErrorCode.NONE:
                raise KafkaError(_CODES.get(code, code))
            if holds:
                return
        raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction has ended meanwhile")
