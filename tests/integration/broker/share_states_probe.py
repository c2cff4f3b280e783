"""What the tests of share groups' state ask, as one broker asks another.

Here: a run that writes such requests in few words, and waits for the coordinator.
Not here: the comparison (`answers`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.integration.broker.groups_probe import DEADLINE_S, Run

from busway import Admin
from busway_bus.metadata import features
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteStateData,
    DeleteStatePartition,
    InitializeShareGroupStateRequest,
    InitializeStateData,
    InitializeStatePartition,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ReadStateData,
    ReadStatePartition,
    ReadStateSummaryData,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
    WriteStatePartition,
)

SETTINGS: Final = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
NOT_YET: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
Batch = tuple[int, int, int, int]


async def without_share_groups(bootstrap_servers: str) -> None:
    """Turn `share.version` off."""
    async with Admin(bootstrap_servers) as admin:
        await admin.update_features({features.SHARE_VERSION: 0}, downgrade=True)


class StatesRun(Run):
    """A run against one broker."""

    async def ready(self, *groups: str) -> None:
        """The topics, and the coordinators of their partitions."""
        await self.prepare()
        for group in groups:
            for number in range(2):
                await self.again(
                    lambda group=group, number=number: self.coordinator_error(f"{group}:{self.text_id()}:{number}")
                )  # type: ignore[misc]
                await self.again(lambda group=group, number=number: self.summed(group, number))  # type: ignore[misc]

    def text_id(self, topic: str = "read") -> str:
        """A topic's id as Kafka prints it."""
        from busway_bus.log.checkpoints import uuid_text

        return uuid_text(self.topic_ids[topic])

    async def coordinator_error(self, key: str) -> int:
        """Return the error code of a look-up of the coordinator."""
        answer = await self.admin.request(FindCoordinatorRequest(coordinator_keys=[key], key_type=2))
        code: int = answer.coordinators[0].error_code
        return code

    async def summed(self, group: str, number: int) -> int:
        """Whether it answers."""
        answer = await self.admin.request(self.summary_of(group, number))
        code: int = answer.results[0].partitions[0].error_code
        return code

    async def again(self, ask: Callable[[], Any]) -> None:
        """Ask until the answer does not depend on the moment."""
        async with asyncio.timeout(DEADLINE_S):
            while await ask() in NOT_YET:
                await asyncio.sleep(0.01)

    def summary_of(self, group: str, number: int, topic: str = "read") -> ReadShareGroupStateSummaryRequest:
        """The request."""
        partition = ReadStatePartition(partition=number, leader_epoch=-1)
        data = ReadStateSummaryData(topic_id=self.topic_ids[topic], partitions=[partition])
        return ReadShareGroupStateSummaryRequest(group_id=group, topics=[data])

    async def begin(
        self, label: str, group: str, *, epoch: int = 0, start: int = -1, number: int = 0, topic: str = "read"
    ) -> None:
        """InitializeShareGroupState."""
        partition = InitializeStatePartition(partition=number, state_epoch=epoch, start_offset=start)
        data = InitializeStateData(topic_id=self.topic_ids[topic], partitions=[partition])
        await self.ask(label, InitializeShareGroupStateRequest(group_id=group, topics=[data]))

    async def read(self, label: str, group: str, *, leader: int = -1, number: int = 0, topic: str = "read") -> Any:
        """ReadShareGroupState."""
        partition = ReadStatePartition(partition=number, leader_epoch=leader)
        data = ReadStateData(topic_id=self.topic_ids[topic], partitions=[partition])
        return await self.ask(label, ReadShareGroupStateRequest(group_id=group, topics=[data]))

    async def write(
        self,
        label: str,
        group: str,
        batches: Sequence[Batch] = (),
        *,
        epoch: int = 0,
        leader: int = 0,
        start: int = -1,
        complete: int = -1,
        number: int = 0,
        topic: str = "read",
    ) -> None:
        """WriteShareGroupState."""
        partition = WriteStatePartition(
            partition=number,
            state_epoch=epoch,
            leader_epoch=leader,
            start_offset=start,
            delivery_complete_count=complete,
            state_batches=[
                StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        data = WriteStateData(topic_id=self.topic_ids[topic], partitions=[partition])
        await self.ask(label, WriteShareGroupStateRequest(group_id=group, topics=[data]))

    async def summary(self, label: str, group: str, number: int = 0, topic: str = "read") -> None:
        """ReadShareGroupStateSummary."""
        await self.ask(label, self.summary_of(group, number, topic))

    async def delete(self, label: str, group: str, number: int = 0, topic: str = "read") -> None:
        """DeleteShareGroupState."""
        data = DeleteStateData(topic_id=self.topic_ids[topic], partitions=[DeleteStatePartition(partition=number)])
        await self.ask(label, DeleteShareGroupStateRequest(group_id=group, topics=[data]))


@asynccontextmanager
async def states_against(bootstrap_servers: str) -> AsyncIterator[StatesRun]:
    """A run that is over with the block."""
    host, _, port = bootstrap_servers.rpartition(":")
    run = StatesRun(host, int(port))
    try:
        yield run
    finally:
        run.close()


async def life(run: StatesRun, group: str = "s") -> None:
    """Everything that may be asked, and refused."""
    unknown = "unknown"
    run.topic_ids[unknown] = type(run.topic_ids["read"])(int=77)
    await run.summary("01 before", group)
    await run.read("02 read before", group)
    await run.write("03 write before", group)
    await run.delete("04 delete before", group)
    await run.begin("05 begin", group, epoch=1)
    await run.summary("06 begun", group)
    await run.read("07 a leader reads", group, leader=2)
    await run.write("08 write", group, [(0, 4, 2, 1), (5, 9, 0, 1)], epoch=1, leader=2, start=0, complete=5)
    await run.write("09 over it", group, [(3, 6, 4, 2), (8, 8, 0, 2)], epoch=1, leader=2, complete=6)
    await run.read("10 merged", group, leader=2)
    for at in range(4):
        await run.write(f"11 more {at}", group, [(10 + at, 10 + at, 2, 1)], epoch=1, leader=2, start=at, complete=at)
    await run.read("12 moved", group, leader=2)
    await run.summary("13 summed up", group)
    await run.write("14 an old leader", group, leader=1, epoch=1)
    await run.write("15 an old epoch", group, leader=2, epoch=0)
    await run.read("16 an old leader reads", group, leader=1)
    await run.begin("17 begin with an old epoch", group, epoch=0)
    await run.begin("18 begin anew", group, epoch=2, start=7)
    await run.read("19 anew", group)
    await run.summary("20 summed up anew", group)
    await run.begin("21 no such partition", group, number=9)
    await run.summary("22 no such partition", group, 9)
    await run.begin("23 no such topic", group, topic=unknown)
    await run.delete("24 no such topic", group, topic=unknown)
    await run.begin("25 negative", group, number=-1)
    await run.delete("26 delete", group)
    await run.read("27 gone", group)
    await run.summary("28 gone", group)
    await run.begin("29 again", group, number=1, start=3)
    await run.summary("30 other partition", group, 1)
    await run.summary("31 no group", "")
