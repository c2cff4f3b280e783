"""A batch that is small on the wire and becomes very large out of its codec: refused, for little memory, whatever the codec."""

import struct
from collections.abc import Callable
from typing import Final

import pytest

from busway_protocol.compile import decode
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.produce import ProduceResponse
from busway_protocol.records.batch import HEADER_BYTES, LENGTH_OVERHEAD, computed_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.compression import CODECS, MESSAGE_BYTES_DEFAULT, inflated_max
from tests.hostile.test_one_peer import MIB, answer, create, peers, produce
from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary, peak_memory_mib

GROWTH_MAX_MIB: Final = 64.0
TIMES: Final = 20
"""How often each bomb is sent: what one of them leaves behind would add up."""


def packed(codec: str, size: int) -> bytes:
    """A batch with one record of so many zeros."""
    builder = BatchBuilder(codec)
    builder.append(1_700_000_000_000, None, bytes(size))
    return builder.build()


def announced() -> bytes:
    """A batch in bare snappy that says it has 4 GiB."""
    data = bytearray(packed("snappy", 1)[:HEADER_BYTES] + b"\xff\xff\xff\xff\x0f" + bytes(1_000))
    data[8:12] = struct.pack(">i", len(data) - LENGTH_OVERHEAD)
    data[17:21] = computed_crc(data).to_bytes(4, "big")
    return bytes(data)


BOMBS: Final[dict[str, Callable[[], bytes]]] = {
    "gzip": lambda: packed("gzip", 256 * MIB),
    "lz4": lambda: packed("lz4", 200 * MIB),
    "snappy": lambda: packed("snappy", 20 * MIB),  # no more fit into a megabyte
    "snappy-announced": announced,
    "zstd": lambda: packed("zstd", 256 * MIB),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_for_little_memory(hostile_broker: BuswayProcess, canary: Canary, name: str) -> None:
    """MESSAGE_TOO_LARGE each time; what is written next shows that the log has not changed."""
    topic = f"bomb-{name}"
    create(hostile_broker, topic)
    bomb = BOMBS[name]()
    assert len(bomb) < MESSAGE_BYTES_DEFAULT
    with peers(hostile_broker, 1) as (peer,):

        def sent(records: bytes) -> tuple[int, int]:
            peer.sendall(produce(topic, records))
            (response,) = decode(ProduceResponse, 9, answer(peer), 5).responses[0].partition_responses
            return response.error_code, response.base_offset

        assert sent(packed("none", 100)) == (ErrorCode.NONE, 0)
        before = peak_memory_mib(hostile_broker.pid)
        for _ in range(TIMES):
            assert sent(bomb) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
        grown = peak_memory_mib(hostile_broker.pid) - before
        assert grown <= GROWTH_MAX_MIB, f"the broker took {grown:.0f} MiB more"
        assert sent(packed("none", 100)) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_what_is_just_within_the_limit_is_written(hostile_broker: BuswayProcess, canary: Canary, codec: str) -> None:
    """A megabyte less than what is refused is taken in."""
    topic = f"large-{codec}"
    create(hostile_broker, topic)
    with peers(hostile_broker, 1) as (peer,):
        for size, code in ((inflated_max(0) - MIB, ErrorCode.NONE), (inflated_max(0), ErrorCode.MESSAGE_TOO_LARGE)):
            peer.sendall(produce(topic, packed(codec, size)))
            (response,) = decode(ProduceResponse, 9, answer(peer), 5).responses[0].partition_responses
            assert response.error_code == code
