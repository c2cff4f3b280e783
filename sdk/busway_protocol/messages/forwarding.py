"""Requests of brokers to the active controller on behalf of clients, and for producer ids."""

from busway_protocol.schema import message
from busway_protocol.types import BrokerId, Bytes, Int16, Int32, Int64, NullableBytes, ProducerId


@message(api_key=58, direction="request", versions=(0, 0), flexible=0)
class EnvelopeRequest:
    """A client's request, header included, with its principal and address (KIP-590)."""

    request_data: Bytes
    request_principal: NullableBytes = b""
    client_host_address: Bytes


@message(api_key=58, direction="response", versions=(0, 0), flexible=0)
class EnvelopeResponse:
    """The response to the client's request, header included; None with an error."""

    response_data: NullableBytes = None
    error_code: Int16


@message(api_key=67, direction="request", versions=(0, 0), flexible=0)
class AllocateProducerIdsRequest:
    """Request of a broker for a block of producer ids (KIP-730)."""

    broker_id: BrokerId
    broker_epoch: Int64 = -1


@message(api_key=67, direction="response", versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse:
    """The block, by its first id and length."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id_start: ProducerId = 0
    producer_id_len: Int32 = 0
