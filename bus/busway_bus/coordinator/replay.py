"""The records of a log that a replay applies, and their order.

Here: the latest record of each key, without tombstones and aborted transactions; for an incremental shard all records.
Not here: reading the log (`log.partition_log`), when (`loading`).
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from busway_bus.coordinator.shard import IncrementalShard, Record, Shard, TransactionalShard
from busway_bus.kernel.open_transactions import OpenTransactions
from busway_protocol.records.batch import read_header, verify_crc
from busway_protocol.records.control import read_marker
from busway_protocol.records.record import decode_records
from busway_protocol.types import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRecords:
    """The records of a replay, in this order.

    Attributes:
        overtaken: of open transactions, with producer id; a later record of the key is in force.
        records: in force.
        pending: of open transactions, with producer id; they count on commit.
    """

    overtaken: list[tuple[Record, int]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    pending: list[tuple[Record, int]] = field(default_factory=list)


def latest_records(shard: Shard, batches: Iterable[Buffer]) -> Generator[None, None, LatestRecords]:
    """Find the records to apply, in steps; ProtocolError for damage."""
    last: dict[bytes, bytes | None] = {}
    undecided: OpenTransactions[bytes, bytes] = OpenTransactions()
    for batch in batches:
        header = read_header(batch)
        verify_crc(batch, header)
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None:
                last.update(undecided.end(header.producer_id, committed=marker.committed))
        else:
            for record in decode_records(batch):
                if record.key is None:
                    continue
                if header.is_transactional and record.value is not None:
                    undecided.put(header.producer_id, record.key, record.value)
                    continue
                last[record.key] = record.value
                if record.value is None:
                    undecided.forget(record.key)
                else:
                    undecided.overtake(record.key)
        yield
    return (yield from _decoded(shard, last, undecided))


def _decoded(
    shard: Shard, last: dict[bytes, bytes | None], undecided: OpenTransactions[bytes, bytes]
) -> Generator[None, None, LatestRecords]:
    latest = LatestRecords()
    for key, value in last.items():
        if value is not None:
            decoded = shard.decode(key, value)
            if decoded is not None:
                latest.records.append(decoded)
            yield
    for key, producer_id, content, counts in undecided.all():
        decoded = shard.decode(key, content)
        if decoded is not None:
            (latest.pending if counts else latest.overtaken).append((decoded, producer_id))
        yield
    return latest


def apply_records(shard: Shard, latest: LatestRecords, now: int) -> Generator[None, None, None]:
    """Apply these records in steps.

    Those of open transactions only to a `TransactionalShard`.
    """
    transactional = shard if isinstance(shard, TransactionalShard) else None
    if transactional is not None:
        yield from _apply_pending(transactional, latest.overtaken, now)
    for record in latest.records:
        shard.apply(record, now)
        yield
    if transactional is not None:
        yield from _apply_pending(transactional, latest.pending, now)


def apply_all(
    shard: IncrementalShard, batches: Iterable[Buffer], now: int, *, start_offset: int
) -> Generator[None, None, None]:
    """Apply every record from `start_offset`, a batch at a time.

    ProtocolError: damage.
    """
    for batch in batches:
        header = read_header(batch)
        verify_crc(batch, header)
        if not header.is_control:
            for record in decode_records(batch):
                if record.key is not None and record.offset >= start_offset:
                    decoded = shard.decode(record.key, record.value)
                    if decoded is not None:
                        shard.at(record.offset)
                        shard.apply(decoded, now)
        yield


def _apply_pending(
    shard: TransactionalShard, records: list[tuple[Record, int]], now: int
) -> Generator[None, None, None]:
    for record, producer_id in records:
        shard.apply_pending(record, producer_id, now)
        yield
