"""Members of a group, and one who looks at what it has committed.

Here: joining, reading, committing, also in the name of a generation that is over, in groups of both protocols: which
group, and which protocol a member speaks, are options of the client.
Not here: what only members of a group do that its coordinator balances (`modern_workloads`), records and topics.
"""

import asyncio
import functools
from collections.abc import Mapping
from typing import Any, Final

import busway
from busway.errors import BuswayError
from busway_bus.testing.sim_process import PROCESS
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.history import Commit, Committed, Outcome, Ownership, Partition, Revoked, Revoking
from tests.simulation.modern_workloads import (
    Given,
    commit_in_the_name,
    is_modern,
    record_beats,
    record_classic_beats,
    server_pattern,
)
from tests.simulation.workloads import Client, ask_end, poll

GROUP: Final = "group"
"""Of all members whose plan says nothing else."""
_STALE: Final = 0.4
"""How often a member that has joined commits something in the name of the generation before."""
_COMMIT_VERSION: Final = 8
_LINGERS_S: Final = 3.0
"""How long a member that lingers takes to end what it does with partitions that are taken."""


class Listener(busway.RebalanceListener):
    """Tells the history what a member owns."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.consumer: busway.Consumer | None = None
        self.joined = 0
        """Generations that were joined."""
        self.given = Given()
        self.vacates = asyncio.Event()
        """Set when the member has to leave at once, before it has given up what it was asked to."""
        client.owned = frozenset()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Note all that is owned now."""
        assert self.consumer is not None
        membership = _membership(self.consumer)
        self.joined += 1
        client, new = self._client, _partitions(assigned)
        client.owned = _partitions(self.consumer.assignment())
        self.given.taken(new, membership.member_id, membership.generation)
        client.history.note(
            Ownership(
                process=client.process,
                group=group_of(client),
                member=membership.member_id,
                generation=membership.generation,
                owned=client.owned,
                new=new,
                modern=is_modern(client),
                migrating=client.option("protocols") is not None,
            )
        )

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Note what is given up, now and then after a while: until then it is the member's."""
        client = self._client
        if client.option("vacates") and not self.vacates.is_set() and not client.stage.settled.is_set():
            client.history.begin(
                Revoking(process=client.process, group=group_of(client), partitions=_partitions(revoked))
            )
            self.vacates.set()
            await client.stage.drained.wait()  # or until the member leaves, which cancels this
        elif client.option("lingers") and not client.stage.settled.is_set():
            await asyncio.sleep(client.chance.uniform(0, _LINGERS_S))
        self._gone(_partitions(revoked))

    async def on_partitions_lost(self, lost: Any) -> None:
        """Note what is gone."""
        assert self.consumer is not None
        self.given.refused = getattr(self.consumer._group, "_heartbeat_error", None)
        self._gone(_partitions(lost))

    def _gone(self, partitions: frozenset[Partition]) -> None:
        self._client.owned -= partitions
        self.given.gave_up(partitions)
        revoked = Revoked(process=self._client.process, group=group_of(self._client), partitions=partitions)
        self._client.history.note(revoked)


def group_of(client: Client) -> str:
    """The group that it is a member of, or looks at."""
    group: str = client.option("group", GROUP)
    return group


def _partitions(partitions: Any) -> frozenset[Partition]:
    return frozenset(Partition(*partition) for partition in partitions)


def _membership(consumer: busway.Consumer) -> Any:
    assert consumer._group is not None
    return consumer._group.membership


async def take_part(client: Client) -> None:
    """Be a member until the group has read everything; one that leaves comes back as another."""
    left = client.plan.operations
    leaves_at = _leaves_at(client)
    if begins_s := client.option("begins_s"):
        await asyncio.sleep(begins_s)
    while True:
        client_id = client.begin_life()
        listener = Listener(client)
        auto = client.option("auto", False)
        pattern = server_pattern(client)
        consumer = busway.Consumer(
            *([] if is_modern(client) else [client.plan.topic]),
            bootstrap_servers=client.stage.bootstrap,
            client_id=client_id,
            group_id=group_of(client),
            listener=listener,
            auto_offset_reset="earliest",
            enable_auto_commit=auto,
            auto_commit_interval_ms=700,
            request_timeout_ms=5_000,
            group_instance_id=client.option("instance"),
            metadata_max_age_ms=client.option("metadata_ms", 300_000),
            **_protocol(client),
        )
        listener.consumer = consumer
        await client.persist(consumer.start)
        _record_commits(client, consumer)
        if is_modern(client):
            record_beats(client, consumer, group_of(client))
            topics = () if pattern else (client.plan.topic,)
            await client.persist(functools.partial(consumer.subscribe, topics, server_pattern=pattern))
        elif client.option("protocols"):
            record_classic_beats(client, consumer, group_of(client))
        client.member = PROCESS.get(), functools.partial(_membership, consumer)
        joined, handled = 0, dict[busway.TopicPartition, int]()
        try:
            while not client.stage.drained.is_set():
                records = await poll(client, consumer, group=group_of(client), limit=client.chance.choice([1, 5, 100]))
                if listener.joined > joined:
                    joined = listener.joined
                    if not (is_modern(client) or client.option("protocols")) and client.chance.random() < _STALE:
                        await _commit_stale(client, consumer)
                for membership, partition in listener.given.to_try(client, _membership(consumer).generation):
                    await commit_in_the_name(client, consumer, group_of(client), membership, partition)
                for gone in listener.given.take_gone():
                    handled.pop(busway.TopicPartition(*gone), None)
                handled.update(
                    (partition, partition_records[-1].offset + 1) for partition, partition_records in records.items()
                )
                if not auto:
                    handled = await _commit(consumer, handled)
                left -= 1
                if left in leaves_at or listener.vacates.is_set():
                    break
                await client.pause()
            else:
                return
        finally:
            client.member = None
            await consumer.stop()
        if listener.vacates.is_set():
            await asyncio.sleep(client.option("away_s", 0))


