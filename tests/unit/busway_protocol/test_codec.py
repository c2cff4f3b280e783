"""The compiled codecs: what goes in comes out, whatever comes in is judged."""

import contextlib
import random
import tracemalloc
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.messages import every_version, messages
from tests.support.seeds import seed

from busway_protocol.apis import (
    APIS,
    ApiKey,
    negotiate,
    request_head,
    request_header_version,
    response_head,
    response_header_version,
)
from busway_protocol.compile import decode, encode, encode_chunks
from busway_protocol.errors import MalformedMessage, UnencodableMessage
from busway_protocol.headers import RequestHeader, ResponseHeader
from busway_protocol.messages.fetch import FetchRequest
from busway_protocol.messages.groups_classic import HeartbeatRequest, JoinGroupRequest
from busway_protocol.messages.metadata import MetadataRequest, MetadataResponse
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def examples(cls: type[Any], version: int, count: int) -> list[Any]:
    """Messages from the definitions, the same ones in every run."""
    collected: list[Any] = []

    @settings(max_examples=count, derandomize=True)
    @given(message=messages(cls, version))
    def collect(message: Any) -> None:
        collected.append(message)

    collect()
    return collected


@pytest.mark.parametrize("cls", [cls for api in APIS.values() for cls in (api.request, api.response)])
def test_every_message_survives_the_round_trip_in_every_version(cls: type[Any]) -> None:
    """decode(encode(m)) = m, for messages made from the definitions."""
    for version in [message for other, message in every_version() if other is cls]:
        for message in examples(cls, version, 6):
            assert decode(cls, version, encode(message, version)) == message


def test_known_bytes() -> None:
    """A heartbeat as the protocol guide lays it out, old and flexible."""
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert encode(heartbeat, 0) == b"\0\x01g\0\0\0\x01\0\x01m"
    assert encode(heartbeat, 4) == b"\x02g\0\0\0\x01\x02m\0\0"
    assert encode(RequestHeader(request_api_key=3, request_api_version=12, correlation_id=9, client_id="c"), 2) == (
        b"\0\x03\0\x0c\0\0\0\x09\0\x01c\0"
    )
    assert encode(ResponseHeader(correlation_id=9), 1) == b"\0\0\0\x09\0"


def test_records_travel_by_reference() -> None:
    """The buffer handed in is the buffer handed out, never a copy; decoding gives a view into the frame."""
    batch = bytes(20_000)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    chunks = encode_chunks(request, 9)
    assert any(chunk is batch for chunk in chunks)
    frame = b"".join(chunks)
    records = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_a_piece_that_stands_for_bytes_elsewhere_is_passed_on_however_small_it_is() -> None:
    """A few bytes of a file are sent from the file."""

    class Elsewhere:
        def __len__(self) -> int:
            return 3

    piece = cast("Any", Elsewhere())
    request = ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=[piece])])],
    )
    assert piece in encode_chunks(request, 9)


def test_unknown_tagged_fields_are_kept_and_written_back() -> None:
    """A field of a later version passes through unharmed (KIP-482)."""
    frame = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)[:-1] + b"\x01\x07\x02hi"
    heartbeat = decode(HeartbeatRequest, 4, frame)
    assert heartbeat.unknown_tags == {7: b"hi"}  # type: ignore[attr-defined]
    assert encode(heartbeat, 4) == frame


def test_a_field_that_the_version_lacks_is_refused_unless_it_may_be_dropped() -> None:
    """Losing what the caller said must be said, except where Kafka allows it."""
    with pytest.raises(UnencodableMessage, match="HeartbeatRequest v2 cannot carry the value set of group_instance_id"):
        encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i"), 2)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], rack_id="r")
    assert decode(FetchRequest, 4, encode(fetch, 4)).rack_id == ""
    with pytest.raises(UnencodableMessage, match="cannot carry null of topics"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(UnencodableMessage, match="has the versions"):
        encode(fetch, 99)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xff" * 40,
        b"\x02g\0\0\0\x01\x02m\0\0trailing",
        b"\x02\xff\0\0\0\x01\x02m\0\0",
        b"\x00\0\0\0\x01\x02m\0\0",
        b"\xff\xff\xff\xff\xff\xff\x01",
        b"\x02g\0\0\0\x01\x02m\0\x02\x07\0\x07\0",
        b"\x02g\0\0\0\x01\x02m\0\x01\x07\x7f",
    ],
)
def test_damaged_bytes_give_one_typed_error(frame: bytes) -> None:
    """Short, trailing, not UTF-8, null where none may be, endless varint, duplicate tag, lying tag size."""
    with pytest.raises(MalformedMessage):
        decode(HeartbeatRequest, 4, frame)


@settings(max_examples=300)
@given(choice=st.sampled_from(every_version()), frame=st.binary(max_size=200))
def test_arbitrary_bytes_give_a_message_or_the_typed_error(choice: tuple[type[Any], int], frame: bytes) -> None:
    """No input of any kind raises anything else."""
    with contextlib.suppress(MalformedMessage):
        decode(*choice, frame)


