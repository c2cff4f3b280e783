"""API keys, versions, message classes, header versions, version negotiation.

Here: one table, built from the message classes, with the version ranges of Apache Kafka 4.3.1.
Not here: which APIs a broker serves (its handlers).
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from busway_protocol.compile import decode_from
from busway_protocol.errors import UnencodableMessage
from busway_protocol.headers import ResponseHeader
from busway_protocol.messages import (
    brokers,
    cluster,
    configs,
    fetch,
    forwarding,
    groups_classic,
    groups_modern,
    metadata,
    metadata_snapshots,
    offsets,
    partitions,
    produce,
    quorum,
    sasl,
    share_groups,
    share_state,
    topics,
    transactions,
)
from busway_protocol.schema import info_of


class ApiKey(IntEnum):
    """Numbers of the APIs."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    key: ApiKey
    name: str
    request: type[Any]
    response: type[Any]
    min_version: int
    max_version: int
    flexible_from: int


_REQUEST_HEAD: Final = struct.Struct(">hhih")
"""API key, version, correlation id, the client id's length."""
_CORRELATION: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"
"""An empty set of tagged fields, in headers of flexible versions."""
_MODULES: Final = (
    brokers,
    cluster,
    configs,
    fetch,
    forwarding,
    groups_classic,
    groups_modern,
    metadata,
    metadata_snapshots,
    offsets,
    partitions,
    produce,
    quorum,
    sasl,
    share_groups,
    share_state,
    topics,
    transactions,
)


def _collect() -> dict[int, Api]:
    messages: dict[ApiKey, dict[str, type[Any]]] = {}
    for module in _MODULES:
        for value in vars(module).values():
            if isinstance(value, type) and hasattr(value, "message_info"):
                info = info_of(value)
                assert info.api_key is not None
                messages.setdefault(ApiKey(info.api_key), {})[info.direction] = value
    table: dict[int, Api] = {}
    for key in sorted(messages):
        request, response = messages[key]["request"], messages[key]["response"]
        info = info_of(request)
        table[key] = Api(
            key=key,
            name=request.__name__.removesuffix("Request"),
            request=request,
            response=response,
            min_version=info.min_version,
            max_version=info.max_version,
            flexible_from=info.flexible_since,
        )
    return table


APIS: Final[Mapping[int, Api]] = _collect()


def api(key: int) -> Api:
    known = APIS.get(key)
    if known is None:
        raise KeyError(f"no API has the key {key}")
    return known


def request_header_version(key: int, version: int) -> int:
    return 2 if version >= api(key).flexible_from else 1


def response_header_version(key: int, version: int) -> int:
    """Return the header version of a response.

    0 for ApiVersions: a client reads it before versions are negotiated (KIP-511).
    """
    if key == ApiKey.API_VERSIONS:
        return 0
    return 1 if version >= api(key).flexible_from else 0


def request_head(key: int, version: int, correlation_id: int, client_id: bytes) -> bytes:
    """Encode the header of a request, as `RequestHeader`; raise `UnencodableMessage`."""
    try:
        head = _REQUEST_HEAD.pack(key, version, correlation_id, len(client_id)) + client_id
    except struct.error as problem:
        raise UnencodableMessage(f"the header of a request: {problem}") from problem
    return head + _NO_TAGS if version >= api(key).flexible_from else head


def response_head(key: int, version: int, frame: memoryview) -> tuple[int, int]:
    """Decode the header of a response, as `ResponseHeader`; raise `MalformedMessage`.

    Returns:
        The correlation id, and where the message begins.
    """
    header_version = response_header_version(key, version)
    end = _CORRELATION.size + header_version
    if frame[_CORRELATION.size : end] == _NO_TAGS[:header_version] and len(frame) >= end:
        return _CORRELATION.unpack_from(frame)[0], end
    header, end = decode_from(ResponseHeader, header_version, frame, 0)
    return header.correlation_id, end


def negotiate(key: int, offered: tuple[int, int]) -> int | None:
    """Return the highest version within this package's range and `offered` (lowest, highest), or None."""
    known = api(key)
    version = min(known.max_version, offered[1])
    return version if version >= max(known.min_version, offered[0]) else None
