"""Verification that a partition belongs to a producer's transaction (KIP-890).

Here: the request, its codes, detection of an end meanwhile.
Not here: the answer (`kernel.transactions.TransactionVerifier`).

Do not await between verification and append: after the marker, an append would open a transaction that never ends.
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
"""Codes sent to the producer instead, as in Kafka. It retries after the second without a new coordinator lookup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalProducer:
    transactional_id: str
    producer_id: int
    epoch: int


class OffsetCommitVerifications:
    def __init__(self) -> None:
        self._under_way: dict[int, set[object]] = {}

    def ended(self, producer_id: int) -> None:
        """Invalidate a producer's verifications: its transaction ends."""
        self._under_way.pop(producer_id, None)

    @contextmanager
    def following(self, producer_id: int) -> Iterator[Callable[[], bool]]:
        """Yield a check that no transaction of the producer has ended since."""
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
        """Return once the producer may write in its transaction.

        If the previous transaction ends meanwhile, verification is repeated with `add`, as each has a new epoch.
        Without, the next may have the same: TRANSACTION_ABORTABLE.
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