@pytest.mark.slow
def test_mutated_messages_give_a_message_or_the_typed_error() -> None:
    """Bit flips in valid messages, the likeliest damage, raise nothing else either."""
    rng = random.Random(seed(20_240_917))
    for cls, version in every_version():
        for message in examples(cls, version, 3):
            frame = bytearray(encode(message, version))
            for _ in range(20):
                if frame:
                    damaged = bytearray(frame)
                    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
                    try:
                        decode(cls, version, bytes(damaged[: rng.randrange(len(damaged) + 1)]))
                        decode(cls, version, bytes(damaged))
                    except MalformedMessage:
                        pass


@pytest.mark.parametrize("cls", [MetadataResponse, JoinGroupRequest, FetchRequest])
def test_a_lying_count_allocates_nothing(cls: type[Any]) -> None:
    """Two billion elements announced in forty bytes cost no more than those bytes."""
    version = next(version for other, version in every_version() if other is cls)
    for frame in (b"\x7f\xff\xff\xff" * 10, b"\0\0\0\0" * 4 + b"\x7f\xff\xff\xff" * 6):
        tracemalloc.start()
        with pytest.raises(MalformedMessage):
            decode(cls, version, frame)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000


@pytest.mark.parametrize(("key", "version"), [(ApiKey.FETCH, 11), (ApiKey.FETCH, 12), (ApiKey.API_VERSIONS, 4)])
def test_headers_without_their_classes_are_those_of_the_classes(key: int, version: int) -> None:
    """Of requests, and of responses with tagged fields too; what is cut off is refused."""
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=9, client_id="ü")
    assert request_head(key, version, 9, "ü".encode()) == encode(header, request_header_version(key, version))
    with pytest.raises(UnencodableMessage):
        request_head(key, version, 9, bytes(2**15))
    head = encode(ResponseHeader(correlation_id=-7), response_header_version(key, version))
    assert response_head(key, version, memoryview(head + b"\1body")) == (-7, len(head))
    for end in range(len(head)):
        with pytest.raises(MalformedMessage):
            response_head(key, version, memoryview(head[:end]))


def test_tagged_fields_of_a_response_header_are_skipped() -> None:
    head = encode(ResponseHeader(correlation_id=1), 0) + b"\1\7\2hi"
    assert response_head(ApiKey.FETCH, 12, memoryview(head + b"body")) == (1, len(head))


def test_header_versions_and_negotiation() -> None:
    """Flexible requests have flexible headers; the ApiVersions answer keeps the oldest one."""
    assert request_header_version(ApiKey.FETCH, 11) == 1
    assert request_header_version(ApiKey.FETCH, 12) == 2
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0
    assert response_header_version(ApiKey.FETCH, 12) == 1
    assert negotiate(ApiKey.FETCH, (0, 11)) == 11
    assert negotiate(ApiKey.FETCH, (0, 3)) is None
    assert negotiate(ApiKey.FETCH, (4, 99)) == 18


def test_a_string_is_bounded_in_every_version() -> None:
    """32,767 bytes pass; one more is refused both ways, also where the length is a varint and the field may be null."""
    for name in ("group_id", "group_instance_id"):
        for size, fits in ((32_767, True), (32_768, False)):
            values = {"group_id": "g", "group_instance_id": "i", name: "x" * size}
            heartbeat = HeartbeatRequest(generation_id=1, member_id="m", **values)
            for version in (3, 4):
                if fits:
                    assert decode(HeartbeatRequest, version, encode(heartbeat, version)) == heartbeat
                else:
                    with pytest.raises(UnencodableMessage):
                        encode(heartbeat, version)
    frame = b"\x81\x80\x02" + b"x" * 32_768 + b"\0\0\0\x01\x02m\0\0"
    with pytest.raises(MalformedMessage, match="longer than 32,767 bytes"):
        decode(HeartbeatRequest, 4, frame)


def test_values_of_the_wrong_kind_are_named() -> None:
    """What a type checker would have caught is one typed error at run time: no stray struct or Unicode errors."""
    for wrong in ({"generation_id": 2**31}, {"generation_id": "1"}, {"group_id": None}, {"group_id": "\ud800"}):
        values: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m", **wrong}
        for version in (0, 4):
            with pytest.raises(UnencodableMessage, match=f"HeartbeatRequest v{version}"):
                encode(HeartbeatRequest(**values), version)


def test_a_list_of_record_buffers_is_written_as_one_field() -> None:
    """A fetch answer is put together from segments without joining them."""
    pieces = [memoryview(bytes([1]) * 3_000), memoryview(bytes([2]) * 5_000)]
    partition = PartitionProduceData(index=0, records=list(pieces))
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    for version in (3, 9):
        chunks = encode_chunks(request, version)
        assert [chunk for chunk in chunks if any(chunk is piece for piece in pieces)] == pieces
        again = decode(ProduceRequest, version, b"".join(chunks))
        assert again.topic_data[0].partition_data[0].records == b"".join(pieces)
