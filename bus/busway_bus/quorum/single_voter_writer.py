"""The writer of a single voter: what is on its own disk is committed.

Here: appending and flushing.
Not here: the writer among several voters (`quorum.driver`), the meaning of the records (`metadata_log`).
"""

import functools
from typing import Final

from busway_bus.log.disk_failures import DiskFailures
from busway_bus.log.flusher import Flusher
from busway_bus.log.partition_log import PartitionLog
from busway_bus.metadata.committing import Owner
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.types import Buffer

FIRST_EPOCH: Final = 1
"""Epoch of a log with a single writer."""


class SingleVoterWriter:
    """The writer of a single voter. It leads from its start, in the log's last epoch."""

    def __init__(self, node_id: int, log: PartitionLog, flusher: Flusher, machine: Machine) -> None:
        self.leader_id = node_id
        self.leading = False
        self._log, self._flusher, self._wall_ms = log, flusher, machine.wall_ms
        self._failures = DiskFailures(machine.monotonic_s)
        self._epoch = max(log.epochs.latest, FIRST_EPOCH)
        self._owner: Owner | None = None
        self._committed = 0

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    def begin(self, owner: Owner) -> None:
        self._owner, self.leading = owner, True
        self._committed = self._log.end_offset
        owner.committed(self._committed)
        owner.leads(self._committed, self._committed, self._epoch)

    def snapshotted(self, start_offset: int) -> None:
        """Do nothing: no other node reads the snapshots."""

    def propose(self, batch: Buffer) -> int:
        """Append a batch; a flush covers all appended before it begins."""
        self.check_disk()
        try:
            self._log.append_own(batch, leader_epoch=self._epoch, now_ms=self._wall_ms())
        except OSError as problem:
            self._failures.failed("the metadata log", problem)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write the metadata log: {problem.strerror or problem}"
            ) from problem
        if self._failures.failing:
            self._failures.worked()
        end_offset = self._log.end_offset
        self._flusher.flush(self._log, functools.partial(self._flushed, end_offset))
        return end_offset

    def _flushed(self, end_offset: int, problem: KafkaError | None) -> None:
        assert self._owner is not None
        if problem is not None:
            self._owner.withdrawn(self._committed, problem)
            return
        self._committed = max(self._committed, end_offset)
        self._owner.committed(self._committed)

    def check_disk(self) -> None:
        if self._flusher.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {self._flusher.failed}")
