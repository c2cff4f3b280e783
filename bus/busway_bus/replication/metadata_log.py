"""The cluster's metadata on disk, and the current picture of it.

What lives here: the driver of the controller: decide on the newest image and append; behind it, wait for the disk; behind that, publish.
There is one writer, and it belongs to nobody who asks: what has begun is carried out whole although its client hangs up in the middle. What does
not: any rule about topics or settings (`controller`). One node is its own quorum; a Raft driver will take this module's place.
"""

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from busway.net.machine import OS
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import COMMANDS_MAX, RECORDS_ENCODED_ON_LOOP_MAX
from busway_bus.log.checkpoints import uuid_text
from busway_bus.log.flusher import Flusher
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.log.store import LogStore, WrongDirectory
from busway_bus.metadata.delta import BrokenHistory, Delta
from busway_bus.metadata.features import METADATA_VERSION, SUPPORTED
from busway_bus.metadata.image import LOST, UNASSIGNED, ClusterImage
from busway_bus.metadata.records import TOPIC, TOPIC_ID_INT, FeatureLevelRecord, from_bytes, to_bytes
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.replication.metadata_snapshots import KEPT, LogPoint, MetadataSnapshots, SnapshotLimits
from busway_bus.replication.off_loop import off_loop
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.machine import Machine
from busway_protocol.records.batch import read_header, verify_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records

log = logging.getLogger("busway.metadata")

R = TypeVar("R")
Follower = Callable[[ClusterImage, Delta], Awaitable[None]]
"""Told of every new image and of what differs in its topics; the next change is told when it returns."""
LEADER_EPOCH: Final = 1
"""Of the log, as long as one node is its own quorum."""
_REMEDY: Final = (
    f"Without the metadata log nobody knows which topics there are: restore {TOPIC}-0 from a copy. "
    f"Until then nothing starts here and nothing is removed"
)
_KEEP: Final = LogConfig(retention_ms=-1, retention_bytes=-1)


class _Command(NamedTuple):
    """What somebody wants decided, and where the reply is awaited, or was."""

    decide: Callable[[ClusterImage], Decision[Any]]
    reply: "asyncio.Future[Any]"


class _Outcome(NamedTuple):
    """What became of a command, to be told when all that it was decided on is durable.

    Attributes:
        durable: done when the records are, and all before them.
        delta: what its records change; None where there are none.
        reply: or the exception to raise.
        covered: what of the log is in `image`.
    """

    command: _Command
    durable: "asyncio.Future[None] | None"
    image: ClusterImage
    delta: Delta | None
    reply: object
    covered: LogPoint


