"""Inspection of a client's records, and the batch to be stored.

Here: Kafka's `LogValidator` checks of each record (KIP-467, KIP-937): a malformed one would block all consumers.
Not here: the header (`validate`), sequence numbers (`producer_state`).
"""

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from busway_bus.kernel.limits import INFLATED_ON_LOOP_MAX
from busway_bus.log.log_config import LogConfig
from busway_bus.log.recompress import recompressed, wanted_codec
from busway_bus.log.validate import NO_TIMESTAMP, check_times
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header, set_max_timestamp
from busway_protocol.records.compression import OutputTooLarge, framing_steps, inflate, inflated_max
from busway_protocol.records.walk import OFFENDERS_MAX, RECORDS_A_MS, RecordWalk, record_times
from busway_protocol.types import Buffer

_STEP_RECORDS: Final = RECORDS_A_MS // 3
"""Records of one step, a few hundred microseconds."""
RECORDS_ON_LOOP_MAX: Final = RECORDS_A_MS * 2 // 3
"""Records of a request inspected on the event loop, < 1 ms."""
_TIMES_STEP: Final = 500
"""Records of one step of the timestamp check, which is pure Python."""
NO_KEY: Final = "Compacted topic cannot accept message without key"


class Inspected(NamedTuple):
    """A valid batch, recompressed if the topic requires it."""

    records: Buffer
    header: BatchHeader


class RecordsRefused(KafkaError):
    """Refusal of a batch for some of its records.

    `records`: (index in the batch, reason) of the first `OFFENDERS_MAX`.
    """

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


def inspected_at_once(records: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> Inspected | None:
    """As `inspect`, on the event loop. None if too large."""
    if header.records_count > RECORDS_ON_LOOP_MAX or len(records) > INFLATED_ON_LOOP_MAX:
        return None
    try:
        for _ in _framing_steps(records, header):
            return None
        data = _inflated(records, header, INFLATED_ON_LOOP_MAX)
    except OutputTooLarge:
        return None
    return finished(_look(records, header, data, config, now_ms))


def inspect(records: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> Generator[None, None, Inspected]:
    """Inspect a batch of any size. Steps take < 1 ms, except for decompression.

    Raises:
        RecordsRefused: INVALID_RECORD or INVALID_TIMESTAMP, some records are invalid.
        KafkaError: INVALID_RECORD, unparsable; MESSAGE_TOO_LARGE, decompressed or in the topic's codec.
    """
    yield from _framing_steps(records, header)
    try:
        data = _inflated(records, header, inflated_max(len(records), config.max_message_bytes))
    except OutputTooLarge as problem:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(problem)) from None
    yield
    return (yield from _look(records, header, data, config, now_ms))


def finished(steps: Generator[None, None, Inspected]) -> Inspected:
    try:
        while True:
            next(steps)
    except StopIteration as over:
        inspected: Inspected = over.value
        return inspected


def _framing_steps(records: Buffer, header: BatchHeader) -> Generator[None, None, None]:
    try:
        yield from framing_steps(header.compression, memoryview(records)[HEADER_BYTES:])
    except ProtocolError as problem:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(problem)) from None


def _inflated(records: Buffer, header: BatchHeader, limit: int) -> bytes | bytearray:
    try:
        return inflate(header.compression, memoryview(records)[HEADER_BYTES:], limit)
    except OutputTooLarge:
        raise
    except ProtocolError as problem:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(problem)) from None


def _look(
    records: Buffer, header: BatchHeader, data: bytes | bytearray, config: LogConfig, now_ms: int
) -> Generator[None, None, Inspected]:
    walk = RecordWalk(header, data)
    try:
        while walk.step(_STEP_RECORDS):
            yield
    except CorruptBatch as problem:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(problem)) from None
    if config.compacted and walk.keyless:
        raise _refused(ErrorCode.INVALID_RECORD, [(number, NO_KEY) for number in walk.keyless], walk.keyless_count)
    if config.message_timestamp_type == "CreateTime":
        if check_times(walk.earliest, config, now_ms) or check_times(walk.latest, config, now_ms):
            yield from _name_offenders(header, data, config, now_ms)
        if walk.latest != header.max_timestamp and header.timestamp_type == 0:
            # Look-ups by time and retention use this field, so it is corrected, as in Kafka.
            mended = bytearray(records)
            set_max_timestamp(mended, walk.latest)
            records, header = mended, read_header(mended)
    codec = wanted_codec(config)
    if codec is not None and codec != header.compression:
        records = recompressed(records, data, codec, config)
        header = read_header(records)
    return Inspected(records, header)


def _name_offenders(
    header: BatchHeader, data: bytes | bytearray, config: LogConfig, now_ms: int
) -> Generator[None, None, None]:
    """Refuse timestamps out of range by record, in a second, slower pass."""
    offenders, count = [], 0
    for number, moment in record_times(header, data):
        problem = None if moment == NO_TIMESTAMP else check_times(moment, config, now_ms)
        if problem is not None:
            count += 1
            if count <= OFFENDERS_MAX:
                offenders.append((number, problem))
        if number % _TIMES_STEP == 0:
            yield
    if offenders:
        raise _refused(ErrorCode.INVALID_TIMESTAMP, offenders, count)


def _refused(code: ErrorCode, offenders: list[tuple[int, str]], count: int) -> RecordsRefused:
    first = ", ".join(f"record {number}: {reason}" for number, reason in offenders[:3])
    return RecordsRefused(code, f"{count} records were refused, the first of them {first}", offenders)
