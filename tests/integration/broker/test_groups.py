"""What becomes of groups and offsets when the node restarts, topics go, the disk fails or a log is damaged."""

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.integration.broker.groups_probe import Run, run_against
from tests.support.patience import patient

from busway_bus.controller.topics import delete
from busway_bus.coordinator import loading
from busway_bus.coordinator.placement import partition_for
from busway_bus.groups.requests import Join
from busway_bus.groups.shard import GroupShard
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.log.os_files import OsFiles
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState

pytestmark = pytest.mark.slow
JOIN = Join(
    member_id="",
    instance_id=None,
    client_id="c",
    client_host="/127.0.0.1",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=(("range", b""),),
    needs_known_id=True,
    can_skip_assignment=True,
)


async def offset(run: Run, group_id: str, topic: str = "read") -> int:
    """The offset of partition 0."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=group_id, topics=[wanted])
    answer = await run.admin.request(OffsetFetchRequest(groups=[group]), at_most=9)
    assert answer.groups[0].error_code == ErrorCode.NONE
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


async def state(run: Run, group_id: str) -> str:
    """The state of a group."""
    answer = await run.admin.request(DescribeGroupsRequest(groups=[group_id]))
    return str(answer.groups[0].group_state)


async def drop(run: Run, topic: str) -> None:
    """Delete a topic."""
    answer = await run.admin.request(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5_000))
    assert answer.responses[0].error_code == ErrorCode.NONE


async def test_members_go_on_after_a_restart(cluster: LocalCluster) -> None:
    """Generation, assignment and offsets are read back; no member has to join again."""
    async with run_against(cluster.bootstrap_servers) as run:
        peer = await run.peer("a", "g")
        await peer.enter()
        await peer.sync([(peer.member_id, b"mine")])
        await peer.commit()
        member_id, generation = peer.member_id, peer.generation
    await cluster.stop()
    await cluster.start()
    async with run_against(cluster.bootstrap_servers) as run:
        back = await run.peer("a", "g")
        back.member_id, back.generation = member_id, generation
        assert (await back.heartbeat()).error_code == ErrorCode.NONE
        assert (await back.sync()).assignment == b"mine"
        assert await offset(run, "g") == 7
        back.generation += 1
        assert (await back.heartbeat()).error_code == ErrorCode.ILLEGAL_GENERATION


async def test_a_new_topic_of_the_same_name_begins_without_offsets(cluster: LocalCluster) -> None:
    """What was committed for the topic before it is not shown, neither at once nor after a restart."""
    async with run_against(cluster.bootstrap_servers) as run:
        peer = await run.peer("a", "g")
        await peer.commit()
        assert await offset(run, "g") == 7
        await drop(run, "read")
        assert await offset(run, "g") == -1
        again = CreatableTopic(name="read", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        await run.admin.request(CreateTopicsRequest(topics=[again], timeout_ms=5_000))
        assert await offset(run, "g") == -1
    await cluster.stop()
    await cluster.start()
    async with run_against(cluster.bootstrap_servers) as run:
        assert await offset(run, "g") == -1
        assert cluster.node is not None
        groups = cluster.node.services.groups
        assert groups.shard("g").offsets
        await groups.expire()
        assert groups.shard("g").offsets == {}, "the check removes what is not shown any more"
        await (await run.peer("a", "g")).commit()
        await groups.expire()
        assert await offset(run, "g") == 7


async def test_an_empty_group_goes_with_its_last_offset(cluster: LocalCluster) -> None:
    """The check that removes offsets removes the group too, for good; groups with members or offsets stay."""
    async with run_against(cluster.bootstrap_servers) as run:
        for group_id, topic in (("kept", "read"), ("gone", "left")):
            await (await run.peer("a", group_id)).commit(topic=topic)
        member = await run.peer("b", "members")
        await member.enter()
        await drop(run, "left")
        assert cluster.node is not None
        await cluster.node.services.groups.expire()
        states = [await state(run, group_id) for group_id in ("kept", "gone", "members")]
        assert states == ["Empty", "Dead", "CompletingRebalance"]
    await cluster.stop()
    await cluster.start()
    async with run_against(cluster.bootstrap_servers) as run:
        assert await state(run, "gone") == "Dead"
        assert await offset(run, "kept") == 7


async def test_nobody_is_left_without_an_answer_when_the_disk_fails(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Assignments and offsets that are not on disk are not confirmed: clients have to look for the coordinator."""
    async with run_against(cluster.bootstrap_servers) as run:
        peer = await run.peer("a", "g")
        await peer.enter()
        await peer.sync([(peer.member_id, b"x")])
        await peer.join("the leader again")

        def fail(descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fdatasync", fail)
        monkeypatch.setattr(os, "fsync", fail)
        with caplog.at_level(logging.CRITICAL):
            assert (await peer.sync([(peer.member_id, b"x")])).error_code == ErrorCode.NOT_COORDINATOR
            answer = await (await run.peer("b", "other")).commit()
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        monkeypatch.undo()
        assert cluster.node is not None
        assert cluster.node.failed.is_set()


async def test_a_damaged_log_of_groups_takes_only_its_groups_along(caplog: pytest.LogCaptureFixture) -> None:
    """The node starts, says which log is damaged, refuses its groups and serves the others."""
    async with LocalCluster(properties={"offsets.topic.num.partitions": "50"}) as cluster:
        async with run_against(cluster.bootstrap_servers) as run:
            for group_id in ("g", "other"):
                await (await run.peer("a", group_id)).commit()
        await cluster.stop()
        damaged = [
            path
            for path in Path(cluster.data_dir).glob("__consumer_offsets-*/*.log")
            if b"\0\1g\0\4read" in path.read_bytes()
        ]
        assert len(damaged) == 1
        data = bytearray(damaged[0].read_bytes())
        data[-1] ^= 1
        damaged[0].write_bytes(data)
        with caplog.at_level(logging.ERROR):
            await cluster.start()
        assert [record.message for record in caplog.records if damaged[0].parent.name in record.message]
        async with run_against(cluster.bootstrap_servers, "other") as run:
            assert await offset(run, "other") == 7
            answer = await (await run.peer("a", "g")).commit()
            assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("refused", ["open", "read"])
async def test_groups_whose_log_was_refused_are_served_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: str
) -> None:
    """The operating system opens or reads the partition no more, and later does: no restart is needed, and each is logged once."""
    async with LocalCluster() as cluster:
        async with run_against(cluster.bootstrap_servers) as run:
            await (await run.peer("a", "g")).commit()
        await cluster.stop()
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
            if refused == "open":
                patch.setattr(OsFiles, "_opened", refusing(OsFiles._opened))
            else:
                patch.setattr(loading, "latest_records", refusing(loading.latest_records))
            await cluster.start()
            assert cluster.node is not None
            groups = cluster.node.services.groups
            await groups.runtime.wait_loaded(within_s=patient(5))
            for _ in range(2):
                await cluster.node._reopen()
                await groups.runtime.wait_loaded(within_s=patient(5))
                with pytest.raises(KafkaError) as refusal:
                    groups.shard("g")
                assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            reason = "is offline" if refused == "open" else "is not served"
            assert sum(reason in line and "__consumer_offsets" in line for line in caplog.text.splitlines()) == 1
        await cluster.node._reopen()
        await groups.runtime.wait_loaded(within_s=patient(5))
        async with run_against(cluster.bootstrap_servers) as run:
            assert await offset(run, "g") == 7


