"""Runs the quorum's core on a log and a network.

Here: steps and their effects, the timer, requests in flight.
Not here: any rule of Raft (`core`), the disk (`log_writer`), the network (`Transport`), the meaning of the records
(`metadata.committing.Owner`).

A `Ready` is carried out in the order save, append, flush, send, apply, without an `await`. Each `await` ends in a step
of the core: no value read before a wait is used after it. A write that fails because the disk is full is retried; a
leader's proposals are withdrawn then, and their owner is notified. A sync that fails is final (`Flusher`).
"""

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Final, Protocol

from busway_bus.kernel.limits import SNAPSHOT_READS_AT_ONCE_MAX
from busway_bus.log.flusher import Flusher
from busway_bus.log.partition_log import PartitionLog
from busway_bus.metadata.committing import Owner
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.core import Quorum
from busway_bus.quorum.election_file import ElectionFile
from busway_bus.quorum.log_view import LogView
from busway_bus.quorum.log_writer import LogWriter, storage_error
from busway_bus.quorum.metadata_snapshots import MetadataSnapshots
from busway_bus.quorum.ready import (
    Answer,
    CommittedRecordsLost,
    Downloaded,
    Message,
    NotLeading,
    Persisted,
    QuorumRequest,
    QuorumResponse,
    ReadSnapshot,
    Ready,
    Refused,
    Reply,
    Request,
    Send,
    SnapshotPart,
    Snapshotted,
    TooManyProposals,
)
from busway_bus.quorum.replica import NEVER_MS
from busway_bus.quorum.settings import QuorumSettings
from busway_bus.quorum.snapshot_download import SnapshotDownload
from busway_bus.quorum.snapshot_wire import snapshot_error
from busway_bus.quorum.states import NOBODY, Role
from busway_bus.quorum.voters import ReplicaKey, VoterSet
from busway_bus.scheduling.off_loop import off_loop
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.machine import Machine
from busway_protocol.messages.fetch import FetchResponse
from busway_protocol.messages.metadata_snapshots import FetchSnapshotResponse
from busway_protocol.types import Buffer

logger = logging.getLogger("busway.quorum")

RESIGN_WAIT_S: Final = 1.0
"""Wait for responses to EndQuorumEpoch before a shutdown, in s."""


class Transport(Protocol):
    async def ask(self, node_id: int, request: QuorumRequest) -> QuorumResponse | Refused | None:
        """Send a request; None if the node is unreachable or too slow."""

    async def close(self) -> None:
        """Stop sending requests."""


