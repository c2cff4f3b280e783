"""Batches as they are stored: stamped by a leader, checked by a follower."""

import pytest

from busway_bus.log.append_info import fetched, stamped
from busway_bus.log.log_config import LogConfig
from busway_protocol.records.batch import CorruptBatch, read_header, verify_crc
from busway_protocol.records.builder import BatchBuilder


def batch_of(*values: bytes) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(1_000, None, value)
    return bytearray(builder.build())


@pytest.mark.parametrize(("setting", "timestamp"), [("CreateTime", 1_000), ("LogAppendTime", 5_000)])
def test_a_leader_stamps_offset_and_epoch(setting: str, timestamp: int) -> None:
    """The checksum still holds; the records are those that were sent."""
    batch = batch_of(b"one", b"two")
    config = LogConfig(message_timestamp_type=setting)
    pieces, header = stamped(batch, read_header(batch), first=40, leader_epoch=7, config=config, now_ms=5_000)
    whole = b"".join(pieces)
    assert (header.base_offset, header.partition_leader_epoch, header.max_timestamp) == (40, 7, timestamp)
    assert read_header(whole) == header
    verify_crc(whole, header)
    assert whole.endswith(bytes(batch[61:]))


def test_a_follower_takes_a_batch_behind_its_end() -> None:
    """With a gap, as compaction leaves it, too; not one that it has already, nor a damaged one."""
    batch = batch_of(b"one", b"two")
    header, marker = fetched(batch, 0)
    assert (header.base_offset, marker) == (0, None)
    with pytest.raises(CorruptBatch, match="offset 0 was fetched, the log ends at 1"):
        fetched(batch, 1)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        fetched(batch, 0)
