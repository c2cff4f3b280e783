"""Brokers that copy partitions from each other, one situation at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.patience import patient
from tests.unit.busway_bus.replication.replica_cluster import TOPIC, ReplicaCluster

from busway_bus.controller.topics import CreateTopics, NewTopic
from busway_bus.kernel.replication_configs import RACK_AWARE
from busway_bus.testing.sim_files import SimFiles
from busway_bus.testing.world import World
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from busway_protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.records.builder import BatchBuilder


def run(
    scenario: Callable[[ReplicaCluster], Awaitable[None]],
    *,
    partitions: int = 1,
    settings: dict[str, str] | None = None,
    **configs: str,
) -> None:
    """Run a scenario with three brokers and a topic on all of them."""

    async def workload(world: World) -> None:
        cluster = ReplicaCluster(world, 3, settings=settings)
        await cluster.start(partitions, **configs)
        await scenario(cluster)

    World(seed=1).run(workload)


async def values(cluster: ReplicaCluster, count: int, *, first: int = 0) -> None:
    """Records with acks=all in the first partition."""
    for number in range(first, first + count):
        assert await cluster.produce(0, b"value %d" % number) == number


def logs(cluster: ReplicaCluster) -> list[list[bytes]]:
    """The batches of the first partition on each broker."""
    return [list(replica.log.batches()) for node_id in cluster.hosts if (replica := cluster.partition_on(node_id))]


def topic_id(cluster: ReplicaCluster) -> Any:
    return cluster.controller.image.topics[TOPIC].topic_id


def fetching(cluster: ReplicaCluster, offset: int, **fields: Any) -> FetchRequest:
    """A fetch of the first partition, without a session."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10_000)
    topic = FetchTopic(topic=TOPIC, topic_id=topic_id(cluster), partitions=[wanted])
    return FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10_000, "session_epoch": -1, "topics": [topic], **fields}
    )


def producing(value: bytes, **fields: Any) -> ProduceRequest:
    """One record for the first partition, with acks=all."""
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, value)
    data = [PartitionProduceData(index=0, records=builder.build())]
    topic = TopicProduceData(name=TOPIC, partition_data=data)
    return ProduceRequest(**{"acks": -1, "timeout_ms": 1_000, "topic_data": [topic], **fields})


def test_what_is_acknowledged_is_on_the_disk_of_each_replica() -> None:
    """And what they know as committed follows with the next answer."""

    async def scenario(cluster: ReplicaCluster) -> None:
        for number in range(20):
            await cluster.produce(number % 2, b"value %d" % number)
        for node_id in cluster.hosts:
            for index in (0, 1):
                replica = cluster.partition_on(node_id, index)
                assert replica is not None
                assert replica.state.flushed_offset == 10
        await cluster.until(cluster.in_sync)
        assert logs(cluster)[0] == logs(cluster)[1] == logs(cluster)[2]

    run(scenario, partitions=2)


def test_a_leader_that_was_cut_off_takes_back_what_was_never_acknowledged() -> None:
    """Its producer is sent to the new leader, which has other records at the same offsets."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 5)
        assert cluster.partition().leader == 1
        cluster.cut |= {(2, 1), (3, 1), (1, 2), (1, 3)}
        leader = cluster.hosts[1]
        assert leader.process is not None
        lost = [leader.process.start(leader.append, 0, b"lost %d" % number) for number in range(3)]
        await cluster.until(lambda: cluster.partition_on(1).log.end_offset == 8)  # type: ignore[union-attr]
        cluster.fence(1)
        for attempt in lost:
            with pytest.raises(KafkaError) as refused:
                await attempt
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster.partition().leader == 2
        await cluster.until(lambda: cluster.partition_on(2).leads)  # type: ignore[union-attr]
        await values(cluster, 4, first=5)
        cluster.cut.clear()
        leader._heartbeat(len(cluster.controller.records))
        await cluster.until(cluster.in_sync)
        assert logs(cluster)[0] == logs(cluster)[1] == logs(cluster)[2]
        assert cluster.partition_on(1).log.end_offset == 9  # type: ignore[union-attr]

    run(scenario)


def test_a_batch_whose_inspection_outlasts_the_leadership_is_not_written() -> None:
    """A large batch is inspected in another thread; a follower's log gets nothing but what its leader has."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 2)
        leader, replica = cluster.hosts[1], cluster.partition_on(1)
        assert leader.process is not None
        assert replica is not None
        earlier = replica.turn = asyncio.get_running_loop().create_future()

        async def append() -> None:
            await leader.append(0, b"too late")

        appending = leader.process.start(append)
        await cluster.world.sleep(0.01)
        cluster.fence(1)
        await cluster.until(lambda: not replica.leads)
        earlier.set_result(None)
        with pytest.raises(KafkaError) as refused:
            async with asyncio.timeout(patient(30)):
                await appending
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert replica.log.end_offset == 2

    run(scenario)


