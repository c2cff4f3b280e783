"""Members of groups that their coordinator balances (KIP-848), and topics that grow under them.

Here: heartbeats as the history sees them, commits in the name of an epoch that is over, topics that are made and grown,
who owns what in the end.
Not here: what members of all groups do (`group_workloads`).
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import busway
from busway.admin.groups import GroupDescription
from busway.consumer.membership_modern import JOIN, LEAVE_FOR_A_WHILE
from busway.errors import BrokerError, BuswayError
from busway_bus.kernel import patterns
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import (
    HeartbeatRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.history import Commit, ConsumerHeartbeat, DescribedGroup, Happening, Outcome, Partition, Seat
from tests.simulation.workloads import RETRY_S, Client

_STALE: Final = 0.5
"""How often something is committed in the name of an epoch that is over."""
_COMMIT_VERSION: Final = 9
_ENDED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
"""Of what a coordinator says, what leaves no doubt that it knows the member no more."""


def is_modern(client: Client) -> bool:
    """Whether it speaks the protocol of groups that their coordinator balances (KIP-848), in this life.

    A client with `protocols` speaks one after the other, the last of them from then on.
    """
    protocols = client.option("protocols")
    if protocols is None:
        return bool(client.option("protocol") == "consumer")
    return bool(protocols[min(client.lives, len(protocols)) - 1] == "consumer")


class Membership(NamedTuple):
    """Who committed, or would."""

    member: str
    generation: int


@dataclass(slots=True)
class Given:
    """What a member has been given and has given up.

    Attributes:
        refused: what the coordinator said when it ended the session.
    """

    refused: Any = None
    _had: dict[Partition, Membership] = field(default_factory=dict)
    _past: list[tuple[Membership, Partition, bool]] = field(default_factory=list)
    _gone: set[Partition] = field(default_factory=set)

    def taken(self, partitions: Iterable[Partition], member: str, generation: int) -> None:
        """These are the member's."""
        self._had.update(dict.fromkeys(partitions, Membership(member, generation)))

    def gave_up(self, partitions: frozenset[Partition]) -> None:
        """These are not, any more."""
        ended = self.refused is not None and self.refused.code in _ENDED
        self._past += [(self._had[partition], partition, ended) for partition in sorted(partitions & self._had.keys())]
        self._gone |= partitions
        self.refused = None

    def take_gone(self) -> set[Partition]:
        """What was given up since this was asked last."""
        gone, self._gone = self._gone, set()
        return gone

    def to_try(self, client: Client, generation: int) -> list[tuple[Membership, Partition]]:
        """Commits with the epoch before: what the coordinator, too, knows to be given up, since the epoch has moved on."""
        over = [
            (membership, partition)
            for membership, partition, ended in self._past
            if ended or generation > membership.generation
        ]
        if not over or not is_modern(client):
            return []
        self._past.clear()
        return [client.chance.choice(over)] if client.chance.random() < _STALE else []


async def commit_in_the_name(
    client: Client, consumer: busway.Consumer, group: str, membership: Membership, partition: Partition
) -> None:
    """Commit as a member does that has not heard that its partition is another's."""
    member, epoch = membership
    commit = Commit(
        process=client.process, group=group, partition=partition, offset=0, member=member, generation=epoch, stale=True
    )
    client.history.begin(commit)
    assert consumer._group is not None
    wanted = OffsetCommitRequestPartition(
        partition_index=partition.number, committed_offset=0, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        group_instance_id=None,
        topics=[OffsetCommitRequestTopic(name=partition.topic, partitions=[wanted])],
    )
    try:
        answer = await consumer._group._coordinator.ask(request, at_most=_COMMIT_VERSION)
    except BuswayError as problem:
        client.history.end(commit, Outcome.INFO, problem)
        return
    code = error_for(answer.topics[0].partitions[0].error_code)
    client.history.end(commit, Outcome.OK if code is ErrorCode.NONE else Outcome.FAIL, code.name)


def record_beats(client: Client, consumer: busway.Consumer, group: str) -> None:
    """Note every heartbeat that the consumer makes."""
    member: Any = consumer._group
    join: Callable[[], None] = member._join

    def joined() -> None:
        join()
        state = member._heartbeat_session.state
        request, answered = state.request, state.answered
        pending: list[ConsumerHeartbeat] = []

        def asks() -> Any:
            heartbeat = ConsumerHeartbeat(process=client.process, group=group, member=state.identity.member_id)
            pending[:] = [client.history.begin(heartbeat)]
            return request()

        def hears(answer: Any) -> Any:
            pending[0].epoch = answer.member_epoch
            client.history.end(pending[0])
            return answered(answer)

        state.request, state.answered = asks, hears

    member._join = joined
    _record_seats(client, member._heartbeat_thread, group)


def record_classic_beats(client: Client, consumer: busway.Consumer, group: str) -> None:
    """Note every heartbeat that the consumer makes in the classic protocol; also one that asks it to join again was taken."""
    member: Any = consumer._group
    start = member._heartbeat_thread.start

    def noted(coordinator: Any) -> Any:
        if "ask" in vars(coordinator):  # of the generation before
            return coordinator
        ask = coordinator.ask

        async def asks(request: Any, **more: Any) -> Any:
            if not isinstance(request, HeartbeatRequest):
                return await ask(request, **more)
            heartbeat = ConsumerHeartbeat(process=client.process, group=group, member=request.member_id)
            client.history.begin(heartbeat)
            answer = await ask(request, **more)
            code = error_for(answer.error_code)
            if code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
                heartbeat.epoch = request.generation_id
                client.history.end(heartbeat)
            else:
                client.history.end(heartbeat, Outcome.INFO, code.name)
            return answer

        coordinator.ask = asks
        return coordinator

    def started(heartbeat_loop: Any, callback: Any) -> None:
        start(lambda coordinator, on_response: heartbeat_loop(noted(coordinator), on_response), callback)

    member._heartbeat_thread.start = started