def refusing(do: Callable[..., Any]) -> Callable[..., Any]:
    """Does it, but for files and partitions of the offsets topic."""

    def refuse(by: object, what: object, *more: object) -> Any:
        if isinstance(by, GroupShard) or str(what).startswith("__consumer_offsets-0/"):
            raise OSError(24, "Too many open files")
        return do(by, what, *more)

    return refuse


async def test_expiry_leaves_the_groups_of_a_topic_made_anew_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic goes and comes while what has expired in its first partition is on its way to the disk: what the second one held
    before does not count any more."""
    async with LocalCluster(properties={"offsets.topic.num.partitions": "2"}) as cluster:
        assert cluster.node is not None
        node = cluster.node.services
        groups = node.groups
        await groups.ensure()
        assert [partition_for(group_id, 2) for group_id in ("b", "a")] == [0, 1]
        for number, group_id in enumerate(("b", "a")):
            create = functools.partial(GroupShard.create, group_id=group_id, request=JOIN, now=0)
            await groups.runtime.write(number, create)
        write = groups.runtime.write

        async def meanwhile(number: int, operation: Callable[[GroupShard], Decision[None]]) -> None:
            monkeypatch.undo()
            await write(number, operation)
            await node.metadata.run(lambda image: delete(image, OFFSETS_TOPIC))
            async with run_against(cluster.bootstrap_servers, "a") as run:
                await (await run.peer("a", "a")).commit()

        monkeypatch.setattr(groups.runtime, "write", meanwhile)
        await groups.expire()
        assert groups.group("a") is not None


async def test_a_commit_says_how_long_it_is_kept(cluster: LocalCluster) -> None:
    """retention_time_ms of versions 2 to 4; one that is over at once is gone at the next check, one without stays."""
    async with run_against(cluster.bootstrap_servers) as run:
        for group_id, retention_ms in (("kept", -1), ("gone", 0)):
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
            topic = OffsetCommitRequestTopic(name="read", partitions=[partition])
            request = OffsetCommitRequest(
                group_id=group_id, member_id="", topics=[topic], retention_time_ms=retention_ms
            )
            answer = await run.admin.request(request, at_most=4)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert cluster.node is not None
        await cluster.node.services.groups.expire()
        assert [await offset(run, group_id) for group_id in ("kept", "gone")] == [7, -1]


async def test_topics_that_are_not_there_come_last_in_offset_fetch() -> None:
    """By id; as in Kafka, whose tools read the rows in order."""
    async with LocalCluster() as cluster, run_against(cluster.bootstrap_servers) as run:
        known, unknown = run.topic_ids["read"], UUID(int=99)
        asked = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0]) for topic_id in (unknown, known)]
        group = OffsetFetchRequestGroup(group_id="g", topics=asked)
        answer = await run.admin.request(OffsetFetchRequest(groups=[group]))
        rows = [(row.topic_id, row.partitions[0].error_code) for row in answer.groups[0].topics]
        assert rows == [(known, ErrorCode.NONE), (unknown, ErrorCode.UNKNOWN_TOPIC_ID)]
