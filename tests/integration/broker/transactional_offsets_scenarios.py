"""What the tests of groups beside Apache Kafka ask about offsets within transactions.

Here: one transactional producer, and its commits as scenarios.
Not here: offsets without transactions (`offsets_scenarios`), members (`groups_scenarios`), the comparison
(`groups_probe`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.integration.broker.groups_probe import DEADLINE_S, Peer, Run

from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import (
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from busway_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NOT_YET = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""What a client asks again after, as it depends on the moment."""


class Producer:
    """A transactional producer; its epoch follows the answers."""

    def __init__(self, run: Run, transactional_id: str) -> None:
        self.run = run
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1

    async def init(self, label: str = "init") -> None:
        """InitProducerId, once there is a coordinator."""
        find_coordinator = FindCoordinatorRequest(coordinator_keys=[self.transactional_id], key_type=1)
        await self._until(
            lambda: self.run.admin.request(find_coordinator), lambda answer: answer.coordinators[0].error_code
        )
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answer = await self._until(lambda: self.run.admin.request(request, at_most=5), lambda answer: answer.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.run.note(f"{self.transactional_id}: {label}", (ErrorCode(answer.error_code).name, self.epoch))

    async def add(self, group_id: str, label: str = "add") -> None:
        """AddOffsetsToTxn, once the transaction before is over."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        answer = await self._until(lambda: self.run.admin.request(request), lambda answer: answer.error_code)
        self.run.note(f"{self.transactional_id}: {label}", answer)

    async def commit(
        self,
        group_id: str,
        label: str = "commit",
        version: int = 5,
        *,
        topic: str = "read",
        partitions: Sequence[int] = (0,),
        offset: int = 11,
        metadata: str | None = "t",
        member: Peer | None = None,
        epoch: int | None = None,
        transactional_id: str | None = None,
        producer_id: int | None = None,
    ) -> None:
        """TxnOffsetCommit."""
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id or self.transactional_id,
            group_id=group_id,
            producer_id=producer_id or self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=number, committed_offset=offset, committed_metadata=metadata
                        )
                        for number in partitions
                    ],
                )
            ],
        )
        if member is not None:
            request.member_id, request.generation_id = member.member_id, member.generation
            request.group_instance_id = member.instance_id
        answer = await self._until(
            lambda: self.run.admin.request(request, at_most=version),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        self.run.note(f"{self.transactional_id}: {label}", answer)

    async def end(self, label: str = "end", version: int = 5, *, committed: bool = True) -> None:
        """EndTxn."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer = await self._until(
            lambda: self.run.admin.request(request, at_most=version), lambda answer: answer.error_code
        )
        if version >= 5 and not answer.error_code:
            assert answer.producer_id == self.producer_id
            self.epoch = answer.producer_epoch
        self.run.note(f"{self.transactional_id}: {label}", (ErrorCode(answer.error_code).name, self.epoch))

    async def _until(self, ask: Callable[[], Awaitable[Any]], code: Callable[[Any], int]) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await ask()
                if code(answer) not in NOT_YET:
                    return answer


async def settled(run: Run, group_id: str) -> None:
    """Return when nothing of the group is undecided: the end of a transaction is answered before all of its markers are written."""
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1]) for name in ("read", "left")]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)], require_stable=True
    )
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await run.admin.request(request, at_most=9)
            if not any(
                partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
                for topic in answer.groups[0].topics
                for partition in topic.partitions
            ):
                return


async def fetch(run: Run, group_id: str, moment: str) -> None:
    """OffsetFetch of some partitions and of all, stable and not, in the versions that differ."""
    numbers = [0, 1, 9]
    for stable in (False, True):
        for topics in ([OffsetFetchRequestTopic(name="read", partition_indexes=numbers)], None):
            what = f"{'all' if topics is None else 'some'} {'stable' if stable else 'any'} {moment}"
            request = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=stable)
            for version in (7,) if stable else (2, 6, 7):
                await run.ask(f"fetch v{version} {what}", request, at_most=version)
        for grouped in ([OffsetFetchRequestTopics(name="read", partition_indexes=numbers)], None):
            what = f"{'all' if grouped is None else 'some'} {'stable' if stable else 'any'} {moment}"
            asked = OffsetFetchRequestGroup(group_id=group_id, topics=grouped)
            for version in (8, 9):
                request = OffsetFetchRequest(groups=[asked], require_stable=stable)
                await run.ask(f"fetch v{version} {what}", request, at_most=version)


