"""Answers to fetches of the metadata log and of its snapshots.

Here: what a leader answers, and the refusals of others.
Not here: the bytes, which the driver reads, the messages (`wire`, `snapshot_wire`), held fetches (`leading`).
"""

from busway_bus.quorum import wire
from busway_bus.quorum.leadership import WaitingFetch
from busway_bus.quorum.log_view import LogView
from busway_bus.quorum.ready import QuorumResponse, Read, ReadSnapshot, Reply, Request
from busway_bus.quorum.replica import Replica
from busway_bus.quorum.snapshot_wire import (
    readable_part,
    requested_snapshot,
    requesting_replica,
    snapshot_error,
    snapshot_response,
)
from busway_bus.quorum.states import Role
from busway_bus.quorum.voters import ReplicaKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchRequest
from busway_protocol.messages.metadata_snapshots import FetchSnapshotRequest


class FetchAnswers:
    """Answers fetches of other replicas from one replica's state."""

    def __init__(self, replica: Replica) -> None:
        self._replica, self._settings = replica, replica.settings

    @property
    def _log(self) -> LogView:
        return self._replica.log

    def asked_for_records(self, request: Request, body: FetchRequest, now_ms: int) -> None:
        asked, replica = body.topics[0].partitions[0], wire.fetching_replica(body)
        if error := self._fetch_refusal(body, replica):
            self._reply(request, self._replica.fetch_error(error))
            return
        leadership = self._replica.leadership
        assert leadership is not None
        parted = self._log.where_parted(asked.fetch_offset, asked.last_fetched_epoch)
        if parted is None and replica.id >= 0:
            leadership.fetched(replica, asked.fetch_offset, self._log.end_offset, now_ms)
            self._replica.commit()
        high_watermark = -1 if leadership.high_watermark is None else leadership.high_watermark
        nothing_new = (
            parted is None and asked.fetch_offset == self._log.end_offset and high_watermark <= asked.high_watermark
        )
        if nothing_new and body.max_wait_ms > 0 and leadership.may_wait(replica):
            until_ms = now_ms + min(body.max_wait_ms, self._settings.fetch_max_wait_ms)
            before = leadership.wait(replica, WaitingFetch(request=request, until_ms=until_ms))
            if before is not None:
                self.reply_to_fetch(before.request)
        else:
            self.reply_to_fetch(request)

    def _fetch_refusal(self, body: FetchRequest, replica: ReplicaKey) -> ErrorCode:
        asked = body.topics[0].partitions[0]
        if body.max_wait_ms < 0 or asked.fetch_offset < 0 or replica.id == self._replica.me.id:
            return ErrorCode.INVALID_REQUEST
        if not 0 <= asked.last_fetched_epoch <= asked.current_leader_epoch:
            return ErrorCode.INVALID_REQUEST
        return self._leader_refusal(asked.current_leader_epoch)

    def _leader_refusal(self, epoch: int) -> ErrorCode:
        if epoch < self._replica.election.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self._replica.election.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self._replica.role is Role.LEADER else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def asked_for_snapshot(self, request: Request, body: FetchSnapshotRequest, now_ms: int) -> None:
        """Answer a fetch of a snapshot as the leader; the driver adds the bytes."""
        asked, election = body.topics[0].partitions[0], self._replica.election
        error = self._leader_refusal(asked.current_leader_epoch)
        part = error or readable_part(body, self._log, self._settings.fetch_snapshot_max_bytes)
        if isinstance(part, ErrorCode):
            self._reply(request, snapshot_error(part, election))
            return
        leadership, snapshot = self._replica.leadership, requested_snapshot(body)
        assert leadership is not None
        leadership.fetched_snapshot(requesting_replica(body), now_ms)
        size = self._log.snapshots[snapshot]
        answer = snapshot_response(ErrorCode.NONE, election, snapshot, size=size, position=asked.position)
        self._reply(request, answer, part)

    def reply_to_fetch(self, request: Request) -> None:
        leadership, body = self._replica.leadership, request.body
        assert leadership is not None
        assert isinstance(body, FetchRequest)
        asked = body.topics[0].partitions[0]
        parted = self._log.where_parted(asked.fetch_offset, asked.last_fetched_epoch)
        answer = wire.fetch_response(
            ErrorCode.NONE,
            self._replica.election,
            log_start_offset=self._log.start_offset,
            high_watermark=leadership.high_watermark,
            parted=parted,
        )
        has_records = parted is None and asked.fetch_offset < self._log.end_offset
        bytes_max = min(body.max_bytes, asked.partition_max_bytes, self._settings.fetch_max_bytes)
        self._reply(request, answer, Read(asked.fetch_offset, bytes_max) if has_records else None)

    def _reply(self, request: Request, body: QuorumResponse, read: Read | ReadSnapshot | None = None) -> None:
        self._replica.outbox.send(Reply(waiter=request.waiter, body=body, read=read))
