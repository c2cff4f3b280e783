"""The one rule for what a batch may become out of its codec."""

import pytest

from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.compression import MESSAGE_BYTES_DEFAULT, OutputTooLarge, inflated_max
from busway_protocol.records.record import decode_records


@pytest.mark.parametrize(
    ("size", "message_max", "limit"),
    [
        (100, 0, 16 * MESSAGE_BYTES_DEFAULT),
        (100, 1_000, 16 * MESSAGE_BYTES_DEFAULT),
        (100, 10_000_000, 160_000_000),
        (5_000_000, 10, 80_000_000),
    ],
)
def test_sixteen_times_the_largest_message(size, message_max, limit):
    """The batch's own size, its topic's setting or that one's default, whichever is most."""
    assert inflated_max(size, message_max) == limit


def test_a_bomb_is_refused_by_whoever_says_nothing_else():
    """Seventeen megabytes out of a few kilobytes are too much for a reader, fifteen are not."""
    for megabytes, refused in ((15, False), (17, True)):
        builder = BatchBuilder("zstd")
        builder.append(0, None, bytes(megabytes * 1_048_588))
        if refused:
            with pytest.raises(OutputTooLarge):
                decode_records(builder.build())
        else:
            assert len(decode_records(builder.build())) == 1