async def offsets_within_transactions(run: Run) -> None:
    """Pending, then in force or forgotten; a later commit without a transaction counts, and takes nothing from what is undecided."""
    peer = await run.peer("a", "within")
    producer = Producer(run, "within")
    await producer.init()
    for committed in (False, True):
        end = "committed" if committed else "aborted"
        await producer.commit("within", f"to be {end}", partitions=[0, 1], offset=20)
        await fetch(run, "within", f"while it is to be {end}")
        await peer.describe(f"while it is to be {end}")
        await producer.end(f"is {end}", committed=committed)
        await settled(run, "within")
        await fetch(run, "within", f"when it is {end}")
    await producer.commit("within", "then a plain one", partitions=[0, 1], offset=30)
    await peer.commit("over it")
    await fetch(run, "within", "with a plain one over it")
    await producer.end("with a plain one over it")
    await settled(run, "within")
    await fetch(run, "within", "in the end")
    await producer.end("with nothing to end")


async def versions_of_txn_offset_commit(run: Run) -> None:
    """Each version within a transaction that the group was added to, and those that ask whether it was where it was not."""
    producer = Producer(run, "versions")
    for version in range(6):
        await producer.init(f"init for v{version}")
        if version < 5:
            await producer.commit("versions", f"v{version} not added", version)
            await producer.add("versions", f"add for v{version}")
        await producer.commit("versions", f"v{version}", version, partitions=[0, 1], offset=version)
        await producer.end(f"end v{version}", version=min(version, 4))
        await settled(run, "versions")
        await fetch(run, "versions", f"after v{version}")


async def refused_within_transactions(run: Run) -> None:
    """Partitions that are not there, text that is too long, other producers, epochs that are over or not yet begun."""
    producer = Producer(run, "refused")
    await producer.init()
    await producer.init("init again")
    await producer.commit("refused", "no such topic", topic="missing")
    await producer.commit("refused", "no such partition", partitions=[0, 9])
    await producer.commit("refused", "too much text", metadata="x" * 5_000)
    await producer.commit("refused", "no text", metadata=None)
    await producer.commit("", "no group")
    for version in (2, 4, 5):
        await producer.commit("refused", f"old epoch v{version}", version, epoch=producer.epoch - 1)
        await producer.commit("refused", f"epoch to come v{version}", version, epoch=producer.epoch + 1)
        await producer.commit("refused", f"another producer v{version}", version, producer_id=987_654)
        await producer.commit("refused", f"another transaction v{version}", version, transactional_id="no such")
    member = Peer(run, "a", "refused", run.admin)
    member.member_id, member.generation = "a", 3
    await producer.commit("refused", "a member of an empty group", member=member)
    await producer.commit("no such group", "a member of no group", member=member)
    await producer.end(committed=False)
    await settled(run, "refused")
    await fetch(run, "refused", "after all")


async def members_within_transactions(run: Run) -> None:
    """Members of this generation commit, others are fenced (KIP-447); a client that names no member is believed."""
    lead = await run.peer("lead", "members-txn")
    await lead.enter()
    producer = Producer(run, "members")
    await producer.init()
    await producer.commit("members-txn", "before the sync", member=lead)
    await lead.sync([(lead.member_id, b"1")])
    await producer.commit("members-txn", "by the member", member=lead)
    await producer.commit("members-txn", "by nobody")
    for label, member_id, generation, instance_id in (
        ("an earlier generation", lead.member_id, lead.generation - 1, None),
        ("a later generation", lead.member_id, lead.generation + 1, None),
        ("no generation", lead.member_id, -1, None),
        ("a stranger", "stranger", lead.generation, None),
        ("an instance", lead.member_id, lead.generation, "seat"),
        ("an instance alone", "", -1, "seat"),
    ):
        peer = Peer(run, "b", "members-txn", run.admin)
        peer.member_id, peer.generation, peer.instance_id = member_id, generation, instance_id
        await producer.commit("members-txn", label, member=peer)
    await producer.end()
    await settled(run, "members-txn")
    await fetch(run, "members-txn", "in the end")
    await lead.leave()


async def deleted_within_transactions(run: Run) -> None:
    """Offsets and groups that are deleted take along what is pending; the transaction goes on."""
    peer = await run.peer("a", "deleted-txn")
    producer = Producer(run, "deleted")
    await producer.init()
    await peer.commit()
    await producer.commit("deleted-txn", partitions=[0, 1])
    topic = OffsetDeleteRequestTopic(name="read", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    await run.ask("delete an offset", OffsetDeleteRequest(group_id="deleted-txn", topics=[topic]))
    await fetch(run, "deleted-txn", "with one deleted")
    await producer.end()
    await settled(run, "deleted-txn")
    await fetch(run, "deleted-txn", "after the end")
    await producer.commit("deleted-txn", "again", partitions=[0, 1], offset=40)
    await run.ask("delete the group", DeleteGroupsRequest(groups_names=["deleted-txn"]))
    await peer.describe("deleted")
    await fetch(run, "deleted-txn", "without a group")
    await producer.end("end of the deleted")
    await settled(run, "deleted-txn")
    await fetch(run, "deleted-txn", "without a group, after the end")
    await peer.describe("after the end")


SCENARIOS = [
    offsets_within_transactions,
    versions_of_txn_offset_commit,
    refused_within_transactions,
    members_within_transactions,
    deleted_within_transactions,
]
