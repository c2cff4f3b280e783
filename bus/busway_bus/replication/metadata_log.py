"""The cluster's metadata on disk, and the current picture of it.

What lives here: the driver of the controller: decide on the newest image, append, wait for the disk, apply; and behind it, publish.
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
from busway_bus.log.checkpoints import uuid_text
from busway_bus.log.flusher import Flusher
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.log.store import LogStore, WrongDirectory
from busway_bus.metadata.delta import BrokenHistory, Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import TOPIC, TOPIC_ID_INT, FeatureLevelRecord, PartitionRecord, from_bytes, to_bytes
from busway_bus.replication.cleaning import off_loop
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.machine import Machine
from busway_protocol.records.batch import read_header, verify_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records

log = logging.getLogger("busway.metadata")

R = TypeVar("R")
Follower = Callable[[ClusterImage, Delta], Awaitable[None]]
"""Told of every new image and of what differs in its topics; the next change is told when it returns."""
METADATA_VERSION: Final = 30
"""metadata.version of Kafka 4.3 (4.3-IV0): what the records in this log follow."""
COMMANDS_MAX: Final = 10_000
"""Commands that wait for the writer or to be followed. Each connection has one at a time, but they outlive connections that come and go."""
_BUILT_ON_LOOP_MAX: Final = 1_000
"""Records of a decision that are encoded between two others' requests; more of them, in another thread."""
_REMEDY: Final = (
    f"Without the metadata log nobody knows which topics there are: restore {TOPIC}-0 from a copy. "
    f"Until then nothing starts here and nothing is removed"
)
_KEEP: Final = LogConfig(retention_ms=-1, retention_bytes=-1)


class _Command(NamedTuple):
    """What somebody wants decided, and where the reply is awaited, or was."""

    decide: Callable[[ClusterImage], Decision[Any]]
    reply: "asyncio.Future[Any]"


class _Change(NamedTuple):
    """What is on disk and not followed yet, and the reply that waits for that."""

    image: ClusterImage
    delta: Delta
    command: _Command
    reply: object