class QuorumDriver:
    """Runs one voter or observer.

    Args:
        partition_log: the metadata log; it has no other writer.
        truncate: truncates it, and the checkpoints of its length on disk; it is not cancelled.
        restart: removes all its records; it then begins at the given offset; not cancelled either.
        on_lost: called when this node must stop: its committed records differ from its leader's.
    """

    def __init__(
        self,
        *,
        me: ReplicaKey,
        voters: VoterSet,
        partition_log: PartitionLog,
        truncate: Callable[[int], Awaitable[None]],
        restart: Callable[[int], Awaitable[None]],
        download: SnapshotDownload,
        snapshots: MetadataSnapshots,
        election_file: ElectionFile,
        flusher: Flusher,
        machine: Machine,
        transport: Transport,
        settings: QuorumSettings,
        cluster_id: str | None,
        on_lost: Callable[[CommittedRecordsLost], None],
    ) -> None:
        self.log = partition_log
        self._flusher, self._machine, self._transport = flusher, machine, transport
        self._on_lost = on_lost
        self._wall_ms, self._begun_s = machine.wall_ms(), machine.monotonic_s()
        view = LogView(
            start_offset=partition_log.start_offset,
            end_offset=partition_log.end_offset,
            flushed_offset=partition_log.end_offset,  # opening the log has flushed it
            epochs=deepcopy(partition_log.epochs),
            snapshots=dict(snapshots.sizes),
        )
        self.core = Quorum(
            me=me,
            voters=voters,
            election=election_file.read(),
            log=view,
            chance=machine.chance,
            now_ms=self._now_ms(),
            settings=settings,
            cluster_id=cluster_id,
        )
        self._owner: Owner | None = None
        self._led_epoch = NOBODY
        self._readies: deque[Ready] = deque()
        self._carrying_out = False
        self._writer = LogWriter(
            partition_log,
            truncate=truncate,
            restart=restart,
            truncated=self._truncated,
            download=download,
            downloaded=self._downloaded,
            installed=self._installed,
            election_file=election_file,
            flusher=flusher,
            machine=machine,
            persisted=self._persisted,
            refused=self._refused,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_ms = 0
        self._asked: set[asyncio.Future[QuorumResponse]] = set()
        self._asking: set[asyncio.Task[None]] = set()
        self._snapshots = snapshots
        self._reading: set[asyncio.Task[None]] = set()
        self._reads = asyncio.Semaphore(SNAPSHOT_READS_AT_ONCE_MAX)
        self._closed = False
        self.foreign_voters: set[int] = set()
        """Nodes that refuse this one, since they belong to another cluster."""

    # State

    @property
    def leading(self) -> bool:
        return self.core.role is Role.LEADER and not self._closed

    @property
    def leader_id(self) -> int:
        return self.core.leader_id

    @property
    def epoch(self) -> int:
        return self.core.epoch

    @property
    def end_offset(self) -> int:
        return self.core.log.end_offset

    @property
    def clock_skew_ms(self) -> int:
        """How far the wall clock is ahead of the core's time."""
        return self._machine.wall_ms() - self._now_ms()

    # Requests

    def begin(self, owner: Owner) -> None:
        self._owner = owner
        self._do(self.core.tick(self._now_ms()))

    def propose(self, batch: Buffer) -> int:
        """Append a batch; return the offset behind it. `Owner` gets the outcome.

        Raises:
            KafkaError: NOT_CONTROLLER, REQUEST_TIMED_OUT if too many proposals are undecided, KAFKA_STORAGE_ERROR.
        """
        self.check_disk()
        if self._closed:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this controller stops")
        if self._writer.stuck:
            self._writer.resume()  # there may be room by now
        if self._writer.stuck:
            raise storage_error(self._writer.problem)
        try:
            proposal, ready = self.core.propose(batch, self._now_ms())
        except NotLeading as problem:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(problem)) from None
        except TooManyProposals as problem:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(problem)) from None
        self._do(ready)
        if proposal.first_offset >= self.core.log.end_offset:
            raise storage_error(self._writer.problem)
        return proposal.last_offset + 1

    async def answer(self, request: QuorumRequest) -> QuorumResponse:
        """Answer a request once its state is on disk."""
        waiter: asyncio.Future[QuorumResponse] = asyncio.get_running_loop().create_future()
        if self._closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this controller stops")
        self._asked.add(waiter)
        waiter.add_done_callback(self._asked.discard)
        self._step(Request(waiter=waiter, body=request))
        return await waiter

    def snapshotted(self, start_offset: int) -> None:
        """Tell the core of a new or deleted snapshot, and of the log's start."""
        self._step(Snapshotted(snapshots=dict(self._snapshots.sizes), start_offset=start_offset))

    def check_disk(self) -> None:
        """Raise KAFKA_STORAGE_ERROR after a failed sync: nothing more becomes durable."""
        if self._flusher.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {self._flusher.failed}")

    async def resign(self) -> None:
        """Stop leading before a shutdown: the election need not wait for a time-out.

        Waits up to RESIGN_WAIT_S for the other voters' responses.
        """
        if self.leading:
            self._do(self.core.resign(self._now_ms()))
            if self._asking:
                await asyncio.wait(tuple(self._asking), timeout=RESIGN_WAIT_S)

    async def close(self) -> None:
        """Leave the quorum; a write of the election in progress completes.

        Pending requests fail with BROKER_NOT_AVAILABLE.
        """
        self._closed = True
        if self._led_epoch != NOBODY and self._owner is not None:
            self._led_epoch = NOBODY
            self._owner.lost()
        if self._timer is not None:
            self._timer.cancel()
        await self._writer.close()
        tasks = (*self._asking, *self._reading)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._transport.close()
        for waiter in tuple(self._asked):
            if not waiter.done():
                waiter.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this controller stops"))
                waiter.exception()  # the connection may be gone

    # Steps

    def _now_ms(self) -> int:
        """Return the wall clock's time at the start plus elapsed time."""
        return self._wall_ms + int((self._machine.monotonic_s() - self._begun_s) * 1000)

    def _step(self, message: Message) -> None:
        if self._closed:
            return
        try:
            ready = self.core.step(message, self._now_ms())
        except CommittedRecordsLost as problem:
            logger.critical("this controller stops: %s", problem)
            self._closed = True
            self._on_lost(problem)
            return
        self._do(ready)

    def _do(self, ready: Ready) -> None:
        self._readies.append(ready)
        if self._carrying_out:
            return
        self._carrying_out = True
        try:
            while self._readies:
                self._carry_out(self._readies.popleft())
        finally:
            self._carrying_out = False
        self._wake()

    def _carry_out(self, ready: Ready) -> None:
        assert self._owner is not None
        if ready.writes:
            self._writer.write(ready)
        if ready.apply is not None:
            self._owner.committed(ready.apply)
        self._notify_role()
        for message in ready.send:
            if isinstance(message, Send):
                self._ask(message)
            else:
                self._reply(message)

    def _notify_role(self) -> None:
        assert self._owner is not None
        epoch = self.core.epoch if self.leading else NOBODY
        if epoch == self._led_epoch:
            return
        if self._led_epoch != NOBODY:
            self._owner.lost()
        self._led_epoch = epoch
        leadership = self.core.replica.leadership
        if leadership is not None:
            first_offset = leadership.epoch_start_offset
            self._owner.leads(first_offset, first_offset + 1, epoch)

    def _wake(self) -> None:
        """Schedule the next tick; a timer that fires early is reset."""
        now_ms = self._now_ms()
        wake_ms = self.core.wake_ms(now_ms)
        if self._closed or wake_ms >= NEVER_MS or (self._timer is not None and self._wakes_ms <= wake_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_ms = wake_ms
        delay_s = max(wake_ms - now_ms, 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._closed:
            self._do(self.core.tick(self._now_ms()))

    # The disk

    def _persisted(self, number: int) -> None:
        self._step(Persisted(number=number))

    def _truncated(self) -> None:
        assert self._owner is not None
        if not self._closed:
            self._owner.committed(self.core.high_watermark)  # what the image did not read meanwhile

    def _downloaded(self, part: SnapshotPart, intact: bool) -> None:
        if not intact:
            logger.error(
                "the snapshot %s from node %d is damaged, and is fetched again", part.snapshot.name, self.leader_id
            )
        self._step(Downloaded(snapshot=part.snapshot, number=part.number, intact=intact))

    def _installed(self, snapshot: SnapshotId) -> None:
        assert self._owner is not None
        logger.info("the metadata log begins at the snapshot %s", snapshot.name)
        if not self._closed:
            self._owner.loaded(snapshot)

    def _refused(self, problem: KafkaError) -> None:
        """Withdraw this node's proposals that are not in the log.

        After a failed sync the outcome of all is unknown.
        """
        assert self._owner is not None
        leadership = self.core.replica.leadership
        if leadership is None or self._closed:
            return
        if self._flusher.failed is not None:
            self._owner.withdrawn(self.core.high_watermark, problem)
            return
        offset = max(self.log.end_offset, leadership.epoch_start_offset + 1)
        if offset < self.core.log.end_offset:
            self._writer.withdraw(offset)
            self._do(self.core.withdraw(offset, self._now_ms()))
            self._owner.withdrawn(offset, problem)

    # The network

    def _ask(self, send: Send) -> None:
        task = asyncio.create_task(self._asks(send))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _asks(self, send: Send) -> None:
        answer = await self._transport.ask(send.to, send.body)
        if isinstance(answer, Refused):
            self._step(Answer(correlation=send.correlation, body=None, refused=True))
        else:
            self._note_cluster(send.to, answer)
            self._step(Answer(correlation=send.correlation, body=answer))

    def _note_cluster(self, node_id: int, answer: QuorumResponse | None) -> None:
        if answer is None:
            return
        if answer.error_code != ErrorCode.INCONSISTENT_CLUSTER_ID:
            self.foreign_voters.discard(node_id)
        elif node_id not in self.foreign_voters:
            self.foreign_voters.add(node_id)
            logger.error("node %d belongs to another cluster: its meta.properties has another cluster.id", node_id)

    def _reply(self, reply: Reply) -> None:
        waiter: asyncio.Future[QuorumResponse] = reply.waiter
        if waiter.done():
            return
        if isinstance(reply.read, ReadSnapshot):
            task = asyncio.ensure_future(self._read_snapshot(waiter, reply.body, reply.read))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
            return
        if reply.read is not None:
            assert isinstance(reply.body, FetchResponse)
            try:
                records = self.log.read(reply.read.offset, reply.read.bytes_max, up_to=self.log.end_offset)
            except (OSError, KafkaError, ProtocolError) as problem:
                logger.error("%s cannot be read: %s", self.log.directory, problem)
                waiter.set_exception(problem)
                return
            reply.body.responses[0].partitions[0].records = records
        waiter.set_result(reply.body)

    async def _read_snapshot(
        self, waiter: "asyncio.Future[QuorumResponse]", body: QuorumResponse, read: ReadSnapshot
    ) -> None:
        """Add the bytes to a response; without them the snapshot was deleted, or its file damaged."""
        assert isinstance(body, FetchSnapshotResponse)
        content: bytes | None = None
        async with self._reads:
            try:
                content = await off_loop(functools.partial(self._snapshots.read, *read))
            except OSError as problem:
                logger.error("the snapshot %s of the metadata cannot be read: %s", read.snapshot.name, problem)
        if waiter.done():
            return
        if content is None or len(content) < read.bytes_max:
            waiter.set_result(snapshot_error(ErrorCode.SNAPSHOT_NOT_FOUND, self.core.replica.election))
            return
        body.topics[0].partitions[0].unaligned_records = content
        waiter.set_result(body)