def test_partitions_of_a_dead_leader_go_on_before_a_long_poll_ends() -> None:
    """A fetch that waits at the new leader for another partition does not keep its new partitions waiting."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 1)
        await cluster.until(cluster.in_sync)
        await cluster.world.sleep(0.7)
        cluster.crash(1)
        cluster.fence(1)
        await cluster.until(lambda: cluster.partition_on(2).leads, within_s=1)  # type: ignore[union-attr]
        began = cluster.world.now
        await values(cluster, 1, first=1)
        assert cluster.world.now - began < 0.3

    run(scenario, partitions=3, settings={"replica.fetch.wait.max.ms": "2000"})


def test_a_follower_that_fetches_no_more_leaves_the_isr_and_comes_back() -> None:
    """Producers with acks=all wait for it, until it lags for replica.lag.time.max.ms."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 2)
        cluster.cut |= {(3, 1), (1, 3)}
        await values(cluster, 1, first=2)
        assert cluster.partition().isr == (1, 2)
        await values(cluster, 5, first=3)
        cluster.cut.clear()
        await cluster.until(cluster.in_sync, within_s=90)
        assert sorted(cluster.partition().isr) == [1, 2, 3]

    run(scenario)


def test_too_few_replicas_in_sync_refuse_before_the_append_and_time_out_after_it() -> None:
    """NOT_ENOUGH_REPLICAS; and REQUEST_TIMED_OUT for records that no other broker has in time."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 1)
        cluster.crash(2)
        cluster.crash(3)
        request = producing(b"late")
        request.topic_data[0].topic_id = topic_id(cluster)
        response = await cluster.ask(1, request)
        partition = response.responses[0].partition_responses[0]
        assert (partition.error_code, partition.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        cluster.fence(2)
        cluster.fence(3)
        await cluster.until(lambda: cluster.partition_on(1).state.isr == (1,))  # type: ignore[union-attr]
        response = await cluster.ask(1, request)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        for node_id in (2, 3):
            await cluster.restart(node_id)
        await cluster.until(cluster.in_sync)
        assert cluster.partition_on(3).log.end_offset == 2  # type: ignore[union-attr]

    run(scenario)


def test_a_broker_with_an_empty_disk_copies_everything_and_joins() -> None:
    """It was replaced, or its disk was wiped."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 30)
        cluster.crash(3)
        host = cluster.hosts[3]
        host.disk, host.epoch = SimFiles(cluster.world.chance("new disk")), -1
        await cluster.restart(3)
        await cluster.until(cluster.in_sync)
        assert logs(cluster)[2] == logs(cluster)[0]

    run(scenario)


