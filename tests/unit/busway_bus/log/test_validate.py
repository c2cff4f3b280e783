"""What a client may not write: the batch's header, and each record in it."""

import random
import shutil
import sysconfig
from functools import partial
from pathlib import Path

import lz4.frame
import pytest
from tests.support.seeds import seed

from busway_bus.log.inspection import (
    NO_KEY,
    RECORDS_ON_LOOP_MAX,
    Inspected,
    RecordsRefused,
    finished,
    inspect,
    inspected_at_once,
)
from busway_bus.log.log_config import LogConfig
from busway_bus.log.validate import check_batch
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records import walk as walks
from busway_protocol.records.batch import HEADER_BYTES, CorruptBatch, computed_crc, read_header, verify_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records
from busway_protocol.records.walk import RecordWalk

NOW = 1_700_000_000_000
HOUR = 3_600_000
COMPACTED = LogConfig(cleanup_policy=("compact",))


@pytest.fixture(autouse=True, params=["pure", *(["compiled"] if walks.plain else [])])
def twin(request, monkeypatch):
    """Every test runs with the loop in Python alone, and with its compiled twin where that was built."""
    if request.param == "pure":
        monkeypatch.setattr(walks, "plain", None)


def batch(*, key: bytes | None = b"k", value: bytes = b"v", timestamp: int = NOW, count: int = 2, **options) -> bytes:
    """A batch with `count` records."""
    builder = BatchBuilder(**options)
    for _ in range(count):
        builder.append(timestamp, key, value)
    return builder.build()


def lying(position: int, content: bytes) -> bytes:
    """A batch with other bytes at `position` and a checksum that fits."""
    data = bytearray(batch())
    data[position : position + len(content)] = content
    data[17:21] = computed_crc(data).to_bytes(4, "big")
    return bytes(data)


def look(records: bytes, config: LogConfig) -> Inspected:
    """All checks, as a broker makes them."""
    view = memoryview(records)
    header = check_batch(view, config)
    inspected = finished(inspect(view, header, config, NOW))
    at_once = inspected_at_once(view, header, config, NOW)
    assert at_once is None or bytes(at_once.records) == bytes(inspected.records)
    return inspected


