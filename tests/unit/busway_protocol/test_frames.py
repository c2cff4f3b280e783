"""Framing: whole frames come out however the bytes are cut; a bad size is refused before it costs anything."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_protocol.errors import FrameRefused
from busway_protocol.frames import FrameReader, frame_header


@given(payloads=st.lists(st.binary(max_size=40), max_size=6), cuts=st.lists(st.integers(0, 300), max_size=8))
def test_frames_come_out_whole_however_the_stream_is_cut(payloads: list[bytes], cuts: list[int]) -> None:
    """Any cutting of the stream gives the same frames in the same order."""
    stream = b"".join(frame_header(len(payload)) + payload for payload in payloads)
    edges = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    reader = FrameReader(1000)
    frames = []
    for start, end in itertools.pairwise(edges):
        frames += [bytes(frame) for frame in reader.feed(stream[start:end])]
    assert frames == payloads
    assert reader.pending == 0


@pytest.mark.parametrize(("head", "size"), [(b"\xff\xff\xff\xff", -1), (b"GET / HTTP/1.1", 1_195_725_856)])
def test_a_size_out_of_bounds_is_refused_at_once(head: bytes, size: int) -> None:
    """Negative, or an HTTP request read as a size."""
    with pytest.raises(FrameRefused) as refused:
        FrameReader(100 * 1024 * 1024).feed(head)
    assert refused.value.size == size
    assert refused.value.head == head[:16]


def test_a_frame_of_many_pieces_is_not_copied_and_stays_as_it_is() -> None:
    """It is a view of the buffer in which it has come, which what follows does not change."""
    reader, payload = FrameReader(1000), bytes(range(200))
    stream = frame_header(200) + payload + frame_header(3) + b"abc"
    assert reader.feed(stream[:100]) == []
    buffer = reader._buffer
    (frame,) = reader.feed(stream[100:206])
    assert frame.obj is buffer
    assert frame.readonly
    (behind,) = reader.feed(stream[206:])
    assert (bytes(frame), bytes(behind)) == (payload, b"abc")
