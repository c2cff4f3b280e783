"""A client that goes away: what it asked for is done all the same, what only waits for it ends, and the next start agrees."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.patience import patient
from tests.support.raw_client import RawClient, frame
from tests.support.waiting import until

from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.handlers.common.context import Peer
from busway_bus.log.os_files import OsFile
from busway_bus.server.connection import Connection
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    SyncGroupRequest,
)
from busway_protocol.messages.metadata import MetadataRequest
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from busway_protocol.records.builder import BatchBuilder

pytestmark = pytest.mark.usefixtures("both_streams")


class Disk:
    """Holds every sync back between `hold` and `release`."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.waiting = threading.Event()

    def pass_(self) -> None:
        """A sync comes by."""
        if not self._open.is_set():
            self.waiting.set()
            self._open.wait(patient(10))

    def hold(self) -> None:
        """From now on."""
        self.waiting.clear()
        self._open.clear()

    def release(self) -> None:
        """Let everything through."""
        self._open.set()


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    """One node that keeps all groups in one partition."""
    async with LocalCluster(properties={"offsets.topic.num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk of every node in this process."""
    gate, sync = Disk(), OsFile.sync

    def held(file: OsFile) -> None:
        gate.pass_()
        sync(file)

    monkeypatch.setattr(OsFile, "sync", held)
    yield gate
    gate.release()


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[Connection]":
    """The connections whose client is gone, as the broker notices it."""
    queue: asyncio.Queue[Connection] = asyncio.Queue()
    on_lost = Connection.lost

    def noticed(connection: Connection) -> None:
        on_lost(connection)
        queue.put_nowait(connection)

    monkeypatch.setattr(Connection, "lost", noticed)
    return queue


async def create(client: RawClient, *names: str) -> None:
    """Make topics of one partition."""
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    made = await client.ask(CreateTopicsRequest(topics=topics), 4)
    assert {topic.error_code for topic in made.topics} == {ErrorCode.NONE}


async def topics_of(client: RawClient) -> set[str]:
    """The topics that are served."""
    answer = await client.ask(MetadataRequest(topics=None), 9)
    return {topic.name or "" for topic in answer.topics if topic.error_code == ErrorCode.NONE}


def produced(topic: str) -> bytes:
    """A produce request of one record."""
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, b"value")
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=builder.build())])]
    return frame(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=data), 9)


async def join(client: RawClient, group: str) -> JoinGroupResponse:
    """Become the only member of a group."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="test",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
    )
    joined = await client.ask(request, 2)
    assert joined.error_code == ErrorCode.NONE
    return joined


async def members_of(client: RawClient, group: str) -> list[str]:
    """The ids of a group's members."""
    answer = await client.ask(DescribeGroupsRequest(groups=[group]), 0)
    return [member.member_id for member in answer.groups[0].members]


async def test_what_came_whole_before_the_client_left_is_done_in_order(
    cluster: LocalCluster, disk: Disk, lost: "asyncio.Queue[Connection]"
) -> None:
    """OffsetCommit, LeaveGroup, close: both are done although the commit still waited for the disk when the client left."""
    async with RawClient(cluster.bootstrap_servers) as other:
        await create(other, "t")
        leaving = RawClient(cluster.bootstrap_servers)
        async with leaving:
            await other.find_coordinator("g")
            member = await join(leaving, "g")
            topic = OffsetCommitRequestTopic(
                name="t",
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")],
            )
            # A generation of an own protocol need not be synced before its members are gone.
            commit = OffsetCommitRequest(group_id="g2", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
            leave = LeaveGroupRequest(
                group_id="g", members=[MemberIdentity(member_id=member.member_id, group_instance_id=None)]
            )
            disk.hold()
            leaving.send(produced("t") + frame(commit, 8) + frame(leave, 3))
            await asyncio.to_thread(disk.waiting.wait, patient(10))
        await asyncio.wait_for(lost.get(), patient(10))
        disk.release()

        async def gone() -> bool:
            return not await members_of(other, "g")

        await until(gone, pause_s=0)
        asked = OffsetFetchRequest(group_id="g2", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
        committed = await other.ask(asked, 5)
        assert committed.topics[0].partitions[0].committed_offset == 7


async def test_a_deletion_whose_client_left_is_a_deletion_for_the_next_start_too(
    tmp_path: Path, disk: Disk, lost: "asyncio.Queue[Connection]"
) -> None:
    """Before and after a restart the same topics are there, and deleting again finds nothing to delete."""
    async with LocalCluster(str(tmp_path)) as cluster:
        async with RawClient(cluster.bootstrap_servers) as other:
            await create(other, "gone", "kept")
            async with RawClient(cluster.bootstrap_servers) as leaving:
                disk.hold()
                leaving.send(frame(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1_000), 1))
                await asyncio.to_thread(disk.waiting.wait, patient(10))
            await asyncio.wait_for(lost.get(), patient(10))
            disk.release()

            async def deleted() -> bool:
                return "gone" not in await topics_of(other)

            await until(deleted, pause_s=0)
            assert "kept" in await topics_of(other)
        await cluster.stop()
        await cluster.start()
        async with RawClient(cluster.bootstrap_servers) as other:
            there = await topics_of(
                other
            )  # on its new port, a client of another test may look for its broker, and find this one
            assert ("kept" in there, "gone" in there) == (True, False)


async def test_a_poll_and_a_join_nobody_waits_for_end_and_what_is_behind_them_is_done(
    cluster: LocalCluster, lost: "asyncio.Queue[Connection]"
) -> None:
    """A fetch that would wait for minutes, and a join into a rebalance, do not hold back what their client sent behind them."""
    async with RawClient(cluster.bootstrap_servers) as other:
        await create(other, "t")
        await other.find_coordinator("g")
        async with RawClient(cluster.bootstrap_servers) as leaving:
            member = await join(other, "g")
            fetch = FetchRequest(
                max_wait_ms=300_000,
                min_bytes=1_000,
                max_bytes=1_000,
                session_epoch=-1,
                topics=[
                    FetchTopic(
                        topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)]
                    )
                ],
            )
            joining = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=300_000,
                member_id="",
                protocol_type="test",
                protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
            )
            leave = LeaveGroupRequest(
                group_id="g", members=[MemberIdentity(member_id=member.member_id, group_instance_id=None)]
            )
            leaving.send(frame(fetch, 11) + frame(joining, 2) + frame(leave, 3))
            await leaving.drained()
        await asyncio.wait_for(lost.get(), patient(10))

        # The vanished joiner stays for a grace; the member that was taken out is gone.
        async def only_the_joiner() -> bool:
            left = await members_of(other, "g")
            return len(left) == 1 and left != [member.member_id]

        await until(only_the_joiner, pause_s=0)


