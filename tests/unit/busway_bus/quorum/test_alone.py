"""The writer of a single voter: a batch is committed once it is on this node's disk."""

from typing import Any

import pytest

from busway.net.machine import OS
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import PartitionLog
from busway_bus.quorum.alone import FIRST_EPOCH, Alone
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import read_header
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000


class ManualFlusher:
    """Flushes when the test does."""

    def __init__(self) -> None:
        self.failed: OSError | None = None
        self.waiting: list[Any] = []

    def flush(self, log: PartitionLog, flushed: Any) -> None:
        """Keep the callback."""
        self.waiting.append(flushed)


class RecordingOwner:
    """Notes what it is notified of."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def leads(self, *arguments: int) -> None:
        """Note leadership."""
        self.calls.append(("leads", *arguments))

    def committed(self, offset: int) -> None:
        """Note a commit."""
        self.calls.append(("committed", offset))

    def withdrawn(self, offset: int, problem: KafkaError) -> None:
        """Note withdrawn proposals."""
        self.calls.append(("withdrawn", offset, problem.code))


def batch(count: int = 1) -> bytes:
    """A batch with so many records."""
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(NOW, None, b"record")
    return builder.build()


@pytest.fixture
def log() -> PartitionLog:
    """An empty log."""
    files = SimFiles()
    files.make_directory("m-0")
    return PartitionLog(files, "m-0", LogConfig(retention_ms=-1), now_ms=NOW)


def writer_of(log: PartitionLog) -> tuple[Alone, ManualFlusher, RecordingOwner]:
    """A writer that leads."""
    flusher, owner = ManualFlusher(), RecordingOwner()
    writer = Alone(7, log, flusher, OS)  # type: ignore[arg-type]
    assert not writer.leading
    writer.begin(owner)  # type: ignore[arg-type]
    return writer, flusher, owner


def test_the_whole_log_is_committed_at_the_start(log: PartitionLog) -> None:
    """It leads in the log's last epoch, from 1 on."""
    writer, _, owner = writer_of(log)
    assert (writer.leading, writer.leader_id) == (True, 7)
    assert owner.calls == [("committed", 0), ("leads", 0, 0, FIRST_EPOCH)]
    writer.propose(batch(3))
    _, _, again = writer_of(log)
    assert again.calls == [("committed", 3), ("leads", 3, 3, FIRST_EPOCH)]


def test_a_batch_is_committed_by_its_flush(log: PartitionLog) -> None:
    """A commit never goes back, in whatever order flushes end."""
    writer, flusher, owner = writer_of(log)
    assert (writer.propose(batch(2)), writer.propose(batch(1))) == (2, 3)
    assert writer.end_offset == 3
    assert read_header(next(iter(log.batches(0)))).partition_leader_epoch == FIRST_EPOCH
    first, second = flusher.waiting
    owner.calls.clear()
    second(None)
    first(None)
    assert owner.calls == [("committed", 3), ("committed", 3)]


def test_a_failed_flush_withdraws_what_is_not_committed(log: PartitionLog) -> None:
    """From the committed offset on."""
    writer, flusher, owner = writer_of(log)
    writer.propose(batch(2))
    flusher.waiting[0](None)
    writer.propose(batch(1))
    flusher.waiting[1](KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed"))
    assert owner.calls[-1] == ("withdrawn", 2, ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_failed_disk_takes_no_proposal(log: PartitionLog) -> None:
    """Nothing is appended."""
    writer, flusher, _ = writer_of(log)
    flusher.failed = OSError(5, "Input/output error")
    with pytest.raises(KafkaError, match="the disk failed") as refused:
        writer.propose(batch())
    assert (refused.value.code, writer.end_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)


def test_a_full_disk_is_named(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proposal is refused; the next one may succeed."""
    writer, _, _ = writer_of(log)

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(log, "append_own", full)
        with pytest.raises(KafkaError, match="cannot write the metadata log: No space left on device"):
            writer.propose(batch())
    assert writer.propose(batch()) == 1
