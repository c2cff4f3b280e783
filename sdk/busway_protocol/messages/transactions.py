"""Producer identities.

Messages: InitProducerId. Layouts as in Kafka 4.3.1; the fields keep Kafka's names.
"""

from typing import Annotated

from busway_protocol.schema import message
from busway_protocol.types import (
    Int16,
    Int32,
    NullableTransactionalId,
    ProducerId,
    ignorable,
    since,
)


@message(api_key=22, direction="request", versions=(0, 5), flexible=2)
class InitProducerIdRequest:
    """Asks for a producer id and epoch, for idempotent and transactional producers (KIP-98, KIP-360)."""

    transactional_id: NullableTransactionalId
    transaction_timeout_ms: Int32
    producer_id: Annotated[ProducerId, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1


@message(api_key=22, direction="response", versions=(0, 5), flexible=2)
class InitProducerIdResponse:
    """The producer id and its epoch."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    error_code: Int16
    producer_id: ProducerId = -1
    producer_epoch: Int16