class MetadataLog:
    """The metadata log and the image that its records make.

    Attributes:
        image: the picture that is followed; what is decided on may be newer. Replaced, never changed.

    Raises:
        CorruptLog: the log is damaged; without it the node knows nothing of its topics.
        WrongDirectory: it is not the log of the topics in this directory.
    """

    def __init__(
        self, store: LogStore, flusher: Flusher, machine: Machine = OS, limits: SnapshotLimits | None = None
    ) -> None:
        self._wall_ms = machine.wall_ms
        self._flusher = flusher
        self._followers: list[Follower] = []
        self._watchers: list[Callable[[], None]] = []
        self._commands: deque[_Command] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._decided: deque[_Outcome] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._changes: deque[_Outcome] = deque()
        self._publisher: asyncio.Task[None] | None = None
        self._undeleted: Callable[[], bool] | None = None
        self._snapshotting: asyncio.Task[None] | None = None
        self._snapshots = MetadataSnapshots(store.files, f"{TOPIC}-0", limits or SnapshotLimits())
        try:
            topic_id, flushed = UUID(int=TOPIC_ID_INT), self._snapshots.flushed
            self._log: PartitionLog = store.open(
                TOPIC, 0, topic_id, _KEEP, self._wall_ms(), new=store.formatted, flushed=flushed
            )
            self._stored = self._replay()
        except CorruptLog as problem:
            raise CorruptLog(f"{problem}. {_REMEDY}") from None
        self.image = self._newest = self._stored.image()
        self._check_place(store)
        for note in self._stored.notes:
            log.warning("%s: %s", self._log.directory, note)

    def _replay(self) -> Delta:
        """The newest snapshot and what the log says behind it, each batch checked: a flipped bit must not make topics of other names."""
        delta, offset, problems = self._snapshots.load()
        if not self._log.start_offset <= offset <= self._log.end_offset:
            raise CorruptLog(
                f"{self._log.directory} has the offsets {self._log.start_offset} to {self._log.end_offset}, but what can be read of its "
                f"snapshots ends at {offset}{'; ' if problems else ''}{'; '.join(problems)}"
            )
        delta.notes += problems
        self._covered = LogPoint(offset, -1, 0)
        try:
            for batch in self._log.batches(offset):
                header = read_header(batch)
                offset = header.base_offset
                verify_crc(batch, header)
                for record in decode_records(batch):
                    offset = record.offset
                    if record.value is not None and not header.is_control:
                        delta.apply(from_bytes(record.value))
                bytes_total = self._covered.bytes_total + header.size_bytes
                self._covered = LogPoint(header.last_offset + 1, header.max_timestamp, bytes_total)
        except (ProtocolError, BrokenHistory) as problem:
            raise CorruptLog(f"{self._log.directory} is damaged at offset {offset}: {problem}") from None
        self._appended = self._covered
        return delta

    def _check_place(self, store: LogStore) -> None:
        """Refuse a directory whose topics this log does not know: all of them would be taken for strays.

        Raises:
            WrongDirectory: it is empty beside topics, or was written for another directory.
        """
        if not self._log.end_offset and (others := sorted(key for key in store.partitions() if key[0] != TOPIC)):
            raise WrongDirectory(
                f"there is no metadata log in the data directory, but {others[0][0]}-{others[0][1]}"
                f"{f' and {len(others) - 1} others' if len(others) > 1 else ''} hold records. {_REMEDY}. To begin with "
                f"nothing, choose an empty directory"
            )
        mine, written_for = store.identity.directory_id, self._directories(store.identity.node_id)
        if written_for and mine not in written_for:
            other = uuid_text(min(written_for))
            raise WrongDirectory(
                f"the metadata log was written for the directory.id {other}, but meta.properties says {uuid_text(mine)}: one of "
                f"them is another cluster's. Restore the right one from a copy; if the metadata log is the right one, set "
                f"directory.id={other} in meta.properties. Until then nothing starts here and nothing is removed"
            )

    def _directories(self, node_id: int) -> set[UUID]:
        """The directories of this node that the log knows."""
        broker = self.image.brokers.get(node_id)
        directories = set(broker.directories if broker is not None else ())
        for topic in self.image.topics.values():
            directories.update(partition.directory_on(node_id) or LOST for partition in topic.partitions)
        return directories - {LOST, UNASSIGNED}

    @property
    def removed(self) -> Collection[UUID]:
        """The ids of the topics whose deletion was committed before the start, unless a snapshot covers it."""
        return self._stored.removed.keys()

    async def subscribe(self, follow: Follower) -> None:
        """Tell `follow` of the current image now, and of every new one."""
        self._followers.append(follow)
        await follow(self.image, self._stored)

    @property
    def log(self) -> PartitionLog:
        """Where the records are."""
        return self._log

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` whenever there is a new `image`, before whoever asked for the change is told."""
        self._watchers.append(watcher)

    def allow_snapshots(self, undeleted: Callable[[], bool]) -> None:
        """Take snapshots from now on, but none while this says that files of deleted topics have their old names: the next start would not
        know of the deletion."""
        self._undeleted = undeleted

    async def format(self) -> None:
        """Finalize every feature in a log that is empty. One that has records keeps its levels, as in Kafka: clients act by them."""
        if METADATA_VERSION not in self.image.features:
            records = tuple(
                FeatureLevelRecord(name=name, feature_level=highest) for name, (_, highest) in SUPPORTED.items()
            )
            await self.run(lambda _: Decision(records=records, reply=None))

    async def run(self, decide: Callable[[ClusterImage], Decision[R]]) -> R:
        """Decide on the newest image, make the records durable, have them followed, and give the reply.

        Whoever asked may be cancelled at any time: the command is carried out all the same.

        Raises:
            KafkaError: what `decide` raises, KAFKA_STORAGE_ERROR, or REQUEST_TIMED_OUT while too many wait.
        """
        if len(self._commands) + len(self._decided) + len(self._changes) >= COMMANDS_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{COMMANDS_MAX} changes of the metadata wait already; ask again"
            )
        reply: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._commands.append(_Command(decide, reply))
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write())
        return await reply

    async def drain(self) -> None:
        """Wait until all that was asked for is carried out."""
        while under_way := [
            task for task in (self._writer, self._committer, self._publisher, self._snapshotting) if task is not None
        ]:
            await asyncio.wait(under_way)

    async def _write(self) -> None:
        """Decide and append one command after the other, without waiting for the disk, until none is left."""
        try:
            while self._commands:
                command = self._commands.popleft()
                try:
                    outcome = await self._decide(command)
                except Exception as problem:  # noqa: BLE001 - it is told to the one who asked
                    outcome = _Outcome(command, None, self._newest, None, problem, self._appended)
                self._decided.append(outcome)
                if self._committer is None:
                    self._committer = asyncio.ensure_future(self._commit())
                await asyncio.sleep(0)  # others' requests come between two decisions
        finally:
            self._writer = None

    async def _decide(self, command: _Command) -> _Outcome:
        """Decide on the newest picture and append; the next decision knows of it, whether it is durable yet or not."""
        self._check_disk()
        decision = command.decide(self._newest)
        if not decision.records:
            return _Outcome(command, None, self._newest, None, decision.reply, self._appended)
        delta = Delta(self._newest)
        for record in decision.records:
            delta.apply(record)  # before it is written: what cannot be applied would keep the next start from its work
        image = delta.image()
        build = functools.partial(_batch, decision.records, self._wall_ms())
        self._append(build() if len(decision.records) < RECORDS_ENCODED_ON_LOOP_MAX else await off_loop(build))
        self._newest = image
        return _Outcome(command, self._flusher.request(self._log), image, delta, decision.reply, self._appended)

    async def _commit(self) -> None:
        """Wait for the disk, outcome by outcome. What changes something is published, the rest is told.

        A sync that fails is the last: the flusher refuses whatever comes, so that nobody decides on what was not durable.
        """
        try:
            while self._decided:
                outcome = self._decided.popleft()
                try:
                    if outcome.durable is not None:
                        await outcome.durable
                    self._check_disk()
                except Exception as problem:  # noqa: BLE001 - it is told to the one who asked
                    _fail(outcome.command.reply, problem)
                    continue
                if outcome.delta is not None and outcome.delta.quiet:
                    _tell(outcome)  # there is nothing to follow
                if self._publisher is None and (outcome.delta is None or outcome.delta.quiet):
                    self._picture(outcome)
                    _tell(outcome)
                    continue
                self._changes.append(outcome)  # a refusal, too, is told when the picture shows what it rests on
                if self._publisher is None:
                    self._publisher = asyncio.ensure_future(self._publish())
        finally:
            self._committer = None

    async def _publish(self) -> None:
        """Have one change followed after the other, and tell those who asked for it."""
        try:
            while self._changes:
                change = self._changes.popleft()
                if change.delta is not None:
                    await self._follow(change.image, change.delta)
                self._picture(change)
                if change.delta is not None:
                    for watch in self._watchers:
                        watch()
                _tell(change)
        finally:
            self._publisher = None

    async def _follow(self, image: ClusterImage, delta: Delta) -> None:
        for follow in self._followers:
            try:
                await follow(image, delta)
            except Exception:  # what is on disk is true, whatever became of following it
                log.exception("a change of the metadata could not be followed on a mistake of this broker")

    def _picture(self, outcome: _Outcome) -> None:
        """What was followed is the picture from now on."""
        self.image, self._covered = outcome.image, outcome.covered
        self.maintain()

    # Snapshots

    def maintain(self) -> None:
        """Begin a snapshot of the picture where one is due; the node calls this now and then."""
        if self._snapshotting is not None or self._undeleted is None or self._undeleted():
            return
        if self._snapshots.due(self._covered.bytes_total, self._wall_ms()):
            self._snapshotting = asyncio.ensure_future(self._snapshot())

    async def _snapshot(self) -> None:
        """Write the picture down; when it is on disk, let go of what two snapshots cover."""
        try:
            point, image = self._covered, self.image
            snapshot = SnapshotId(point.end_offset, LEADER_EPOCH)
            if await self._snapshots.take(image, snapshot, point, self._wall_ms()):
                self._log.roll(self._wall_ms())
                await self._flusher.request(self._log)
                await off_loop(self._snapshots.tidy)
                if len(self._snapshots.ids) >= KEPT:
                    self._log.advance_start(self._snapshots.ids[0].offset, self._wall_ms())
                await off_loop(functools.partial(self._log.remove_deleted, self._wall_ms()))
        except (OSError, KafkaError) as problem:
            log.warning("the metadata log keeps what its snapshot covers until the next one: %s", problem)
        finally:
            self._snapshotting = None
        self.maintain()  # for what came meanwhile

    def _check_disk(self) -> None:
        if self._flusher.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {self._flusher.failed}")

    def _append(self, batch: bytes | bytearray) -> None:
        try:
            now_ms = self._wall_ms()
            self._log.append_own(batch, leader_epoch=LEADER_EPOCH, now_ms=now_ms)
        except OSError as problem:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write the metadata log: {problem.strerror or problem}"
            ) from problem
        self._appended = LogPoint(self._log.end_offset, now_ms, self._appended.bytes_total + len(batch))


def _batch(records: tuple[Any, ...], now_ms: int) -> bytes | bytearray:
    """One batch for one decision: all of it is there after a crash, or nothing."""
    builder = BatchBuilder()
    for record in records:
        builder.append(now_ms, None, to_bytes(record))
    return builder.build()


def _tell(outcome: _Outcome) -> None:
    """Give whoever asked the reply, where somebody still waits for it."""
    if isinstance(outcome.reply, Exception):
        _fail(outcome.command.reply, outcome.reply)
    elif not outcome.command.reply.done():
        outcome.command.reply.set_result(outcome.reply)


def _fail(reply: "asyncio.Future[Any]", problem: Exception) -> None:
    """Tell whoever asked; where nobody does any more, a mistake of ours is told to the log."""
    if not reply.done():
        reply.set_exception(problem)
    elif not isinstance(problem, KafkaError):
        log.error("a change of the metadata failed on a mistake of this broker", exc_info=problem)