def _record_seats(client: Client, thread: Any, group: str) -> None:
    """Note when a static member comes and goes, and the answer."""
    start, close = thread.start, thread.close

    def noted(coordinator: Any) -> Any:
        if "ask" in vars(coordinator):  # of the session before
            return coordinator
        ask = coordinator.ask

        async def asks(request: Any, **more: Any) -> Any:
            epoch = getattr(request, "member_epoch", None)
            if epoch not in {JOIN, LEAVE_FOR_A_WHILE} or request.instance_id is None:
                return await ask(request, **more)
            seat = Seat(
                process=client.process,
                group=group,
                member=request.member_id,
                instance=request.instance_id,
                leaves=epoch == LEAVE_FOR_A_WHILE,
            )
            client.history.begin(seat)
            try:
                answer = await ask(request, **more)
            except BaseException as problem:
                client.history.end(seat, Outcome.INFO, repr(problem))
                raise
            code = error_for(answer.error_code)
            certain = Outcome.FAIL if code is ErrorCode.UNRELEASED_INSTANCE_ID else Outcome.INFO
            client.history.end(seat, Outcome.OK if code is ErrorCode.NONE else certain, code.name)
            return answer

        coordinator.ask = asks
        return coordinator

    def started(heartbeat_loop: Any, callback: Any) -> None:
        start(lambda coordinator, on_response: heartbeat_loop(noted(coordinator), on_response), callback)

    async def closed(last: Any = None) -> None:
        await close(last and (lambda coordinator: last(noted(coordinator))))

    thread.start, thread.close = started, closed


# Topics that come and grow


def server_pattern(client: Client) -> str | None:
    """The regular expression by which a member subscribes, where it does so and they can be read here."""
    return f"{client.plan.topic}.*" if client.option("pattern") and patterns.re2 is not None else None


def topics_of(client: Client) -> set[str]:
    """What a member reads, of the topics that there are."""
    name = client.plan.topic
    if server_pattern(client) is None:
        return {name}
    return {topic for topic in client.stage.partitions_of() if topic.startswith(name)}


async def grow(client: Client) -> None:
    """Give a topic more partitions, and make more topics whose names begin as its."""
    admin = busway.Admin(client.stage.bootstrap, client_id=client.begin_life(), request_timeout_ms=5_000)
    await client.persist(admin.start)
    partitions, topic = client.stage.partitions_of(), client.plan.topic
    try:
        for number in range(client.plan.operations):
            await client.pause()
            name = client.chance.choice([name for name in sorted(partitions) if name.startswith(topic)])
            if client.chance.random() < 0.5:
                wanted = partitions[name] + 1
                await _until_done(lambda name=name, wanted=wanted: admin.create_partitions({name: wanted}))  # type: ignore[misc]
            else:
                name, wanted = f"{topic}{number}", client.chance.choice([1, 2])
                new = busway.NewTopic(name=name, partitions=wanted)
                await _until_done(lambda new=new: admin.create_topics([new]))  # type: ignore[misc]
            partitions[name] = wanted
            client.history.note(Happening(process=client.process, kind="grown", text=name))
    finally:
        await admin.stop()


async def _until_done(work: Callable[[], Any]) -> None:
    """Ask until it is known to be done, whichever attempt it was."""
    while True:
        try:
            await work()
            return
        except BrokerError as problem:
            if problem.code in {ErrorCode.INVALID_PARTITIONS, ErrorCode.TOPIC_ALREADY_EXISTS}:
                return
        except BuswayError:
            pass
        await asyncio.sleep(RETRY_S)


# The end of a run


async def all_are_owned(bootstrap: str, group: str, members: list[Client]) -> None:
    """Return when every partition that the group reads has one owner, as the members know it and as the coordinator does; note the group."""
    async with busway.Admin(bootstrap, client_id="owners", request_timeout_ms=5_000) as admin:
        while True:
            with contextlib.suppress(BuswayError):
                described = await admin.describe_group(group)
                described_owners = Counter(
                    Partition(*partition) for member in described.members for partition in member.partitions
                )
                known_owners = Counter(partition for client in members for partition in client.owned)
                topics = {topic for client in members for topic in topics_of(client)}
                partitions = members[0].stage.partitions_of()
                wanted = Counter(Partition(topic, number) for topic in topics for number in range(partitions[topic]))
                if described_owners == known_owners == wanted:
                    _note_group(described, members)
                    return
            await asyncio.sleep(RETRY_S)


def _note_group(described: GroupDescription, members: list[Client]) -> None:
    if any(client.option("protocols") for client in members):
        return  # one that changes its protocol keeps its vote, and its new one counts with the next epoch only
    clients = {client.plan.name: client for client in members}
    of = {member.member_id: clients[member.client_id.partition(".")[0]] for member in described.members}
    members[0].history.note(
        DescribedGroup(
            process="owners",
            group=described.group_id,
            assignor=described.protocol,
            votes={member_id: client.option("strategy") for member_id, client in of.items()},
            owned={
                member.member_id: frozenset(Partition(*partition) for partition in member.partitions)
                for member in described.members
            },
            settled=described.state == "Stable",
            # A regular expression of a member that joined again is resolved 10 s after the last one, as in Kafka.
            alike=len({(frozenset(topics_of(client)), server_pattern(client)) for client in of.values()}) == 1,
        )
    )