@pytest.mark.parametrize(
    ("records", "config", "code"),
    [
        (batch(), LogConfig(), None),
        (batch(compression="zstd"), LogConfig(), None),
        (batch(key=None), LogConfig(), None),
        (batch(compression="gzip"), COMPACTED, None),
        (b"", LogConfig(), ErrorCode.INVALID_RECORD),
        (batch()[:60], LogConfig(), ErrorCode.INVALID_RECORD),
        (batch()[:-1], LogConfig(), ErrorCode.INVALID_RECORD),
        (batch()[:-1] + b"?", LogConfig(), ErrorCode.CORRUPT_MESSAGE),
        (batch() + batch(), LogConfig(), ErrorCode.INVALID_RECORD),
        (lying(8, (-1).to_bytes(4, "big", signed=True)), LogConfig(), ErrorCode.CORRUPT_MESSAGE),
        (lying(8, bytes(4)), LogConfig(), ErrorCode.CORRUPT_MESSAGE),
        (lying(16, b"\1"), LogConfig(), ErrorCode.INVALID_RECORD),
        (lying(0, (5).to_bytes(8, "big")), LogConfig(), ErrorCode.INVALID_RECORD),
        (lying(22, b"\5"), LogConfig(), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lying(22, b"\x20"), LogConfig(), ErrorCode.INVALID_RECORD),
        (lying(22, b"\x08"), LogConfig(), ErrorCode.INVALID_TIMESTAMP),
        (lying(22, b"\x08"), LogConfig(message_timestamp_type="LogAppendTime"), None),
        (lying(23, bytes(4)), LogConfig(), ErrorCode.INVALID_RECORD),
        (lying(57, bytes(4)), LogConfig(), ErrorCode.INVALID_RECORD),
        (batch(producer_id=1, producer_epoch=-1, base_sequence=0), LogConfig(), ErrorCode.INVALID_RECORD),
        (batch(producer_id=1, producer_epoch=0, base_sequence=-1), LogConfig(), ErrorCode.INVALID_RECORD),
        (batch(timestamp=NOW + HOUR), LogConfig(), None),
        (batch(timestamp=NOW + HOUR + 1), LogConfig(), ErrorCode.INVALID_TIMESTAMP),
        (batch(timestamp=NOW + HOUR + 1), LogConfig(message_timestamp_type="LogAppendTime"), None),
        (batch(timestamp=-1), LogConfig(message_timestamp_before_max_ms=1), None),
        (batch(timestamp=NOW - 10), LogConfig(message_timestamp_before_max_ms=10), None),
        (batch(timestamp=NOW - 11), LogConfig(message_timestamp_before_max_ms=10), ErrorCode.INVALID_TIMESTAMP),
        (batch(), LogConfig(max_message_bytes=len(batch())), None),
        (batch(), LogConfig(max_message_bytes=len(batch()) - 1), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(key=None), COMPACTED, ErrorCode.INVALID_RECORD),
        (batch(key=None, compression="lz4"), COMPACTED, ErrorCode.INVALID_RECORD),
        (lying(61, b"\x7e"), LogConfig(), ErrorCode.INVALID_RECORD),
        (
            batch(value=bytes(10**7), compression="zstd"),
            LogConfig(cleanup_policy=("compact",), max_message_bytes=100_000),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
    ],
)
def test_each_lie_has_its_error_code(records, config, code):
    """Kafka's code, or the header where all is well."""
    if code is None:
        assert look(records, config).header.records_count == 2
        return
    with pytest.raises(KafkaError) as caught:
        look(records, config)
    assert caught.value.code is code
    assert caught.value.message


def plain(*records: bytes, count: int | None = None) -> bytes:
    """A batch of these encoded records, with a checksum that fits."""
    data = bytearray(batch(count=len(records) if count is None else count)[:61]) + b"".join(records)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = computed_crc(data).to_bytes(4, "big")
    return bytes(data)


GOOD = bytes.fromhex("10 00 00 00 02 6b 02 76 00"), bytes.fromhex("10 00 00 02 02 6b 02 76 00")


@pytest.mark.parametrize(
    "records",
    [
        plain(GOOD[0], bytes.fromhex("10 00 00 04 02 6b 02 76 00")),
        plain(GOOD[0], GOOD[0]),
        plain(GOOD[0], GOOD[1], b"?", count=2),
        plain(GOOD[0], count=2),
        plain(GOOD[0], GOOD[1], count=1),
        plain(bytes.fromhex("0f 00 00 00 02 6b 02 76 00")),
        plain(bytes.fromhex("12 00 00 00 02 6b 02 76 00 00")),
        plain(bytes.fromhex("10 00 00 00 04 6b 02 76 00")),
        plain(bytes.fromhex("10 00 00 00 02 6b 7e 76 00")),
        plain(bytes.fromhex("10 00 00 00 02 6b 02 76 02")),
        plain(bytes.fromhex("10 00 00 00 02 6b 02 76 01")),
        plain(bytes.fromhex("12 00 00 00 02 6b 02 76 02 01")),
        plain(bytes.fromhex("14 00 00 00 02 6b 02 76 02 00 02")),
        plain(bytes.fromhex("ffffffffffffffffffff01 00 00 00 02 6b 02 76 00")),
        plain(GOOD[0][:-1]),
        plain(b"", count=1),
        lying(22, b"\4"),
        lying(22, b"\1"),
    ],
)
def test_records_that_do_not_parse_are_refused(records):
    """Wherever the damage is: in a length, a count, an offset, behind the last record, or under the codec."""
    with pytest.raises(KafkaError) as caught:
        look(records, LogConfig())
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "record",
    [
        "10 00 00 00 02 6b 02 76 00",
        "0e 00 00 00 01 02 76 00",
        "0e 00 00 00 02 6b 01 00",
        "16 00 00 00 02 6b 02 76 02 02 68 01",
        "16 00 00 00 02 6b 02 76 02 02 ff 01",
        "18 00 00 00 02 6b 02 76 02 02 68 02 78",
        "12 00 80 01 00 02 6b 02 76 00",
    ],
)
def test_every_shape_of_a_record_is_taken(record):
    """Without key or value, with headers, one with a name that is no UTF-8, which Java takes for a replacement character."""
    records = plain(bytes.fromhex(record))
    inspected = look(records, LogConfig())
    assert inspected.header.records_count == len(decode_records(inspected.records)) == 1


