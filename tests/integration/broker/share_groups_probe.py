"""What the tests of share groups ask: members by heartbeats, and the groups' offsets.

Here: a run with such requests in few words, and scenarios with several of them.
Not here: the comparison (`answers`).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.integration.broker.groups_probe import DEADLINE_S, Run
from tests.integration.broker.share_states_probe import NOT_YET
from tests.integration.broker.share_states_probe import SETTINGS as STATES

from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import DeleteGroupsRequest, ListGroupsRequest
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from busway_protocol.records.builder import BatchBuilder

SETTINGS: Final = {**STATES, "group.share.assignment.interval.ms": "0", "group.share.max.size": "3"}


class SharesRun(Run):
    """A run against one broker. Partitions that a member has are compared by their number where that is all that is decided."""

    def _plain(self, value: Any, field: str = "") -> Any:
        if field.endswith("error_code"):
            return ErrorCode(value).name
        if field == "client_host":
            return bool(value)
        if field == "subscribed_topic_names" and value is not None:
            return sorted(value)
        return super()._plain(value, field)

    async def heartbeat(
        self,
        label: str,
        member: str,
        epoch: int,
        topics: Sequence[str] | None = None,
        *,
        group: str = "g",
        rack: str | None = None,
    ) -> Any:
        """ShareGroupHeartbeat, logged unless it has no label."""
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        answer = await self.admin.request(request)
        if label:
            self.note(label, answer)
        return answer

    async def until_assigned(self, member: str, epoch: int, count: int, *, group: str = "g") -> int:
        """Send heartbeats until the member has so many partitions; its epoch then. The answers on the way depend on the moment."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.heartbeat("", member, epoch, group=group)
                assert answer.error_code == 0, answer
                epoch = answer.member_epoch
                described = await self.members(group)
                if sum(len(topic.partitions) for topic in described[member].assignment.topic_partitions) == count:
                    return epoch
                await asyncio.sleep(0.02)

    async def members(self, group: str) -> dict[str, Any]:
        """The members of a group by their ids."""
        answer = await self.admin.request(
            ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        )
        return {member.member_id: member for member in answer.groups[0].members}

    async def described(self, label: str, *groups: str, operations: bool = False) -> Any:
        """ShareGroupDescribe."""
        request = ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=operations)
        return await self.ask(label, request)

    async def offsets(self, label: str, group: str = "g", topics: dict[str, list[int]] | None = None) -> Any:
        """DescribeShareGroupOffsets."""
        wanted = None
        if topics is not None:
            wanted = [
                DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
                for name, numbers in topics.items()
            ]
        group_request = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted)
        return await self.ask(label, DescribeShareGroupOffsetsRequest(groups=[group_request]))

    async def alter(self, label: str, offsets: dict[str, dict[int, int]], group: str = "g") -> Any:
        """AlterShareGroupOffsets."""
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=start)
                    for number, start in starts.items()
                ],
            )
            for name, starts in offsets.items()
        ]
        return await self.ask(label, AlterShareGroupOffsetsRequest(group_id=group, topics=topics))

    async def forget(self, label: str, *topics: str, group: str = "g") -> Any:
        """DeleteShareGroupOffsets."""
        named = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
        return await self.ask(label, DeleteShareGroupOffsetsRequest(group_id=group, topics=named))

    async def delete(self, label: str, *groups: str) -> None:
        """DeleteGroups; while the share coordinator is not there yet it is asked again."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.admin.request(DeleteGroupsRequest(groups_names=list(groups)))
                if not {row.error_code for row in answer.results} & NOT_YET:
                    break
        self.note(label, answer)

    async def listed(self, label: str, types: Sequence[str] = ("share",), states: Sequence[str] = ()) -> None:
        """ListGroups."""
        await self.ask(label, ListGroupsRequest(states_filter=list(states), types_filter=list(types)))

    async def produce(self, topic: str, count: int) -> None:
        """Records in partition 0."""
        builder = BatchBuilder()
        for at in range(count):
            builder.append(1_000 + at, None, b"x")
        data = PartitionProduceData(index=0, records=builder.build())
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=9_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = await self.admin.request(request, at_most=9)
        assert answer.responses[0].partition_responses[0].error_code == 0


@asynccontextmanager
async def shares_against(bootstrap_servers: str) -> AsyncIterator[SharesRun]:
    """A run that is over with the block."""
    host, _, port = bootstrap_servers.rpartition(":")
    run = SharesRun(host, int(port))
    try:
        yield run
    finally:
        run.close()


async def members(run: SharesRun) -> None:
    """Joining, staying, changing, leaving, and what is refused."""
    await run.prepare()
    await run.heartbeat("01 no group", "m1", 1)
    await run.heartbeat("02 no topics", "m1", 0)
    await run.heartbeat("03 no topics in the list", "m1", 0, [])
    await run.heartbeat("04 no member id", "", 0, ["read"])
    await run.heartbeat("05 a long member id", "x" * 37, 0, ["read"])
    await run.heartbeat("06 no group id", "m1", 0, ["read"], group="")
    await run.heartbeat("07 an epoch that is none", "m1", -2, ["read"])
    await run.heartbeat("08 leave a group that is not there", "m1", -1)
    await run.heartbeat("09 an empty rack", "m1", 0, ["read"], rack="")
    answer = await run.heartbeat("10 join", "m1", 0, ["read"])
    epoch = await run.until_assigned("m1", answer.member_epoch, 2)
    await run.heartbeat("11 stay", "m1", epoch)
    await run.heartbeat("12 all of it again", "m1", epoch, ["read"])
    await run.described("13 described", "g", "none", "", operations=True)
    await run.listed("14 listed")
    await run.listed("15 of this state", states=["stable"])
    await run.listed("16 of another state", states=["Empty"])
    await run.heartbeat("17 unknown member", "m9", 3)
    await run.heartbeat("18 a later epoch", "m1", epoch + 1)
    answer = await run.heartbeat("", "m1", epoch - 1)  # here it is assigned its partitions again
    run.note("19 the epoch before", [answer.error_code, answer.member_epoch])
    await run.heartbeat("20 join again", "m1", 0, ["read"])
    await run.heartbeat("21 leave an unknown member", "m9", -1)
    answer = await run.heartbeat("", "m2", 0, ["read"], rack="r")
    run.note(
        "22 a second one, whichever partition it has",
        [len(topic.partitions) for topic in answer.assignment.topic_partitions],
    )
    second = await run.until_assigned("m2", answer.member_epoch, 1)
    epoch = await run.until_assigned("m1", epoch, 1)
    await run.heartbeat("23 both stay", "m2", second)
    await run.heartbeat("24 a third one", "m3", 0, ["left"])
    await run.heartbeat("25 a fourth one is too many", "m4", 0, ["left"])
    await run.delete("26 cannot be deleted", "g")
    await run.heartbeat("27 leave", "m3", -1)
    await run.heartbeat("28 leave", "m2", -1)
    epoch = await run.until_assigned("m1", epoch, 2)
    await run.heartbeat("29 a topic that is not there", "m1", epoch, ["missing"])
    await run.heartbeat("30 leave", "m1", -1)
    await run.described("31 empty", "g")
    await run.listed("32 listed")
    await run.delete("33 delete", "g")
    await run.described("34 gone", "g")
    await run.delete("35 delete again", "g")


async def offsets(run: SharesRun) -> None:
    """Offsets that are described, set and deleted, and what is refused."""
    await run.prepare()
    await run.produce("read", 7)
    await run.offsets("01 no group", "none")
    await run.offsets("02 no group, a topic", "none", {"read": [0, 1], "missing": [0]})
    await run.offsets("03 nothing asked for", "none", {})
    await run.alter("04 set, and make the group", {"read": {0: 3, 9: 1}, "missing": {0: 1}}, "o")
    await run.offsets("05 set", "o", {"read": [0, 1]})
    await run.offsets("06 all that is set", "o")
    await run.described("07 described", "o")
    await run.listed("08 listed")
    await run.alter("09 set again", {"read": {0: 5, 1: 0}}, "o")
    await run.offsets("10 set again", "o")
    await run.forget("11 forget", "read", "left", "missing", group="o")
    await run.offsets("12 forgotten", "o", {"read": [0]})
    await run.offsets("13 nothing is left", "o")
    await run.forget("14 no group", "read", group="none")
    await run.forget("15 no name", "read", group="")
    await run.alter("16 no name", {"read": {0: 1}}, "")
    answer = await run.heartbeat("17 join", "m1", 0, ["read"], group="o")
    await run.until_assigned("m1", answer.member_epoch, 2, group="o")
    await run.offsets("18 begun", "o")
    await run.alter("19 it has members", {"read": {0: 1}}, "o")
    await run.forget("20 it has members", "read", group="o")
    await run.heartbeat("21 leave", "m1", -1, group="o")
    await run.alter("22 set", {"read": {0: 6}}, "o")
    await run.offsets("23 set", "o")
    await run.delete("24 delete", "o")
    await run.offsets("25 gone", "o", {"read": [0]})


SCENARIOS = [members, offsets]
