"""The cluster's metadata on disk, and its current image.

Here: the driver of the controller, which decides on the newest image and has the records committed and published by one
task: a command is carried out whole although its client disconnects.
Not here: rules (`controller`), committing (`metadata.committing`), publishing (`metadata_images`).

Only the leader decides, on an image with all records from before its epoch. A leader that loses its epoch fails its
undecided commands with NOT_CONTROLLER: their outcome is up to the next leader.
"""

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from busway.net.machine import OS
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import COMMANDS_MAX, RECORDS_ENCODED_ON_LOOP_MAX
from busway_bus.log.flusher import Flusher
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.store import LogStore
from busway_bus.metadata.bootstrap import BOOTSTRAP, first_records
from busway_bus.metadata.committing import Writer
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.features import METADATA_VERSION
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import TOPIC, to_bytes
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.metadata_images import Change, Follower, MetadataImages
from busway_bus.quorum.metadata_snapshots import MetadataSnapshots, SnapshotLimits
from busway_bus.quorum.metadata_store import MetadataStore
from busway_bus.quorum.single_voter_writer import SingleVoterWriter
from busway_bus.scheduling.off_loop import off_loop
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.records.builder import BatchBuilder

logger = logging.getLogger("busway.metadata")

R = TypeVar("R")
MakeWriter = Callable[[PartitionLog, MetadataSnapshots], Writer]
"""Makes the writer of a log, which reads its snapshots."""


class _Command(NamedTuple):
    decide: Callable[[ClusterImage], Decision[Any]]
    reply: "asyncio.Future[Any]"


class _Undecided(NamedTuple):
    """An uncommitted decision; `command` is None for an epoch's control record."""

    command: _Command | None
    change: Change