def test_the_walk_and_the_reader_agree():
    """Random batches, and each of them with random damage: what the walk takes, the reader reads."""
    dice = random.Random(seed(1))
    for _ in range(300):
        builder = BatchBuilder()
        for _ in range(dice.choice((1, 2, 70, 200))):
            key = dice.choice((None, b"", b"k" * dice.randrange(200)))
            value = dice.choice((None, b"v" * dice.choice((0, 1, 63, 64, 127, 8_191, 8_192))))
            headers = [("h" * dice.randrange(70), dice.choice((None, b"", b"x" * 70)))] * dice.randrange(3)
            builder.append(NOW + dice.randrange(-100, 10_000), key, value, headers)
        data = bytearray(builder.build())
        header = read_header(data)
        records = decode_records(data)
        walk = RecordWalk(header, bytes(data[61:]))
        while walk.step(dice.randrange(1, 100)):
            pass
        assert walk.keyless_count == sum(record.key is None for record in records)
        assert (walk.earliest, walk.latest) == (min(r.timestamp for r in records), max(r.timestamp for r in records))
        for _ in range(5):
            data[dice.randrange(61, len(data))] = dice.randrange(256)
            walk = RecordWalk(header, bytes(data[61:]))
            try:
                while walk.step(50):
                    pass
            except CorruptBatch:
                continue
            assert [record.offset for record in decode_records(data)] == list(range(header.records_count))


def test_the_twin_is_built_where_there_is_a_compiler():
    """An install without it is slower and says so only in the builder's output, so a mistake in it would not be seen."""
    there = shutil.which("cc") and Path(sysconfig.get_paths()["include"], "Python.h").exists()
    built = Path(walks.__file__).with_name("_walk.abi3.so").exists()
    assert built or not there, "reinstall the package (pip install -e .) to have _walk.c compiled"


def outcome(header, data, steps):
    """All that a walk finds out, and the place and the words of its refusal."""
    walk = RecordWalk(header, data)
    try:
        for records in steps:
            if not walk.step(records):
                break
        problem = None
    except CorruptBatch as refused:
        problem = str(refused)
    else:
        assert walk._walked == header.records_count
    return problem, walk.keyless_count, walk.keyless, problem or (walk.earliest, walk.latest, walk._position)


def test_the_compiled_loop_finds_out_what_the_one_in_python_does(twin, monkeypatch):
    """Whole and damaged batches, walked over in the same steps: the same figures, the same words."""
    compiled = walks.plain
    if compiled is None:
        return  # the pure half of this test's two runs
    dice = random.Random(seed(1))
    for _ in range(400):
        builder = BatchBuilder()
        for _ in range(dice.choice((1, 2, 66, 130))):
            key = dice.choice((None, b"", b"k" * dice.randrange(140)))
            headers = [("h" * dice.randrange(70), dice.choice((None, b"x" * 70)))] * dice.randrange(3)
            builder.append(
                NOW + dice.randrange(-100, 10_000), key, dice.choice((None, b"v" * 64, bytes(9_000))), headers
            )
        batch = builder.build()
        data, header = bytearray(batch[61:]), read_header(batch)
        for _ in range(dice.randrange(3)):
            data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        if dice.random() < 0.1:
            del data[dice.randrange(len(data)) :]
        steps = [dice.randrange(1, 90) for _ in range(140)]
        monkeypatch.setattr(walks, "plain", None)
        wanted = outcome(header, bytes(data), steps)
        monkeypatch.setattr(walks, "plain", compiled)
        assert outcome(header, bytes(data), steps) == wanted


def test_the_records_at_fault_are_named():
    """KIP-467: each one's place and the reason, and in the message how many they are."""
    builder = BatchBuilder()
    for number in range(5):
        builder.append(NOW, None if number in {1, 3} else b"k", b"v")
    with pytest.raises(RecordsRefused) as caught:
        look(builder.build(), COMPACTED)
    assert caught.value.records == [(1, NO_KEY), (3, NO_KEY)]
    assert "2 records" in caught.value.message
    builder = BatchBuilder()
    for number in range(5):
        builder.append(NOW + (2 * HOUR if number == 4 else 0), b"k", b"v")
    with pytest.raises(RecordsRefused) as caught:
        look(builder.build(), LogConfig())
    assert [number for number, _ in caught.value.records] == [4]
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_a_lie_about_the_greatest_time_is_put_right():
    """Look-ups by time and retention go by the header; Kafka writes it again too."""
    inspected = look(lying(35, (NOW + 12 * HOUR).to_bytes(8, "big")), LogConfig())
    assert inspected.header.max_timestamp == read_header(inspected.records).max_timestamp == NOW
    verify_crc(inspected.records, inspected.header)


