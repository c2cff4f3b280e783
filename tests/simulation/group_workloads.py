"""Members of a group, and one who looks at what it has committed.

What lives here: joining, reading, committing, also in the name of a generation that is over. What does not: records and topics.
"""

from collections.abc import Mapping
from typing import Any, Final

import busway
from busway.errors import BuswayError
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.history import Commit, Committed, Outcome, Ownership, Partition, Revoked
from tests.simulation.workloads import Client, ask_end, poll

GROUP: Final = "group"
_STALE: Final = 0.4
"""How often a member that has joined commits something in the name of the generation before."""
_COMMIT_VERSION: Final = 8


class Listener(busway.RebalanceListener):
    """Tells the history what a member owns."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.consumer: busway.Consumer | None = None
        self.joined = 0
        """Generations that were joined."""

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Note all that is owned now."""
        assert self.consumer is not None
        membership = _membership(self.consumer)
        self.joined += 1
        self._client.history.note(
            Ownership(
                process=self._client.process,
                group=GROUP,
                member=membership.member_id,
                generation=membership.generation,
                owned=_partitions(self.consumer.assignment()),
                new=_partitions(assigned),
            )
        )

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Note what is given up."""
        self._client.history.note(Revoked(process=self._client.process, group=GROUP, partitions=_partitions(revoked)))

    async def on_partitions_lost(self, lost: Any) -> None:
        """Note what is gone."""
        await self.on_partitions_revoked(lost)


def _partitions(partitions: Any) -> frozenset[Partition]:
    return frozenset(Partition(*partition) for partition in partitions)


def _membership(consumer: busway.Consumer) -> Any:
    assert consumer._group is not None
    return consumer._group.membership


async def take_part(client: Client) -> None:
    """Be a member until the group has read everything; one that leaves comes back as another."""
    left = client.plan.operations
    leaves_at = left // 2 if client.option("leaves") else -1
    while True:
        listener = Listener(client)
        auto = client.option("auto", False)
        consumer = busway.Consumer(
            client.plan.topic,
            bootstrap_servers=client.stage.bootstrap,
            client_id=client.begin_life(),
            group_id=GROUP,
            listener=listener,
            auto_offset_reset="earliest",
            enable_auto_commit=auto,
            auto_commit_interval_ms=700,
            session_timeout_ms=client.option("session_ms", 10_000),
            heartbeat_interval_ms=1_000,
            request_timeout_ms=5_000,
            partition_assignment_strategy=("cooperative-sticky", "range")
            if client.option("strategy") == "cooperative-sticky"
            else ("range",),
        )
        listener.consumer = consumer
        await client.persist(consumer.start)
        _record_commits(client, consumer)
        joined, handled = 0, dict[busway.TopicPartition, int]()
        try:
            while not client.stage.drained.is_set():
                records = await poll(client, consumer, group=GROUP, limit=client.chance.choice([1, 5, 100]))
                if listener.joined > joined:
                    joined = listener.joined
                    if client.chance.random() < _STALE:
                        await _commit_stale(client, consumer)
                handled.update((partition, found[-1].offset + 1) for partition, found in records.items())
                if not auto:
                    handled = await _commit(consumer, handled)
                left -= 1
                if left == leaves_at:
                    break
                await client.pause()
            else:
                return
        finally:
            await consumer.stop()


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
                    group=GROUP,
                    partition=Partition(*partition),
                    offset=found.offset,
                    member=membership.member_id,
                )
            )
            for partition, found in wanted.items()
        ]
        try:
            await commit(wanted)
        except BaseException as problem:
            for one in noted:
                client.history.end(one, Outcome.INFO, repr(problem))
            raise
        for one in noted:
            if membership.generation == generation:
                one.generation = generation
            client.history.end(one)

    offsets.commit = recorded  # type: ignore[method-assign]


async def _commit(
    consumer: busway.Consumer, handled: Mapping[busway.TopicPartition, int]
) -> dict[busway.TopicPartition, int]:
    """Commit; answers what is left for the next time, since the group has moved on. What is read again by then is not."""
    mine = {partition: offset for partition, offset in handled.items() if (consumer.place(partition) or -1) >= offset}
    try:
        if mine:
            await consumer.commit(mine)
    except BuswayError:
        return mine  # it is in the history
    return {}


async def _commit_stale(client: Client, consumer: busway.Consumer) -> None:
    """Commit in the name of the generation before, as a member does that has not heard of this one."""
    membership = _membership(consumer)
    assert consumer._group is not None
    partition = client.partition()
    commit = Commit(
        process=client.process,
        group=GROUP,
        partition=partition,
        offset=0,
        member=membership.member_id,
        generation=membership.generation - 1,
    )
    if commit.generation < 1:
        return
    client.history.begin(commit)
    try:
        answer = await consumer._group._coordinator.ask(
            OffsetCommitRequest(
                group_id=GROUP,
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
        group_id=GROUP,
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
    operation = client.history.begin(Committed(process=client.process, group=GROUP, partition=partition))
    try:
        found = await consumer.committed(busway.TopicPartition(*partition))
    except BuswayError as problem:
        client.history.end(operation, Outcome.INFO, problem)
        return None
    operation.offset = found.offset if found is not None else None
    client.history.end(operation)
    return operation.offset
