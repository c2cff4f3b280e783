"""What a builder packs, a reader unpacks; what would inflate too far is refused."""

import random

import pytest

from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.compression import CODECS, OutputTooLarge, compress, decompress
from busway_protocol.records.record import decode_records


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_comes_back(codec):
    """Keys, values, headers, nulls and times survive every codec, compressible or not."""
    builder, keys = BatchBuilder(codec), random.Random(1)
    rows = [
        (5 - at, None if at == 3 else keys.randbytes(at), b"v" * at * 9000, (("h", None), ("é", b"1")))
        for at in range(20)
    ]
    for row in rows:
        builder.append(*row)
    read = decode_records(builder.build(100))
    assert [(r.timestamp, r.key, r.value, r.headers) for r in read] == rows
    assert [r.offset for r in read] == list(range(100, 120))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_refused(codec):
    """Ten megabytes of zeros do not come out where one is the limit."""
    bomb = compress(codec, bytes(10_000_000))
    with pytest.raises(OutputTooLarge):
        decompress(codec, bomb, 1_000_000)


@pytest.mark.parametrize("level", [None, 1, 3, 9, 12, 17])
def test_lz4_has_levels(level: int | None) -> None:
    """Blocks of every level are read back, also what cannot be compressed; the dense ones are smaller."""
    plain = random.Random(7)
    words = [plain.randbytes(5) for _ in range(50)]
    text = b"".join(plain.choices(words, k=40_000)) + plain.randbytes(70_000)
    packed = compress(3, text, level)
    assert decompress(3, packed, len(text)) == text
    if level is not None and level > 2:
        assert len(packed) < len(compress(3, text))
