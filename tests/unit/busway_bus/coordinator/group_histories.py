"""Members of a classic group and of a consumer group while their coordinator moves from broker to broker.

A generation whose assignment a member got, and the epoch of a member, never go back; commits of earlier generations are
refused; an acknowledged commit is kept; at last every member is in its group.
Here: the members, the checks, `run`.
Not here: groups on one broker (`tests.simulation.group_workloads`), the bugs that this finds (`planted_coordinators`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar
from uuid import UUID

from tests.support.patience import patient
from tests.unit.busway_bus.coordinator.brokers import Brokers, machine

from busway_bus.coordinator.group_coordinator import GroupCoordinator
from busway_bus.groups.group import Committer
from busway_bus.groups.modern.requests import ConsumerHeartbeat
from busway_bus.groups.offsets import NewOffset
from busway_bus.groups.requests import Join, Sync
from busway_bus.handlers.common.context import Peer
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.testing.world import World
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.types import ZERO_UUID

R = TypeVar("R")
CLASSIC, CONSUMER = "classic", "consumer"
MEMBERS = 2
"""Of each group."""
MOVES = 8
ENDS_S = 5.0
"""Bound of a run in virtual time, in s; most take less than half of one."""
PLACE = ("data", 0)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "100",
}
_ELSEWHERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_OUT = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
_REFUSED = {
    *_ELSEWHERE,
    *_OUT,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


class Grouping(Brokers):
    """Three brokers with a group coordinator each; groups are at the leader of the offsets topic's only partition.

    Attributes:
        assigned: the highest generation whose assignment a member got.
        committed: the highest acknowledged offset, by group.
        numbers: the last offset that was sent.
        settled: set when the coordinator moves no more.
    """

    def __init__(self) -> None:
        super().__init__(3, **SETTINGS)
        self.assigned, self.numbers, self.settled = 0, 0, asyncio.Event()
        self.committed = {CLASSIC: -1, CONSUMER: -1}
        self.coordinators: dict[int, GroupCoordinator] = {}

        async def create() -> None:
            raise AssertionError("the topic is there")

        for broker in self:
            groups = self.coordinators[broker.node_id] = GroupCoordinator(
                broker.config,
                broker.replicas,
                machine(),
                create_topic=create,
                cluster=lambda broker=broker: broker.image,
            )
            broker.watchers.append(groups.runtime.follow)

    @property
    def groups(self) -> GroupCoordinator:
        return self.coordinators[self.image.topics[OFFSETS_TOPIC].partitions[0].leader]

    async def retried(self, attempt: Callable[[], Awaitable[R]]) -> R:
        while True:
            try:
                return await attempt()
            except KafkaError as problem:
                if problem.code not in _ELSEWHERE:
                    raise
            await asyncio.sleep(0.002)

    async def commit(self, group_id: str, member_id: str, epoch: int) -> bool:
        """Commit the next offset; return whether that was acknowledged."""
        self.numbers = number = self.numbers + 1
        committer = Committer(member_id=member_id, instance_id=None, epoch=epoch, version=9)
        offset = NewOffset(offset=number, leader_epoch=-1, metadata="", topic_id=ZERO_UUID, retention_ms=-1)
        try:
            codes = await self.groups.commit(group_id, committer, {PLACE: offset})
        except KafkaError as problem:
            if problem.code not in _REFUSED:
                raise
            return False
        assert codes == {PLACE: ErrorCode.NONE}
        self.committed[group_id] = max(self.committed[group_id], number)
        return True

    async def close(self) -> None:
        for groups in self.coordinators.values():
            groups.close()
        await super().close()


class ClassicMember:
    """A member that joins, syncs, sends heartbeats and commits, also late ones of an earlier generation."""

    def __init__(self, brokers: Grouping, number: int, chance: Random) -> None:
        self.brokers, self.chance = brokers, chance
        self.client_id, self.member_id = f"c{number}", ""
        self.earlier: list[tuple[str, int]] = []
        """Member ids and generations that it has had."""

    async def run(self) -> None:
        while not self.brokers.settled.is_set():
            generation = await self.joined()
            for _ in range(self.chance.randint(1, 4)):
                await self.commit(*self.chance.choice(self.earlier[-3:]))
                await asyncio.sleep(self.chance.random() * 0.005)
                if await self.heartbeat(generation) is not ErrorCode.NONE:
                    break
            if self.chance.random() < 0.2:
                await self.brokers.retried(lambda: self.brokers.groups.leave(CLASSIC, [(self.member_id, None)]))
        await self.joined()

    async def joined(self) -> int:
        """Join and sync until the member has an assignment; return its generation."""
        while True:
            floor = self.brokers.assigned
            request = Join(
                member_id=self.member_id,
                instance_id=None,
                client_id=self.client_id,
                client_host="h",
                session_timeout_ms=100,
                rebalance_timeout_ms=20,
                protocol_type="consumer",
                protocols=(("range", b""),),
                needs_known_id=True,
                can_skip_assignment=False,
            )
            try:
                joined = await self.brokers.groups.join(CLASSIC, request, Peer())
                if joined.error is ErrorCode.NONE:
                    assert joined.generation >= floor, f"the generation goes back from {floor} to {joined.generation}"
                    if await self.synced(joined.generation, [member_id for member_id, _, _ in joined.members]):
                        self.earlier.append((self.member_id, joined.generation))
                        return joined.generation
                elif joined.error is ErrorCode.MEMBER_ID_REQUIRED:
                    self.member_id = joined.member_id
                    continue
                else:
                    self.refused(joined.error)
            except KafkaError as problem:
                self.refused(problem.code)
            await asyncio.sleep(0.002)

    async def synced(self, generation: int, listed: list[str]) -> bool:
        assignments = tuple((member_id, member_id.encode()) for member_id in listed)
        request = Sync(member_id=self.member_id, instance_id=None, generation=generation, assignments=assignments)
        synced = await self.brokers.groups.sync(CLASSIC, request, lambda _: None)
        if synced.error is ErrorCode.NONE:
            self.brokers.assigned = max(self.brokers.assigned, generation)
            return True
        self.refused(synced.error)
        return False

    async def commit(self, member_id: str, generation: int) -> None:
        floor = self.brokers.assigned
        if await self.brokers.commit(CLASSIC, member_id, generation):
            assert generation >= floor, f"a commit of generation {generation} is accepted in {floor}"

    async def heartbeat(self, generation: int) -> ErrorCode:
        try:
            code = self.brokers.groups.heartbeat(CLASSIC, self.member_id, None, generation)
        except KafkaError as problem:
            code = problem.code
        if code is not ErrorCode.NONE and code not in _ELSEWHERE:
            self.refused(code)
            return code
        return ErrorCode.NONE

    def refused(self, code: ErrorCode) -> None:
        assert code in _REFUSED, code
        if code in _OUT:
            self.member_id = ""


class ConsumerMember:
    """A member of the consumer protocol (KIP-848), which leaves and joins again at times."""

    def __init__(self, brokers: Grouping, number: int, chance: Random) -> None:
        self.brokers, self.chance = brokers, chance
        self.member_id, self.epoch = f"m{number}", 0
        self.owned: dict[UUID, tuple[int, ...]] = {}

    async def run(self) -> None:
        while not self.brokers.settled.is_set():
            for _ in range(self.chance.randint(1, 4)):
                await self.heartbeat()
                if self.epoch:
                    await self.brokers.commit(CONSUMER, self.member_id, self.epoch)
                await asyncio.sleep(self.chance.random() * 0.005)
            if self.epoch and self.chance.random() < 0.3:
                await self.heartbeat(leaves=True)
        while not self.epoch:
            await self.heartbeat()

    async def heartbeat(self, *, leaves: bool = False) -> None:
        request = ConsumerHeartbeat(
            member_id=self.member_id,
            epoch=-1 if leaves else self.epoch,
            instance_id=None,
            rack_id=None,
            client_id=self.member_id,
            client_host="h",
            rebalance_timeout_ms=1_000,
            topics=frozenset({PLACE[0]}),
            regex=None,
            assignor=None,
            owned=self.owned,
        )
        try:
            result = await self.brokers.retried(lambda: self.brokers.groups.consumer_heartbeat(CONSUMER, request))
        except KafkaError as problem:
            if problem.code not in {*_OUT, ErrorCode.GROUP_ID_NOT_FOUND}:
                raise
            self.epoch, self.owned = 0, {}
            return
        if leaves:
            self.epoch, self.owned = 0, {}
            return
        assert result.epoch >= self.epoch, f"the epoch goes back from {self.epoch} to {result.epoch}"
        self.epoch = result.epoch
        if result.assigned is not None:
            self.owned = dict(result.assigned)


async def disturb(brokers: Grouping, chance: Random) -> None:
    """Move the groups to another coordinator again and again."""
    for _ in range(MOVES):
        await asyncio.sleep(chance.random() * 0.1)
        await brokers.lead(OFFSETS_TOPIC, 0, chance.choice((1, 2, 3)))
    brokers.settled.set()


async def play(chance: Random) -> None:
    """The members of both groups. AssertionError: a rule is broken."""
    brokers = Grouping()
    await brokers.create(OFFSETS_TOPIC, [1])
    await brokers.create(PLACE[0], [1, 2, 3])
    async with brokers.replicating():
        async with asyncio.TaskGroup() as running:
            running.create_task(disturb(brokers, chance))
            for number in range(MEMBERS):
                running.create_task(ClassicMember(brokers, number, chance).run())
                running.create_task(ConsumerMember(brokers, number, chance).run())
        for group_id, committed in brokers.committed.items():
            kept, _ = await brokers.retried(lambda group_id=group_id: brokers.groups.offsets(group_id))
            assert (kept[PLACE].offset if kept else -1) >= committed, "an acknowledged commit is lost"
    await brokers.close()


async def _within(chance: Random) -> None:
    try:
        async with asyncio.timeout(patient(ENDS_S)):
            await play(chance)
    except TimeoutError:
        raise AssertionError(f"never: a member is not in its group after {ENDS_S} s") from None
    except BaseExceptionGroup as problems:
        raise problems.exceptions[0] from None


def run(seed: int, about: str = "") -> None:
    """One seed, in virtual time."""
    World(seed).run(lambda world: world.process("brokers").run(_within, Random(seed)))