class MetadataLog:
    """The metadata log and the image of its records.

    Args:
        writer: makes the writer of a quorum with several voters; without it this node is alone.
        min_isr: min.insync.replicas of a new cluster, None for a node alone.

    Raises:
        CorruptLog, WrongDirectory: as of `MetadataStore`; WrongDirectory of `first_records`, too.
    """

    def __init__(
        self,
        store: LogStore,
        flusher: Flusher,
        machine: Machine = OS,
        limits: SnapshotLimits | None = None,
        writer: MakeWriter | None = None,
        *,
        min_isr: str | None = None,
    ) -> None:
        self._wall_ms = machine.wall_ms
        self._flusher = flusher
        self._commands: deque[_Command] = deque()
        self._undecided: deque[_Undecided] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._settled: list[asyncio.Future[None]] = []
        self._undeleted: Callable[[], bool] | None = None
        self._snapshotting: asyncio.Task[None] | None = None
        self._snapshots = MetadataSnapshots(store.files, f"{TOPIC}-0", limits or SnapshotLimits())
        opened = MetadataStore(store, self._snapshots, self._wall_ms(), all_committed=writer is None)
        self._log, self._stored = opened.log, opened.stored
        self.images = MetadataImages(self._log, opened.stored, opened.covered, self._moved)
        self._first = first_records(None if self._log.end_offset else store.files.read_bytes(BOOTSTRAP), min_isr)
        self._newest: ClusterImage | None = None
        self._committed_image = self.image
        self._leads_from = 0
        self._epoch = -1
        """Epoch of this node's leadership, else -1; identifies decisions of another epoch."""
        if writer is None:
            self.writer: Writer = SingleVoterWriter(store.identity.node_id, self._log, flusher, machine)
            self.writer.begin(self)
        else:
            self.writer = writer(self._log, self._snapshots)
        for note in self._stored.notes:
            logger.warning("%s: %s", self._log.directory, note)

    # State

    @property
    def image(self) -> ClusterImage:
        """The published image, of committed records only; decisions may use a newer one."""
        return self.images.image

    @property
    def removed(self) -> Collection[UUID]:
        """Ids of topics deleted before the start, unless a snapshot covers it."""
        return self._stored.removed.keys()

    @property
    def image_offset(self) -> int:
        """The offset of the last record in `image`; as in Kafka, the epoch of the finalized features. It never falls: the image has durable records
        only."""
        return self.images.covered.end_offset - 1

    @property
    def log(self) -> PartitionLog:
        return self._log

    @property
    def next_offset(self) -> int:
        return self.writer.end_offset

    @property
    def leadership(self) -> int:
        """The epoch in which this node leads, else -1."""
        return self._epoch

    async def subscribe(self, follow: Follower) -> None:
        """As `MetadataImages.subscribe`."""
        await self.images.subscribe(follow)

    def watch(self, watcher: Callable[[], None]) -> None:
        """As `MetadataImages.watch`."""
        self.images.watch(watcher)

    def allow_snapshots(self, undeleted: Callable[[], bool]) -> None:
        """Allow snapshots, except while `undeleted` returns True.

        Files of deleted topics have their old names then: after a snapshot the next start would not know of the
        deletion.
        """
        self._undeleted = undeleted

    # Commands

    async def format(self) -> None:
        """Write the first records of a new cluster: the levels of its features.

        A log with records keeps its levels, as in Kafka: clients rely on them.
        """
        if METADATA_VERSION not in self.image.features:
            first = self._first
            await self.run(
                lambda image: Decision(records=() if METADATA_VERSION in image.features else first, reply=None)
            )

    async def run(self, decide: Callable[[ClusterImage], Decision[R]]) -> R:
        """Decide on the newest image, commit and publish; return the reply.

        Raises:
            KafkaError: of `decide`; KAFKA_STORAGE_ERROR; REQUEST_TIMED_OUT while too many commands wait; NOT_CONTROLLER if
                this node does not lead, or lost its leadership before the outcome was known.
        """
        if not self.writer.leading:
            raise self._not_controller()
        if self.images.broken:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata log cannot be read; see the log of this node")
        if len(self._commands) + len(self._undecided) + self.images.waiting >= COMMANDS_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{COMMANDS_MAX} changes of the metadata wait already; ask again"
            )
        reply: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._commands.append(_Command(decide, reply))
        self._go_on()
        return await reply

    async def drain(self) -> None:
        while True:
            tasks = [task for task in (self._writer, self.images.publisher, self._snapshotting) if task is not None]
            if tasks:
                await asyncio.wait(tasks)
            elif self._undecided:
                self._settled.append(asyncio.get_running_loop().create_future())
                await self._settled[-1]
                await asyncio.sleep(0)  # the caller gets its reply first
            else:
                return

    def _go_on(self) -> None:
        if self._writer is None and self._commands and self._newest is not None:
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._commands and self._newest is not None:
                command = self._commands.popleft()
                try:
                    await self._decide(command)
                except Exception as problem:  # noqa: BLE001 - it is raised to the caller
                    self._refuse(command, problem)
                await asyncio.sleep(0)  # other requests run between two decisions
        finally:
            self._writer = None
        self._go_on()

    async def _decide(self, command: _Command) -> None:
        """Decide and append; the next decision sees the result before its commit."""
        self.writer.check_disk()
        newest, epoch = self._newest, self._epoch
        assert newest is not None
        decision = command.decide(newest)
        if not decision.records:
            self._hold(command, Change(self.next_offset, self.next_offset, tell=_resolving(command, decision.reply)))
            return
        delta = Delta(newest)
        for record in decision.records:
            delta.apply(record)  # before the write: a record that cannot be applied would stop the next start
        image = delta.image()
        now_ms = self._wall_ms()
        build = functools.partial(_batch, decision.records, now_ms)
        if len(decision.records) < RECORDS_ENCODED_ON_LOOP_MAX:
            batch = build()
        else:
            batch = await off_loop(build)
            if self._epoch != epoch or self._newest is not newest:  # the image it was decided on is stale
                raise self._not_controller()
        first_offset = self.next_offset
        end_offset = self.writer.propose(batch)
        if self._epoch != epoch:  # leadership was lost during the proposal
            raise self._not_controller()
        self._newest = image
        self._hold(
            command,
            Change(
                first_offset,
                end_offset,
                image=image,
                delta=delta,
                size_bytes=len(batch),
                appended_ms=now_ms,
                epoch=epoch,
                tell=_resolving(command, decision.reply),
            ),
        )

    def _refuse(self, command: _Command, problem: Exception) -> None:
        """Fail a command once what the error rests on is committed.

        At once if nothing will be committed any more.
        """
        try:
            self.writer.check_disk()
        except KafkaError as failed:
            _fail(command.reply, failed)
            return
        if self._newest is None:
            _fail(command.reply, problem)
            return
        offset = self.next_offset
        self._hold(command, Change(offset, offset, tell=functools.partial(_fail, command.reply, problem)))

    def _hold(self, command: _Command | None, change: Change) -> None:
        self._undecided.append(_Undecided(command, change))
        self.committed(self.images.committed)

    def _not_controller(self) -> KafkaError:
        leader_id = self.writer.leader_id
        known = (
            f"node {leader_id} is" if leader_id >= 0 and not self.writer.leading else "ask again, a leader is elected"
        )
        return KafkaError(ErrorCode.NOT_CONTROLLER, f"this node is not the active controller; {known}")

    # Called by the writer (see `metadata.committing.Owner`)

    def leads(self, first_offset: int, end_offset: int, epoch: int) -> None:
        """Start to decide once the image has all records of earlier epochs."""
        self._leads_from, self._epoch = first_offset, epoch
        if end_offset > first_offset:
            now_ms = self._wall_ms()
            self._undecided.append(_Undecided(None, Change(first_offset, end_offset, appended_ms=now_ms, epoch=epoch)))
        self._catch_up()

    def lost(self) -> None:
        """Fail all undecided commands with NOT_CONTROLLER."""
        self._newest, self._epoch = None, -1
        commands = [*(held.command for held in self._undecided), *self._commands]
        self._undecided.clear()
        self._commands.clear()
        for command in commands:
            if command is not None:
                _fail(command.reply, self._not_controller())
        self._settle()

    def withdrawn(self, offset: int, problem: KafkaError) -> None:
        """Fail the decisions that could not be written, and those on them."""
        kept = [held for held in self._undecided if held.change.end_offset <= offset]
        gone = list(self._undecided)[len(kept) :]
        self._undecided = deque(kept)
        if self._newest is not None:
            images = [held.change.image for held in kept if held.change.image is not None]
            self._newest = images[-1] if images else self._committed_image
        for held in gone:
            if held.command is not None:
                _fail(held.command.reply, problem)
        self._settle()

    def committed(self, offset: int) -> None:
        self.images.committed = max(self.images.committed, offset)
        while self._undecided and self._undecided[0].change.end_offset <= self.images.committed:
            change = self._undecided.popleft().change
            self._committed_image = change.image or self._committed_image
            self.images.add(change)
        self.images.resume()
        self._settle()

    def loaded(self, snapshot: SnapshotId) -> None:
        """See `metadata.committing.Owner`."""
        self.images.load(self._snapshots.read_newest)

    def _settle(self) -> None:
        if not self._undecided:
            settled, self._settled = self._settled, []
            for waiter in settled:
                if not waiter.done():
                    waiter.set_result(None)

    def _moved(self) -> None:
        self._catch_up()
        self.maintain()

    def _catch_up(self) -> None:
        if self._epoch >= 0 and self._newest is None and self.images.covered.end_offset >= self._leads_from:
            self._newest = self._committed_image = self.image
            self._go_on()

    # Snapshots

    def maintain(self) -> None:
        """Start a due snapshot of the image, or a deletion; the node calls this periodically."""
        if self._snapshotting is not None or self._undeleted is None or self._undeleted() or self.images.loading:
            return
        if self._due or self._expendable:
            self._snapshotting = asyncio.ensure_future(self._snapshot())

    @property
    def _due(self) -> bool:
        return self._snapshots.due(self.images.covered.bytes_total, self._wall_ms())

    @property
    def _expendable(self) -> bool:
        if self.images.loading:
            return False
        return self._snapshots.expendable(self._log.size_bytes, self._log.start_offset, self._wall_ms())

    async def _delete(self) -> None:
        while self._expendable and not self._log.busy:
            self._snapshots.forget_oldest()
            self._log.advance_start(self._snapshots.ids[0].offset, self._wall_ms())
        self.writer.snapshotted(self._log.start_offset)
        await off_loop(self._snapshots.tidy)
        await off_loop(functools.partial(self._log.remove_deleted, self._wall_ms()))

    async def _snapshot(self) -> None:
        try:
            if not self._due:
                await self._delete()
                return
            image, point = self.image, self.images.covered
            if self._log.flushed_offset < point.end_offset:  # it is on a majority's disks, perhaps not on this one
                await self._flusher.request(self._log)
            if await self._snapshots.take(image, point, self._wall_ms()):
                if not self._log.busy:  # else the next snapshot rolls it
                    self._log.roll(self._wall_ms())
                await self._flusher.request(self._log)
                self.writer.snapshotted(self._log.start_offset)
            await self._delete()
        except (OSError, KafkaError) as problem:
            logger.warning("the metadata log keeps what its snapshot covers until the next one: %s", problem)
        finally:
            self._snapshotting = None
        self.maintain()  # another one may be due by now


def _batch(records: tuple[Any, ...], now_ms: int) -> bytes | bytearray:
    """Build one batch of a decision. A crash keeps all of it or nothing."""
    builder = BatchBuilder()
    for record in records:
        builder.append(now_ms, None, to_bytes(record))
    return builder.build()


def _resolving(command: _Command, reply: object) -> Callable[[], None]:
    def tell() -> None:
        if not command.reply.done():
            command.reply.set_result(reply)

    return tell


def _fail(reply: "asyncio.Future[Any]", problem: Exception) -> None:
    """Raise the error to the caller, or log this broker's errors."""
    if not reply.done():
        reply.set_exception(problem)
    elif not isinstance(problem, KafkaError):
        logger.error("a change of the metadata failed on a mistake of this broker", exc_info=problem)