def test_a_follower_whose_next_records_are_deleted_begins_where_the_leader_does() -> None:
    """It was away for longer than the records were kept."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 3)
        cluster.crash(3)
        cluster.fence(3)
        await values(cluster, 20, first=3)
        for node_id in (1, 2):
            replica = cluster.partition_on(node_id)
            assert replica is not None
            replica.log.roll(0)
            await cluster.until(lambda replica=replica: replica.high_watermark == 23)  # type: ignore[misc]
        cluster.partition_on(1).log.advance_start(15, 0)  # type: ignore[union-attr]
        await cluster.restart(3)
        await cluster.until(cluster.in_sync)
        replica = cluster.partition_on(3)
        assert replica is not None
        assert (replica.log.start_offset, replica.log.end_offset) == (15, 23)
        assert list(replica.log.batches(15)) == list(cluster.partition_on(1).log.batches(15))  # type: ignore[union-attr]

    run(scenario)


def test_an_unclean_leader_makes_the_others_forget_what_it_lacks() -> None:
    """Only where the topic says that availability counts for more."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 3)
        for node_id in (2, 3):
            cluster.crash(node_id)
            cluster.fence(node_id)
        await values(cluster, 10, first=3)
        cluster.crash(1)
        cluster.fence(1)
        await cluster.restart(2)
        await cluster.until(lambda: cluster.partition().leader == 2)
        await cluster.restart(3)
        await cluster.until(lambda: len(cluster.partition().isr) == 2)
        assert await cluster.produce(0, b"other") == 3
        await cluster.restart(1)
        await cluster.until(cluster.in_sync)
        assert logs(cluster)[0] == logs(cluster)[1] == logs(cluster)[2]
        assert cluster.partition_on(1).log.end_offset == 4  # type: ignore[union-attr]

    run(scenario, min_insync_replicas="1", unclean_leader_election_enable="true")


def test_deleted_records_are_deleted_on_all_replicas_before_the_response() -> None:
    """KIP-107; a follower that is away for good is not waited for."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 10)
        await cluster.until(cluster.in_sync)
        wanted = DeleteRecordsPartition(partition_index=0, offset=7)
        topic = DeleteRecordsTopic(name=TOPIC, partitions=[wanted])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)
        refused = (await cluster.ask(2, request)).topics[0].partitions[0]
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        result = (await cluster.ask(1, request)).topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 7)
        assert [cluster.partition_on(node_id).log.start_offset for node_id in (1, 2, 3)] == [7, 7, 7]  # type: ignore[union-attr]
        cluster.crash(3)
        wanted.offset, request.timeout_ms = 8, 1_000
        result = (await cluster.ask(1, request)).topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        cluster.fence(3)
        await cluster.until(lambda: not cluster.hosts[1].replicas.local.image.is_active(3))
        result = (await cluster.ask(1, request)).topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 8)

    run(scenario)


def test_consumers_read_from_a_follower_in_their_rack() -> None:
    """The leader sends them there (KIP-392); what is not committed there is not read."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 5)
        await cluster.until(cluster.in_sync)
        for rack, preferred in (("rack3", 3), ("rack1", -1), ("rack9", -1), ("", -1)):
            answer = (await cluster.ask(1, fetching(cluster, 0, rack_id=rack))).responses[0].partitions[0]
            assert answer.preferred_read_replica == preferred
            assert bool(answer.records) is (preferred < 0)
        answer = (await cluster.ask(3, fetching(cluster, 2, rack_id="rack3"))).responses[0].partitions[0]
        assert (answer.error_code, answer.high_watermark, answer.preferred_read_replica) == (0, 5, -1)
        assert answer.records
        old = (await cluster.ask(3, fetching(cluster, 2), 10)).responses[0].partitions[0]
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.fence(3)
        await cluster.until(lambda: 3 not in cluster.partition_on(1).state.isr)  # type: ignore[union-attr]
        answer = (await cluster.ask(1, fetching(cluster, 0, rack_id="rack3"))).responses[0].partitions[0]
        assert answer.preferred_read_replica == -1

    run(scenario, settings={"replica.selector.class": RACK_AWARE})