def _leaves_at(client: Client) -> set[int]:
    """After how many polls, counted down, it leaves, to come back as another: half way, or once for each protocol but the last."""
    operations, lives = (
        client.plan.operations,
        len(client.option("protocols", ())) or 1 + client.option("leaves", False),
    )
    return {operations * number // lives for number in range(1, lives)}


def _protocol(client: Client) -> dict[str, Any]:
    if is_modern(client):
        return {"group_protocol": "consumer", "group_remote_assignor": client.option("strategy")}
    cooperative = client.option("strategy" if client.option("protocols") is None else "classic") == "cooperative-sticky"
    return {
        "session_timeout_ms": client.option("session_ms", 10_000),
        "heartbeat_interval_ms": 1_000,
        "partition_assignment_strategy": ("cooperative-sticky", "range") if cooperative else ("range",),
    }


def _record_commits(client: Client, consumer: busway.Consumer) -> None:
    """Note every commit that the consumer makes, its own ones too."""
    assert consumer._group is not None
    offsets = consumer._group.offsets
    commit = offsets.commit

    async def recorded(wanted: Mapping[busway.TopicPartition, busway.OffsetAndMetadata]) -> None:
        membership = _membership(consumer)
        generation = membership.generation
        noted = [
            client.history.begin(
                Commit(
                    process=client.process,
                    group=group_of(client),
                    partition=Partition(*partition),
                    offset=position.offset,
                    member=membership.member_id,
                )
            )
            for partition, position in wanted.items()
        ]
        try:
            await commit(wanted)
        except BaseException as problem:
            for operation in noted:
                client.history.end(operation, Outcome.INFO, repr(problem))
            raise
        for operation in noted:
            if membership.generation == generation:
                operation.generation = generation
            client.history.end(operation)

    offsets.commit = recorded  # type: ignore[method-assign]


async def _commit(
    consumer: busway.Consumer, handled: Mapping[busway.TopicPartition, int]
) -> dict[busway.TopicPartition, int]:
    """Commit; answers what is left for the next time, since the group has moved on. What is read again by then is not."""
    still_at = {
        partition: offset
        for partition, offset in handled.items()
        if (consumer.known_position(partition) or -1) >= offset
    }
    try:
        if still_at:
            await consumer.commit(still_at)
    except BuswayError:
        return still_at  # it is in the history
    return {}


async def _commit_stale(client: Client, consumer: busway.Consumer) -> None:
    """Commit in the name of the generation before, as a member does that has not heard of this one."""
    membership = _membership(consumer)
    assert consumer._group is not None
    partition = client.partition()
    commit = Commit(
        process=client.process,
        group=group_of(client),
        partition=partition,
        offset=0,
        member=membership.member_id,
        generation=membership.generation - 1,
        tried=True,
    )
    if commit.generation < 1:
        return
    client.history.begin(commit)
    try:
        answer = await consumer._group._coordinator.ask(
            OffsetCommitRequest(
                group_id=group_of(client),
                generation_id_or_member_epoch=commit.generation,
                member_id=commit.member,
                group_instance_id=None,
                topics=[
                    OffsetCommitRequestTopic(
                        name=partition.topic,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition.number,
                                committed_offset=commit.offset,
                                committed_leader_epoch=-1,
                                committed_metadata="",
                            )
                        ],
                    )
                ],
            ),
            at_most=_COMMIT_VERSION,
        )
    except BuswayError as problem:
        client.history.end(commit, Outcome.INFO, problem)
        return
    code = error_for(answer.topics[0].partitions[0].error_code)
    if code is ErrorCode.NONE:
        client.history.end(commit)
    else:
        client.history.end(commit, Outcome.FAIL, code.name)


async def look(client: Client) -> None:
    """Ask what the group has committed, and where the partitions end."""
    consumer = busway.Consumer(
        bootstrap_servers=client.stage.bootstrap,
        client_id=client.begin_life(),
        group_id=group_of(client),
        enable_auto_commit=False,
        request_timeout_ms=5_000,
    )
    await client.persist(consumer.start)
    try:
        for _ in range(client.plan.operations):
            await client.pause()
            await ask_committed(client, consumer, client.partition())
            await ask_end(client, consumer, client.partition())
    finally:
        await consumer.stop()


async def ask_committed(client: Client, consumer: busway.Consumer, partition: Partition) -> int | None:
    """What the group has committed for a partition."""
    operation = client.history.begin(Committed(process=client.process, group=group_of(client), partition=partition))
    try:
        committed = await consumer.committed(busway.TopicPartition(*partition))
    except BuswayError as problem:
        client.history.end(operation, Outcome.INFO, problem)
        return None
    operation.offset = committed.offset if committed is not None else None
    client.history.end(operation)
    return operation.offset
