"""Every message in every version, byte for byte and value for value, against Kafka's own classes."""

import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from tests.conformance.oracle import CLIENT_ID, CORRELATION_ID, Oracle
from tests.support.messages import messages

from busway_protocol.apis import APIS, ApiKey, request_header_version, response_header_version
from busway_protocol.compile import decode, encode
from busway_protocol.errors import ErrorCode
from busway_protocol.frames import FrameReader, frame_header
from busway_protocol.headers import RequestHeader, ResponseHeader
from busway_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.schema import Field, fields_of, info_of
from busway_protocol.types import Kind

pytestmark = [pytest.mark.java, pytest.mark.slow]

CLASSES = [cls for api in APIS.values() for cls in (api.request, api.response)]
EXAMPLES = 12
"""Messages for each class and version; the same ones in every run."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """One JVM for the whole module."""
    with Oracle() as running:
        yield running


def snake(name: str) -> str:
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name)).lower()


def examples(cls: type[Any], version: int) -> list[Any]:
    """Messages from the definitions; one of them carries tagged fields that no reader knows."""
    messages_made: list[Any] = []

    @settings(max_examples=EXAMPLES, derandomize=True)
    @given(message=messages(cls, version))
    def collect(message: Any) -> None:
        messages_made.append(message)

    collect()
    if info_of(cls).flexible(version):
        messages_made[-1].unknown_tags = {1000: b"later", 100_000: b""}
    return messages_made


def as_json(field: Field, value: Any, version: int) -> Any:
    """`value` the way Kafka's JSON converters write it."""
    if value is None:
        return None
    if field.is_array:
        return [element(field, item, version) for item in value]
    return element(field, value, version)


def element(field: Field, value: Any, version: int) -> Any:
    if field.struct is not None:
        return fields_as_json(value, version)
    if field.kind is Kind.UUID:
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if field.kind is Kind.BYTES:
        return base64.b64encode(value).decode()
    if field.kind is Kind.RECORDS:
        return len(value)
    return value


def fields_as_json(message: Any, version: int) -> dict[str, Any]:
    """All fields of this version; a tagged one only where it differs from its default."""
    return {
        field.name: as_json(field, getattr(message, field.name), version)
        for field in fields_of(type(message))
        if field.exists(version) and not (field.tagged(version) and getattr(message, field.name) == field.default)
    }


def with_our_names(value: Any) -> Any:
    """Kafka's JSON with our field names, and a record field as its size."""
    if isinstance(value, dict):
        return {snake(name).removesuffix("_size_in_bytes"): with_our_names(field) for name, field in value.items()}
    if isinstance(value, list):
        return [with_our_names(item) for item in value]
    return value


@pytest.mark.parametrize("cls", [*CLASSES, RequestHeader, ResponseHeader])
def test_kafka_reads_and_writes_the_same_bytes(cls: type[Any], oracle: Oracle) -> None:
    """Kafka reads our bytes to our values, writes them back as the same bytes, and we read those to the same message."""
    info = info_of(cls)
    for version in range(info.min_version, info.max_version + 1):
        for message in examples(cls, version):
            ours = encode(message, version)
            theirs = oracle.read(cls.__name__, version, ours)
            assert theirs.encoded == ours, (cls.__name__, version, message)
            assert with_our_names(theirs.fields) == fields_as_json(message, version), (cls.__name__, version)
            assert decode(cls, version, theirs.encoded) == message


@pytest.mark.parametrize("key", list(APIS))
def test_kafka_frames_requests_and_responses_as_we_do(key: ApiKey, oracle: Oracle) -> None:
    """Size, header in the right version, body: the frame that Kafka sends is ours, and our reader takes it apart."""
    api = APIS[key]
    for version in range(api.min_version, api.max_version + 1):
        request = encode(
            RequestHeader(
                request_api_key=key,
                request_api_version=version,
                correlation_id=CORRELATION_ID,
                client_id=CLIENT_ID,
            ),
            request_header_version(key, version),
        )
        response = encode(ResponseHeader(correlation_id=CORRELATION_ID), response_header_version(key, version))
        for cls, header in ((api.request, request), (api.response, response)):
            body = encode(examples(cls, version)[0], version)
            theirs = oracle.read(cls.__name__, version, body).frame
            assert theirs == frame_header(len(header) + len(body)) + header + body, (cls.__name__, version)
            assert [bytes(frame) for frame in FrameReader(len(theirs)).feed(theirs)] == [header + body]


def test_the_error_codes_are_kafkas(oracle: Oracle) -> None:
    """Number, name and whether a retry can help, for every code, both ways."""
    theirs = {row["name"]: (row["code"], row["retriable"]) for row in oracle.table("Errors")}
    assert {code.name: (code.value, code.retriable) for code in ErrorCode} == theirs
    assert all(code.text for code in ErrorCode)


def test_the_version_ranges_are_kafkas(oracle: Oracle) -> None:
    """Key, name, lowest and highest stable version of every API defined here."""
    theirs = {row["name"]: (row["key"], row["min"], row["max"]) for row in oracle.table("ApiKeys")}
    for api in APIS.values():
        assert (api.key, api.min_version, api.max_version) == theirs[api.key.name]


WITHOUT_RECORDS = [
    ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[TopicProduceData(partition_data=[PartitionProduceData(index=3, records=None)])],
    ),
    FetchResponse(
        throttle_time_ms=0,
        responses=[
            FetchableTopicResponse(
                partitions=[
                    PartitionData(
                        partition_index=3, error_code=0, high_watermark=0, aborted_transactions=None, records=None
                    )
                ]
            )
        ],
    ),
]


@pytest.mark.parametrize("message", WITHOUT_RECORDS, ids=lambda message: type(message).__name__)
def test_absent_records_are_null_for_kafka_too(message: Any, oracle: Oracle) -> None:
    """No records at all, which the strategies do not make, is null to Kafka in every version and comes back as null."""
    cls = type(message)
    for version in range(info_of(cls).min_version, info_of(cls).max_version + 1):
        ours = encode(message, version)
        theirs = oracle.read(cls.__name__, version, ours)
        assert theirs.encoded == ours
        assert with_our_names(theirs.fields) == fields_as_json(message, version)
        assert decode(cls, version, ours) == message
