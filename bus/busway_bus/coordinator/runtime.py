"""Runs the group shards on the partitions of `__consumer_offsets`.

What lives here: loading, appending decisions, holding replies until they are on disk, timers. What does not: any rule about
groups. The topic is made when the first group asks for its coordinator.
"""

import asyncio
import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from busway_bus.coordinator.placement import partition_for
from busway_bus.groups.classic import ClassicGroup
from busway_bus.groups.classic_values import GroupLimits, Join, Joined, State, Sync, Synced
from busway_bus.groups.records import GroupMetadataKey, key_bytes, parse, value_bytes
from busway_bus.groups.shard import Change, GroupShard, founding, last_of_each
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.replication.manager import ReplicaManager
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.machine import Machine
from busway_protocol.records.batch import read_header, verify_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records
from busway_protocol.types import ZERO_UUID

log = logging.getLogger("busway.groups")
LOAD_GRACE_S: Final = 0.5
"""How long a start waits for the groups: a small node answers for them from its first moment, a large one serves all else."""
_APPLIED_AT_ONCE: Final = 100
"""Groups and offsets that a load takes in before it lets others come in between."""
BATCH_RECORDS_MAX: Final = 1_000
"""Records in one batch of ours: what a group with many partitions deletes must not make a batch nobody can fetch."""


