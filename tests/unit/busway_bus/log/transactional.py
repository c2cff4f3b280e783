"""A log with transactions in it, and a reader of committed records as Kafka's consumer is one. Shared by tests of the log."""

from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log.inspection import finished, inspect
from busway_bus.log.partition_log import AppendInfo, PartitionLog
from busway_bus.log.validate import check_batch
from busway_protocol.records.batch import BatchHeader, iter_batches
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.control import read_marker
from busway_protocol.records.record import Record, decode_records

NOW = 1_700_000_000_000


def truncate(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Cut a log in this thread, as the store does."""
    log.producers = log.cut(offset, now_ms).in_place_of(log.producers)


def write(
    log: PartitionLog,
    producer: int,
    *pairs: tuple[bytes | None, bytes | None],
    sequence: int = 0,
    epoch: int = 0,
    now_ms: int = NOW,
) -> AppendInfo:
    """Write one batch of a producer's transaction, which its coordinator knows of."""
    builder = BatchBuilder(producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    for key, value in pairs:
        builder.append(now_ms, key, value)
    records = builder.build()
    header = check_batch(records, log.config)
    verification = log.producers.verification(header, now_ms, from_zero=False)
    batch = finished(inspect(records, header, log.config, now_ms))
    return log.append_inspected(batch, leader_epoch=0, now_ms=now_ms, verification=verification)


def end(
    log: PartitionLog,
    producer: int,
    *,
    committed: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
    now_ms: int = NOW,
) -> AppendInfo:
    """Write the end of a producer's transaction."""
    marker = EndTransaction(
        producer_id=producer,
        producer_epoch=epoch,
        committed=committed,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )
    return log.append_marker(marker, leader_epoch=0, now_ms=now_ms)


def flush(log: PartitionLog) -> None:
    """Put everything on disk."""
    point = log.flush_point()
    point.sync()
    log.flushed(point)


def stable_end(log: PartitionLog) -> int:
    """Up to where a reader of committed records reads, with all that is in the log committed."""
    unstable = log.first_unstable_offset
    return max(log.start_offset, log.end_offset if unstable is None else unstable)


def committed(log: PartitionLog, *, offset: int | None = None, max_bytes: int = 300) -> list[Record]:
    """Every committed record from `offset` on, read the way Kafka's consumer does: fetch by fetch, with the aborted transactions."""
    position = log.start_offset if offset is None else offset
    start, result, up_to = position, [], stable_end(log)
    while position < up_to:
        batches, aborted_transactions = log.committed_slice(position, max_bytes, up_to=up_to)
        if batches is None:
            break
        pending, aborted = sorted(aborted_transactions, key=lambda entry: entry[1]), set()
        for header, whole in iter_batches(batches.take(len(batches))):
            while pending and pending[0][1] <= header.last_offset:
                aborted.add(pending.pop(0)[0])
            result += [record for record in _visible(header, whole, aborted) if record.offset >= start]
            position = header.next_offset
    return result


def _visible(header: BatchHeader, whole: memoryview, aborted: set[int]) -> list[Record]:
    if header.is_control:
        marker = read_marker(whole)
        if marker is not None and not marker.committed:
            aborted.discard(header.producer_id)
        return []
    return [] if header.is_transactional and header.producer_id in aborted else decode_records(whole)