class MetadataLog:
    """The metadata log and the image that its records make.

    Attributes:
        image: the picture that is followed; what is decided on may be newer. Replaced, never changed.

    Raises:
        CorruptLog: the log is damaged; without it the node knows nothing of its topics.
        WrongDirectory: it is not the log of the topics in this directory.
    """

    def __init__(self, store: LogStore, flusher: Flusher, machine: Machine = OS) -> None:
        self._wall_ms = machine.wall_ms
        self._flusher = flusher
        self._followers: list[Follower] = []
        self._watchers: list[Callable[[], None]] = []
        self._commands: deque[_Command] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._changes: deque[_Change] = deque()
        self._publisher: asyncio.Task[None] | None = None
        self._directories: set[UUID] = set()
        try:
            topic_id = UUID(int=TOPIC_ID_INT)
            self._log: PartitionLog = store.open(TOPIC, 0, topic_id, _KEEP, self._wall_ms(), new=store.formatted)
            self._stored = self._replay()
        except CorruptLog as problem:
            raise CorruptLog(f"{problem}. {_REMEDY}") from None
        self._check_place(store)
        self.image = self._newest = self._stored.image()
        for note in self._stored.notes:
            log.warning("%s: %s", self._log.directory, note)

    def _replay(self) -> Delta:
        """Everything that the log says, each batch checked: a flipped bit must not make topics of other names."""
        delta, offset = Delta(ClusterImage()), 0
        try:
            for batch in self._log.batches():
                header = read_header(batch)
                offset = header.base_offset
                verify_crc(batch, header)
                for record in decode_records(batch):
                    offset = record.offset
                    if record.value is None:
                        continue
                    change = from_bytes(record.value)
                    delta.apply(change)
                    if isinstance(change, PartitionRecord):
                        self._directories.update(change.directories)
        except (ProtocolError, BrokenHistory) as problem:
            raise CorruptLog(f"{self._log.directory} is damaged at offset {offset}: {problem}") from None
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
        mine = store.identity.directory_id
        if self._directories and mine not in self._directories:
            other = uuid_text(min(self._directories))
            raise WrongDirectory(
                f"the metadata log was written for the directory.id {other}, but meta.properties says {uuid_text(mine)}: one of "
                f"them is another cluster's. Restore the right one from a copy; if the metadata log is the right one, set "
                f"directory.id={other} in meta.properties. Until then nothing starts here and nothing is removed"
            )

    @property
    def removed(self) -> Collection[UUID]:
        """The ids of all topics whose deletion was committed before the start."""
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

    async def format(self) -> None:
        """Finalize the metadata version in a log that is empty."""
        if "metadata.version" not in self.image.features:
            record = FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION)
            await self.run(lambda _: Decision(records=(record,), reply=None))

    async def run(self, decide: Callable[[ClusterImage], Decision[R]]) -> R:
        """Decide on the current image, make the records durable, apply them, have them followed, and give the reply.

        Whoever asked may be cancelled at any time: the command is carried out all the same.

        Raises:
            KafkaError: what `decide` raises, KAFKA_STORAGE_ERROR, or REQUEST_TIMED_OUT while too many wait.
        """
        if len(self._commands) + len(self._changes) >= COMMANDS_MAX:
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
        while under_way := [task for task in (self._writer, self._publisher) if task is not None]:
            await asyncio.wait(under_way)

    async def _write(self) -> None:
        """Carry out one command after the other until none is left."""
        try:
            while self._commands:
                command = self._commands.popleft()
                try:
                    await self._carry_out(command)
                except Exception as problem:  # noqa: BLE001 - it is told to the one who asked
                    _fail(command.reply, problem)
        finally:
            self._writer = None

    async def _carry_out(self, command: _Command) -> None:
        """Decide, make durable, and leave the rest to the publisher: the next decision need not wait until this one is followed."""
        decision = command.decide(self._newest)
        if not decision.records:
            _tell(command, decision.reply)
            return
        delta = Delta(self._newest)
        for record in decision.records:
            delta.apply(record)  # before it is written: what cannot be applied would keep the next start from its work
        image = delta.image()
        build = functools.partial(_batch, decision.records, self._wall_ms())
        self._append(build() if len(decision.records) < _BUILT_ON_LOOP_MAX else await off_loop(build))
        await self._flusher.request(self._log)
        self._newest = image
        quiet = not (delta.changed or delta.removed or delta.configured)
        if quiet:
            _tell(command, decision.reply)  # there is nothing to follow
            if self._publisher is None:
                self.image = image
                return
        self._changes.append(_Change(image, delta, command, decision.reply))
        if self._publisher is None:
            self._publisher = asyncio.ensure_future(self._publish())

    async def _publish(self) -> None:
        """Have one change followed after the other, and tell those who asked for it."""
        try:
            while self._changes:
                change = self._changes.popleft()
                for follow in self._followers:
                    try:
                        await follow(change.image, change.delta)
                    except Exception:  # what is on disk is true, whatever became of following it
                        log.exception("a change of the metadata could not be followed on a mistake of this broker")
                self.image = change.image
                for watch in self._watchers:
                    watch()
                _tell(change.command, change.reply)
        finally:
            self._publisher = None

    def _append(self, batch: bytes | bytearray) -> None:
        if self._flusher.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {self._flusher.failed}")
        try:
            self._log.append_own(batch, leader_epoch=1, now_ms=self._wall_ms())
        except OSError as problem:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write the metadata log: {problem.strerror or problem}"
            ) from problem


def _batch(records: tuple[Any, ...], now_ms: int) -> bytes | bytearray:
    """One batch for one decision: all of it is there after a crash, or nothing."""
    builder = BatchBuilder()
    for record in records:
        builder.append(now_ms, None, to_bytes(record))
    return builder.build()


def _tell(command: _Command, reply: object) -> None:
    """Give whoever asked the reply, where somebody still waits for it."""
    if not command.reply.done():
        command.reply.set_result(reply)


def _fail(reply: "asyncio.Future[Any]", problem: Exception) -> None:
    """Tell whoever asked; where nobody does any more, a mistake of ours is told to the log."""
    if not reply.done():
        reply.set_exception(problem)
    elif not isinstance(problem, KafkaError):
        log.error("a change of the metadata failed on a mistake of this broker", exc_info=problem)