def test_without_a_selector_every_consumer_reads_from_the_leader() -> None:
    """As in Kafka."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 1)
        answer = (await cluster.ask(1, fetching(cluster, 0, rack_id="rack3"))).responses[0].partitions[0]
        assert answer.preferred_read_replica == -1
        assert answer.records

    run(scenario)


def test_a_refusal_names_the_leader() -> None:
    """With its address, for Fetch 16 and Produce 10 (KIP-951)."""

    async def scenario(cluster: ReplicaCluster) -> None:
        alone = NewTopic(name="alone", assignments=((0, (1,)),))
        cluster.controller.decide(CreateTopics(topics=(alone,)))
        await cluster.until(lambda: cluster.hosts[2].replicas.local.placed("alone", 0) is not None)
        request = fetching(cluster, 0)
        request.topics[0].topic = "alone"
        request.topics[0].topic_id = cluster.controller.image.topics["alone"].topic_id
        for version, leader in ((15, -1), (16, 1)):
            response = await cluster.ask(2, request, version)
            answer = response.responses[0].partitions[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.current_leader.leader_id == leader
            assert [(node.node_id, node.host) for node in response.node_endpoints] == [(1, "n1")][: leader > 0]
        produced = producing(b"v")
        for version, leader in ((9, -1), (10, 1)):
            response = await cluster.ask(2, produced, version)
            refused = response.responses[0].partition_responses[0]
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert refused.current_leader.leader_id == leader
            assert [node.port for node in response.node_endpoints] == [9092][: leader > 0]

    run(scenario)


def test_offsets_are_answered_by_the_leader() -> None:
    """A follower gets the end of the log, a consumer the high watermark."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 3)
        cluster.cut |= {(2, 1), (3, 1)}
        leader = cluster.hosts[1]
        assert leader.process is not None
        leader.process.start(leader.append, 0, b"not committed").add_done_callback(lambda done: done.exception())
        await cluster.until(lambda: cluster.partition_on(1).log.end_offset == 4)  # type: ignore[union-attr]
        latest = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        epoch = OffsetForLeaderTopic(
            topic=TOPIC,
            partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=cluster.partition().leader_epoch)],
        )
        for replica_id, end_offset in ((2, 4), (-1, 3)):
            listed = await cluster.ask(1, ListOffsetsRequest(replica_id=replica_id, topics=[latest]))
            assert listed.topics[0].partitions[0].offset == end_offset
            ended = await cluster.ask(1, OffsetForLeaderEpochRequest(replica_id=replica_id, topics=[epoch]))
            assert ended.topics[0].partitions[0].end_offset == end_offset
        listed = await cluster.ask(2, ListOffsetsRequest(replica_id=-1, topics=[latest]))
        ended = await cluster.ask(2, OffsetForLeaderEpochRequest(replica_id=-1, topics=[epoch]))
        for answer in (listed.topics[0].partitions[0], ended.topics[0].partitions[0]):
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        state = cluster.partition_on(1).state  # type: ignore[union-attr]
        state.leader_epoch_start = 4
        for version, code in ((4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)):
            listed = await cluster.ask(1, ListOffsetsRequest(replica_id=-1, topics=[latest]), version)
            assert listed.topics[0].partitions[0].error_code == code

    run(scenario)


def test_a_process_that_another_has_replaced_moves_nothing() -> None:
    """Its fetch may arrive late (KIP-903); and no broker id that is not registered is a follower's."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 1)
        await cluster.until(cluster.in_sync)
        follower = cluster.partition_on(1).state.followers[2]  # type: ignore[union-attr]
        before = (follower.log_end_offset, follower.broker_epoch)
        assert before == (1, cluster.hosts[2].epoch)
        stale = fetching(cluster, 0, replica_state=ReplicaState(replica_id=2, replica_epoch=before[1] - 1))
        answer = (await cluster.ask(1, stale)).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (follower.log_end_offset, follower.broker_epoch) == before
        unknown = fetching(cluster, 0, replica_state=ReplicaState(replica_id=77, replica_epoch=1))
        assert (await cluster.ask(1, unknown)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(scenario)


def test_a_diverging_follower_gets_the_high_watermark_again() -> None:
    """It ignores that of the response which made it truncate, and an idle partition has no other news."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await values(cluster, 1)
        cluster.fence(1)
        leader = cluster.partition_on(2)
        assert leader is not None
        await cluster.until(lambda: leader.leads and leader.high_watermark == 1)
        request = fetching(cluster, 5, session_epoch=0)
        request.topics[0].partitions[0].last_fetched_epoch = 0
        answer = await cluster.ask(2, request)
        assert answer.responses[0].partitions[0].diverging_epoch.end_offset == 1
        request = fetching(cluster, 1, session_id=answer.session_id, session_epoch=1)
        request.topics[0].partitions[0].last_fetched_epoch = 0
        answer = await cluster.ask(2, request)
        assert [each.high_watermark for each in answer.responses[0].partitions] == [1]

    run(scenario)
