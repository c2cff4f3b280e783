"""How much one request may name: what a server has to work on in one piece has a bound, whatever its bytes are."""

import time
import tracemalloc

import pytest

from busway_protocol.compile import REQUEST_ELEMENTS_MAX, decode, encode
from busway_protocol.errors import MalformedMessage
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from busway_protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)


def topics(count: int) -> MetadataRequest:
    """A request that names so many."""
    return MetadataRequest(topics=[MetadataRequestTopic(name="")] * count)


def test_as_many_as_allowed_are_read() -> None:
    """The bound itself is inside."""
    assert len(decode(MetadataRequest, 9, encode(topics(REQUEST_ELEMENTS_MAX), 9)).topics or []) == REQUEST_ELEMENTS_MAX


def test_lists_in_lists_count_together() -> None:
    """Two topics with half of the partitions each are one topic too many."""
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)] * (REQUEST_ELEMENTS_MAX // 2)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=wanted)] * 2)
    with pytest.raises(MalformedMessage, match="several requests"):
        decode(FetchRequest, 12, encode(request, 12))


def test_a_bomb_is_refused_before_anything_is_made_of_it() -> None:
    """Two megabytes with a million empty names take neither memory nor time."""
    bomb = encode(topics(1_000_000), 9)
    decode(MetadataRequest, 9, encode(topics(1), 9))
    tracemalloc.start()
    began = time.thread_time()
    with pytest.raises(MalformedMessage, match="12,000"):
        decode(MetadataRequest, 9, bomb)
    assert time.thread_time() - began < 0.1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_answers_may_be_as_long_as_they_are() -> None:
    """A client reads what its broker sends."""
    answer = MetadataResponse(
        brokers=[], topics=[MetadataResponseTopic(error_code=0, name="", partitions=[])] * (REQUEST_ELEMENTS_MAX + 1)
    )
    assert len(decode(MetadataResponse, 9, encode(answer, 9)).topics) == REQUEST_ELEMENTS_MAX + 1