def test_much_work_is_not_done_at_once():
    """More records than may make others wait, or more bytes under a codec: that is for another thread, and found good there."""
    for records in (batch(count=RECORDS_ON_LOOP_MAX + 1), batch(value=bytes(2**20), count=2, compression="zstd")):
        view = memoryview(records)
        header = check_batch(view, LogConfig(max_message_bytes=2**24))
        assert inspected_at_once(view, header, LogConfig(), NOW) is None
        assert look(records, LogConfig()).header == header


def recoded(change, *, codec: str = "lz4") -> bytes:
    """A batch whose records went through `change`: plain bytes → bytes of the codec."""
    plain = batch(value=bytes(100_000))  # more than a block
    data = bytearray(batch(value=bytes(100_000), compression=codec))
    data[HEADER_BYTES:] = change(plain[HEADER_BYTES:])
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = computed_crc(data).to_bytes(4, "big")
    return bytes(data)


def small_blocks(codec: str, plain: bytes) -> bytes:
    """Plain bytes in a block for each of them, nothing compressed."""
    if codec == "lz4":
        stored = b"".join(b"\x01\x00\x00\x80" + plain[at : at + 1] for at in range(len(plain)))
        return bytes.fromhex("04224d18604082") + stored + bytes(4)
    blocks = b"".join(b"\x00\x00\x00\x03\x01\x00" + plain[at : at + 1] for at in range(len(plain)))
    return b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2 + blocks


@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_very_many_small_blocks_are_not_walked_at_once(codec):
    """A megabyte of blocks of one byte takes a tenth of a second: that is for another thread, in steps, and found good there."""
    config = LogConfig(max_message_bytes=2**21)
    records = recoded(partial(small_blocks, codec), codec=codec)
    view = memoryview(records)
    header = check_batch(view, config)
    assert inspected_at_once(view, header, config, NOW) is None
    assert sum(1 for _ in inspect(view, header, config, NOW)) > 100_000 / 256 - 1
    assert look(records, config).header == header


def frame(plain: bytes, **options) -> bytes:
    """One lz4 frame with independent blocks."""
    return lz4.frame.compress(plain, **{"block_linked": False, **options})


SKIPPABLE = bytes.fromhex("502a4d1804000000") + b"skip"


@pytest.mark.parametrize(
    "change",
    [
        frame,
        lambda plain: frame(plain, content_checksum=True, block_checksum=True),
        lambda plain: frame(plain, store_size=False, compression_level=9),
        lambda plain: frame(plain, block_size=lz4.frame.BLOCKSIZE_MAX4MB),
    ],
)
def test_lz4_frames_that_java_reads_are_taken(change) -> None:
    """One frame with independent blocks, with checksums and sizes or without."""
    assert look(recoded(change), LogConfig()).header.records_count == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda plain: frame(plain, block_linked=True), "linked blocks"),
        (lambda plain: frame(plain[:9]) + frame(plain[9:]), "more, or less, than one frame"),
        (lambda plain: SKIPPABLE + frame(plain), "does not begin with a frame"),
        (lambda plain: frame(plain) + SKIPPABLE, "more, or less, than one frame"),
        (lambda plain: frame(plain)[:-4], "more, or less, than one frame"),
        (lambda plain: frame(plain)[:-4] + b"\0\0\0\x80" + bytes(4), "more, or less, than one frame"),
    ],
)
def test_lz4_frames_at_which_java_stops_are_refused(change, why: str) -> None:
    """Kafka's Lz4BlockInputStream reads no linked blocks, one frame alone, and no other frame before it."""
    with pytest.raises(KafkaError, match=why) as refused:
        look(recoded(change), LogConfig())
    assert refused.value.code is ErrorCode.INVALID_RECORD