class GroupCoordinator:
    """All groups of this node.

    Args:
        create_topic: makes the offsets topic.
        partitions: how many it has, 0 while it is not there.
        topic_id: its id, None while it is not there.
    """

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        machine: Machine,
        *,
        create_topic: Callable[[], Awaitable[None]],
        partitions: Callable[[], int],
        topic_id: Callable[[], uuid.UUID | None],
        topic_exists: Callable[[str], bool],
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._machine = machine
        self._create_topic = create_topic
        self._partitions = partitions
        self._topic_id = topic_id
        self._topic: uuid.UUID | None = None
        self._topic_exists = topic_exists
        self._limits = GroupLimits(
            min_session_timeout_ms=config.get("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get("group.initial.rebalance.delay.ms"),
            max_size=config.get("group.max.size"),
        )
        self._shards: dict[int, GroupShard] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._damaged: dict[int, BaseException] = {}
        self._unreadable: dict[int, str] = {}
        """What was told of those that are being looked at again: it is told once."""
        self._loading: dict[int, asyncio.Task[GroupShard]] = {}
        self._unflushed: dict[int, asyncio.Future[None]] = {}
        self._epoch_ms = machine.wall_ms() - int(machine.monotonic_s() * 1000)
        self._creating = asyncio.Lock()

    # Loading

    async def ensure(self) -> None:
        """Make sure that the offsets topic is there and loaded."""
        async with self._creating:
            if self._partitions() == 0:
                await self._create_topic()
            self.load()

    def load(self) -> None:
        """Begin to load every shard that is not loaded yet; the groups of one whose log cannot be read are not served, and those of
        one that is offline not until it is back."""
        self.follow()
        count = self._partitions()
        if len(self._shards) + len(self._damaged) + len(self._loading) == count:
            return
        for number in range(count):
            if number in self._shards or number in self._damaged or number in self._loading:
                continue
            try:
                empty = self._replicas.find(OFFSETS_TOPIC, number).log.size_bytes == 0
            except KafkaError:
                continue
            if empty:
                self._shards[number] = self._new_shard()
                continue
            task = self._loading[number] = asyncio.ensure_future(self._load(number))
            task.add_done_callback(functools.partial(self._loaded, number))

    def look_again(self) -> None:
        """Load what the disk refused to give, and may not refuse now; damage waits for the operator and the next start."""
        for number, problem in tuple(self._damaged.items()):
            if isinstance(problem, (OSError, KafkaError)):
                self._unreadable[number] = str(self._damaged.pop(number))
        self.load()

    def _new_shard(self) -> GroupShard:
        return GroupShard(limits=self._limits, new_member_id=self._new_member_id)

    def _new_member_id(self, prefix: str) -> str:
        """A member id as Kafka makes them: what the client calls itself, and a random part."""
        return f"{prefix}-{self._machine.uuid4()}"

    async def _load(self, number: int) -> GroupShard:
        kept = await self._replicas.slices.run(last_of_each(self._stored(number)))
        shard, now = self._new_shard(), self._now()
        for done, (key, value) in enumerate(kept):
            shard.apply(key, value, now)
            if done % _APPLIED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return shard

    def _loaded(self, number: int, task: "asyncio.Task[GroupShard]") -> None:
        if self._loading.get(number) is not task:
            return  # of a topic that was deleted meanwhile
        del self._loading[number]
        if task.cancelled():
            return
        problem, told = task.exception(), self._unreadable.pop(number, None)
        if problem is None:
            if told is not None:
                log.warning("%s-%d is read now, and its groups are served", OFFSETS_TOPIC, number)
            shard = self._shards[number] = task.result()
            for group in shard.groups.values():
                if group.members:
                    self._set_timer(group)
            return
        self._damaged[number] = problem
        if told == str(problem):
            return
        expected = isinstance(problem, (ProtocolError, KafkaError, OSError))
        text = "%s-%d cannot be read, its groups are not served: %s"
        log.error(text, OFFSETS_TOPIC, number, problem, exc_info=None if expected else problem)

    async def loaded(self, *, within_s: float) -> None:
        """Return when all is loaded that was begun, or the time is over; the rest is answered COORDINATOR_LOAD_IN_PROGRESS."""
        if self._loading:
            await asyncio.wait(self._loading.values(), timeout=within_s)

    def follow(self) -> None:
        """Let go of the groups of an offsets topic that was deleted: their members have to look for the coordinator again."""
        found = self._topic_id()
        if found == self._topic:
            return
        self._topic = found
        self.close()
        self._loading = {}
        self._damaged.clear()
        self._unreadable.clear()
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            for group in shard.groups.values():
                group.abandon()
                due, group.outbox = group.outbox, []
                _answer(due)

    def _stored(self, number: int) -> Iterable[Change]:
        for batch in self._replicas.find(OFFSETS_TOPIC, number).log.batches():
            verify_crc(batch, read_header(batch))
            for record in decode_records(batch):
                found = parse(record.key, record.value) if record.key is not None else None
                if found is not None:
                    yield found

    def shard(self, group_id: str) -> GroupShard:
        """The shard of a group.

        Raises:
            KafkaError: NOT_COORDINATOR before anyone has asked for a coordinator, COORDINATOR_LOAD_IN_PROGRESS while what is
                stored of its groups is being read, COORDINATOR_NOT_AVAILABLE when it cannot be.
        """
        number = self._number(group_id)
        self.load()
        if number in self._loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{OFFSETS_TOPIC}-{number} is being read")
        if number not in self._shards:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC}-{number} cannot be read")
        return self._shards[number]

    @property
    def shards(self) -> Iterable[GroupShard]:
        """All shards.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, some are still being read.
        """
        self.load()
        if self._loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{OFFSETS_TOPIC} is being read")
        return self._shards.values()

    def _now(self) -> int:
        """Wall time in ms that never jumps: sessions are counted with it, and setting the clock must not end them."""
        return self._epoch_ms + int(self._machine.monotonic_s() * 1000)

    # Writing

    async def write(self, group_id: str, changes: Sequence[Change]) -> None:
        """Append the changes, apply them, and return when they are on disk.

        Raises:
            KafkaError: NOT_COORDINATOR when the disk failed; clients look for the coordinator again.
        """
        if changes:
            number = self._number(group_id)
            await self._finished(self._append(number, changes))

    async def settled(self, group_id: str) -> None:
        """Return when all that is known of a group is on disk: nothing is told that a crash could take back.

        Raises:
            KafkaError: NOT_COORDINATOR when the disk failed.
        """
        await self._finished(self._unflushed.get(self._number(group_id)))

    async def _finished(self, done: "asyncio.Future[None] | None") -> None:
        if done is not None:
            try:
                await asyncio.shield(done)
            except KafkaError as problem:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, str(problem)) from problem

    def _number(self, group_id: str) -> int:
        count = self._partitions()
        if count == 0:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition_for(group_id, count)

    def _append(self, number: int, changes: Sequence[Change]) -> "asyncio.Future[None] | None":
        """Append and apply; no await in between, so that what was decided still holds.

        Raises:
            KafkaError: NOT_COORDINATOR when the disk failed.
        """
        shard, done = self._shards[number], None
        try:
            partition = self._replicas.find(OFFSETS_TOPIC, number)
        except KafkaError as problem:  # it is being deleted
            raise KafkaError(ErrorCode.NOT_COORDINATOR, str(problem)) from problem
        for start in range(0, len(changes), BATCH_RECORDS_MAX):
            builder = BatchBuilder()
            now = self._machine.wall_ms()
            part = changes[start : start + BATCH_RECORDS_MAX]
            for key, value in part:
                builder.append(now, key_bytes(key), value_bytes(value))
            try:
                _, done = self._replicas.append(partition, builder.build())
            except KafkaError as problem:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, str(problem)) from problem
            for key, value in part:
                shard.apply(key, value, self._now())
                if isinstance(key, GroupMetadataKey) and value is None:
                    self._stop_timer(key.group)
            if done is not None:
                self._unflushed[number] = done
                done.add_done_callback(lambda over: self._flushed(number, over))
        return done

    def _flushed(self, number: int, done: "asyncio.Future[None]") -> None:
        done.exception()  # whoever waits gets it; where nobody does, the flusher has told the node
        if self._unflushed.get(number) is done:
            del self._unflushed[number]

    # The group machine

    async def join(self, group_id: str, request: Join, parked: Callable[["asyncio.Future[Any]"], None]) -> Joined:
        """Join a group; returns when the rebalance is over.

        Args:
            parked: told of the future that the answer is waited for with; whoever ends it ends the wait, not the membership.

        Raises:
            KafkaError: NOT_COORDINATOR.
        """
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            # A refusal must not leave a group behind.
            error = self._limits.refuse(request) or (ErrorCode.UNKNOWN_MEMBER_ID if request.member_id else None)
            if error is not None:
                return Joined(error=error, member_id=request.member_id)
            # As in Kafka, a group's first record is an empty one: neither members nor a protocol type yet.
            self._append(self._number(group_id), [founding(group_id, self._now())])
            group = shard.group(group_id)
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer = group.join(request, waiter, self._now())
        self._settle(group)
        if answer is not None:
            return answer
        parked(waiter)
        found = await waiter
        assert isinstance(found, Joined)
        return found

    async def sync(self, group_id: str, request: Sync, parked: Callable[["asyncio.Future[Any]"], None]) -> Synced:
        """Hand in or fetch assignments; returns when they are on disk. `parked` as in `join`.

        Raises:
            KafkaError: NOT_COORDINATOR.
        """
        group = self.shard(group_id).groups.get(group_id)
        if group is None:
            return Synced(error=ErrorCode.UNKNOWN_MEMBER_ID)
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer = group.sync(request, waiter, self._now())
        self._settle(group)
        if answer is not None:
            await self.settled(group_id)
            return answer
        parked(waiter)
        found = await waiter
        assert isinstance(found, Synced)
        return found

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Note that a member is alive."""
        group = self.shard(group_id).groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        # It puts a session's end off and does nothing else: the timer looks for the next end when the old one comes.
        return group.heartbeat(member_id, instance_id, generation, self._now())

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        """Take a member out of its group."""
        group = self.shard(group_id).groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.leave(member_id, instance_id, self._now())
        self._settle(group)
        return error

    def check_commit(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether a member may commit; without a generation anyone may, to a group that does not exist.

        Raises:
            KafkaError: NOT_COORDINATOR, or GROUP_ID_NOT_FOUND.
        """
        group = self.shard(group_id).groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
            return ErrorCode.NONE
        return group.commit(member_id, instance_id, generation, self._now())

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group that is empty, with its offsets.

        Raises:
            KafkaError: NOT_COORDINATOR.
        """
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        await self.write(group_id, shard.delete_group(group_id))
        return ErrorCode.NONE

    def _settle(self, group: ClassicGroup) -> None:
        """Write down what changed, then answer who is due; arm the next timer."""
        due, group.outbox = group.outbox, []
        written = None
        self._set_timer(group)
        if group.dirty:
            group.dirty = False
            change: Change = (GroupMetadataKey(group=group.group_id), group.record())
            try:
                written = self._append(self._number(group.group_id), [change])
            except KafkaError as problem:
                _answer(due, problem)
                return
        if written is None:
            _answer(due)
        else:
            written.add_done_callback(lambda done: _answer(due, done.exception()))

    def _set_timer(self, group: ClassicGroup) -> None:
        self._stop_timer(group.group_id)
        deadline = group.next_deadline()
        if deadline is not None:
            delay = max(0.0, (deadline - self._now()) / 1000)
            timer = asyncio.get_running_loop().call_later(delay, self._tick, group)
            self._timers[group.group_id] = timer

    def _stop_timer(self, group_id: str) -> None:
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()

    def _tick(self, group: ClassicGroup) -> None:
        group.tick(self._now())
        self._settle(group)

    async def expire(self) -> None:
        """Remove offsets that nobody needs any more, and groups that have nothing left."""
        retention_ms = self._config.get("offsets.retention.minutes") * 60_000
        self.load()
        for number in tuple(self._shards):
            shard = self._shards.get(number)
            if shard is None:
                continue  # the topic was deleted meanwhile
            changes = shard.expired(self._machine.wall_ms(), retention_ms, self._lives)
            try:
                await self._finished(self._append(number, changes))
            except KafkaError as problem:
                log.error("what has expired in %s-%d cannot be removed: %s", OFFSETS_TOPIC, number, problem)
                return

    def _lives(self, topic: str, topic_id: uuid.UUID) -> bool:
        """Whether it is still the topic that an offset was committed for; one without an id may be any of that name."""
        return self._topic_exists(topic) and (topic_id == ZERO_UUID or self._replicas.name_of(topic_id) == topic)

    def close(self) -> None:
        """Stop the timers, and what is being loaded."""
        for task in self._loading.values():
            task.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


def _answer(due: list[tuple[Any, Joined | Synced]], problem: BaseException | None = None) -> None:
    for waiter, answer in due:
        if waiter.done():
            continue
        if problem is None:
            waiter.set_result(answer)
        else:
            kind = Joined if isinstance(answer, Joined) else Synced
            waiter.set_result(kind(error=ErrorCode.NOT_COORDINATOR))
