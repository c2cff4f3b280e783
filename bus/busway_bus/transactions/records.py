"""Record types of `__transaction_state`, as written by Kafka's transaction coordinator.

Here: keys and values after a two-byte version; layouts of the kafka-transaction-coordinator 4.3.1 jar, which
`kafka-dump-log --transaction-log-decoder` reads.
Not here: their meaning (`transaction`).
"""

from typing import Annotated

from busway_protocol.compile import decode, encode
from busway_protocol.errors import MalformedMessage
from busway_protocol.schema import info_of, message, struct
from busway_protocol.types import Int8, Int16, Int32, Int64, Str, since, tag


@message(api_key=0, versions=(0, 0))
class TransactionLogKey:
    transactional_id: Str


@struct
class PartitionsSchema:
    topic: Str
    partition_ids: list[Int32]


@message(api_key=0, versions=(0, 1), flexible=1)
class TransactionLogValue:
    """The state of a transactional id. Version 0 has no tagged fields: it is for transaction.version 0."""

    producer_id: Int64
    previous_producer_id: Annotated[Int64, since(1), tag(0)] = -1
    next_producer_id: Annotated[Int64, since(1), tag(1)] = -1
    producer_epoch: Int16
    next_producer_epoch: Annotated[Int16, since(1), tag(3)] = -1
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Annotated[Int16, since(1), tag(2)] = 0


def key_bytes(transactional_id: str) -> bytes:
    return b"\x00\x00" + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def value_bytes(value: TransactionLogValue, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(value, version)


def parse_key(key: bytes) -> str | None:
    """Decode a transactional id; None for an unknown type of key.

    Raises:
        MalformedMessage: the bytes are damaged.
    """
    if int.from_bytes(key[:2], "big") != 0:
        return None
    return decode(TransactionLogKey, 0, key, 2).transactional_id


def parse_value(value: bytes) -> tuple[TransactionLogValue, int]:
    """Decode a value and its version.

    Raises:
        MalformedMessage: the bytes are damaged, or their version is unknown.
    """
    version, info = int.from_bytes(value[:2], "big", signed=True), info_of(TransactionLogValue)
    if not info.min_version <= version <= info.max_version:
        text = f"TransactionLogValue in version {version}, but {info.max_version} is the last one known here"
        raise MalformedMessage(text)
    return decode(TransactionLogValue, version, value, 2), version