async def test_nothing_is_kept_of_ids_that_are_no_members_and_of_connections_that_the_broker_ended(
    cluster: LocalCluster, lost: "asyncio.Queue[Connection]"
) -> None:
    """A client that says many ids, or sends rubbish and connects again, takes no memory that grows."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await client.find_coordinator("g")
        member = await join(client, "g")
        connections = cluster.node.services.groups.connections
        stranger = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="stranger",
            protocol_type="test",
            protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
        )
        sync = SyncGroupRequest(group_id="h", generation_id=1, member_id="stranger", assignments=[])
        refused = await client.ask(stranger, 2)
        synced = await client.ask(sync, 0)
        assert {refused.error_code, synced.error_code} == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert [connections.carries((group, "stranger")) for group in ("g", "h")] == [False, False]
        assert connections.carries(("g", member.member_id))
        client.send(b"\xff\xff\xff\xff")
        await asyncio.wait_for(lost.get(), patient(10))
        assert not connections.carries(("g", member.member_id))


async def test_a_member_that_waits_on_a_connection_is_not_fenced_for_another() -> None:
    """A heartbeat came by another connection while a JoinGroup of it was answered; that one is closed, and the wait goes on."""
    properties = {"group.disconnect.grace.ms": "1", "group.initial.rebalance.delay.ms": "0"}
    async with (
        LocalCluster(properties=properties) as cluster,
        RawClient(cluster.bootstrap_servers) as first,
        RawClient(cluster.bootstrap_servers) as waiting,
    ):
        await first.find_coordinator("g")
        member = await join(first, "g")
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="test",
            protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
        )
        waiting.send(frame(request, 2))
        await waiting.drained()
        assert cluster.node is not None
        groups = cluster.node.services.groups

        def others() -> list[str]:
            group = groups.group("g")
            assert isinstance(group, ClassicGroup)
            return [member_id for member_id in group.members if member_id != member.member_id]

        async with asyncio.timeout(patient(10)):
            while not others():
                await asyncio.sleep(0)
        key, other = ("g", others()[0]), Peer()
        groups.connections.request_received(other, key, 1)
        other.closed(by_client=True)
        other.left()
        async with asyncio.timeout(patient(10)):
            while groups.connections.carries(key):
                await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert others() == [key[1]]


async def test_a_stop_finishes_what_is_under_way_and_answers_it(tmp_path: Path, disk: Disk) -> None:
    """A produce that waits for the disk when the node stops is answered; a long poll does not hold the stop up."""
    async with LocalCluster(str(tmp_path)) as cluster:
        async with RawClient(cluster.bootstrap_servers) as other:
            await create(other, "t")
        async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as poller:
            fetch = FetchRequest(
                max_wait_ms=300_000,
                min_bytes=1_000,
                max_bytes=1_000,
                session_epoch=-1,
                topics=[
                    FetchTopic(
                        topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)]
                    )
                ],
            )
            poller.send(frame(fetch, 11))
            await poller.drained()
            disk.hold()
            client.send(produced("t"))
            await asyncio.to_thread(disk.waiting.wait, patient(10))
            stopping = asyncio.ensure_future(cluster.stop())
            await asyncio.sleep(0)
            disk.release()
            answer = await client.frame()
            assert answer
            async with asyncio.timeout(patient(5)):
                await stopping
            with contextlib.suppress(ConnectionError):
                assert await poller.frame() == b""
