"""Cutting what a socket delivers into frames: in pieces of any size, with other connections reading in between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_bus.server.frame_reader import FrameReader, scratch_buffer
from busway_protocol.errors import FrameRefused

SCRATCH = scratch_buffer()


def framed(*bodies: bytes) -> bytes:
    """The bodies as they go over the wire."""
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def deliver(intake: FrameReader, data: bytes) -> list[memoryview]:
    """Hand over the bytes as an event loop does: as much at a time as the buffer holds."""
    frames = []
    while data:
        buffer = intake.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        frames += intake.received(count)
        data = data[count:]
    return frames


@given(
    bodies=st.lists(st.binary(max_size=300), max_size=12), cuts=st.lists(st.integers(1, 400), min_size=1, max_size=20)
)
def test_frames_come_whole_however_they_arrive(bodies: list[bytes], cuts: list[int]) -> None:
    """Pieces of any size give the same frames, and they stay valid while others use the shared buffer."""
    wire, intake, frames, turn = framed(*bodies), FrameReader(1000, SCRATCH), [], 0
    while wire:
        cut = cuts[turn % len(cuts)]
        frames += deliver(intake, wire[:cut])
        deliver(FrameReader(1000, SCRATCH), framed(b"\xff" * 900))
        wire, turn = wire[cut:], turn + 1
    assert [bytes(frame) for frame in frames] == bodies
    assert not intake.partial


def test_a_frame_larger_than_any_buffer_comes_whole() -> None:
    """The buffer of a frame grows as its bytes arrive, and what follows is not lost."""
    large = bytes(range(256)) * 20_000
    frames = deliver(FrameReader(len(large), SCRATCH), framed(b"before", large, b"behind"))
    assert [bytes(frame) for frame in frames] == [b"before", large, b"behind"]


def test_nothing_is_allocated_for_bytes_that_were_only_announced() -> None:
    """A peer that announces 100 MB and sends ten bytes gets a buffer of a megabyte."""
    intake = FrameReader(100 * 1024 * 1024, SCRATCH)
    deliver(intake, (100 * 1024 * 1024).to_bytes(4, "big") + b"0123456789")
    assert len(intake.buffer()) <= 1024 * 1024
    assert intake.partial


@pytest.mark.parametrize("size", [-1, 1001])
def test_an_impossible_size_is_refused(size: int) -> None:
    """Negative, or above the limit: refused with the bytes it began with."""
    with pytest.raises(FrameRefused) as refused:
        deliver(FrameReader(1000, SCRATCH), framed(b"fine") + size.to_bytes(4, "big", signed=True) + b"GET /")
    assert refused.value.size == size
    assert refused.value.head[4:] == b"GET /"


def test_a_frame_that_has_begun_holds_what_has_come_of_it() -> None:
    """Fifty bytes of an announced 100 MB hold fifty bytes; then the buffer follows what comes, four times at most."""
    intake = FrameReader(100 * 1024 * 1024, SCRATCH)
    deliver(intake, (100 * 1024 * 1024).to_bytes(4, "big") + bytes(50))
    assert intake.held == 50
    arrived = 50
    while arrived < 3_000_000:
        deliver(intake, bytes(min(arrived, 100_000)))
        arrived += min(arrived, 100_000)
        assert arrived <= intake.held <= max(4 * arrived, 8192)
