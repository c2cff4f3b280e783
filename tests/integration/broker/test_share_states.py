"""Share groups' state on a real node: it survives, its log is cut, it goes with its topic, and it is there only where it is switched on."""

import asyncio
from uuid import UUID

from tests.integration.broker.share_states_probe import SETTINGS, life, states_against, without_share_groups
from tests.support.patience import patient

from busway_bus.coordinator.share_state_coordinator import ShareCoordinator
from busway_bus.kernel.share_state import SharePartitionKey, ShareState, StateBatch
from busway_bus.kernel.topics import SHARE_STATE_TOPIC
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import ApiVersionsRequest
from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

KEYS = {ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY}


def states(cluster: LocalCluster) -> ShareCoordinator:
    """The node's coordinator."""
    assert cluster.node is not None
    return cluster.node.services.share_states


def acknowledged(first: int, last: int) -> StateBatch:
    """A batch of records that are done with."""
    return StateBatch(first_offset=first, last_offset=last, delivery_state=2, delivery_count=1)


def change(*batches: StateBatch, leader_epoch: int = 0) -> ShareState:
    """What a leader writes."""
    return ShareState(state_epoch=0, leader_epoch=leader_epoch, start_offset=-1, batches=batches)


async def topic_id(cluster: LocalCluster, name: str = "read") -> UUID:
    """A new topic's id."""
    async with states_against(cluster.bootstrap_servers) as run:
        await run.prepare()
        return run.topic_ids[name]


async def test_the_state_survives_kills_and_the_log_is_cut() -> None:
    """Whatever is acknowledged is there after a kill, also where the log was cut before; what nothing needs is gone from it."""
    async with LocalCluster(properties=SETTINGS) as cluster:
        read = await topic_id(cluster)
        keys = [SharePartitionKey(group_id="g", topic_id=read, partition=number) for number in range(2)]
        for key in keys:
            await states(cluster).initialize(key, state_epoch=0, start_offset=0)
            await states(cluster).read(key, leader_epoch=3)
        for turn in range(10):
            await states(cluster).write(keys[0], change(acknowledged(2 * turn, 2 * turn), leader_epoch=3))
        before = [await states(cluster).read(key, leader_epoch=-1) for key in keys]
        await cluster.crash()
        await cluster.start()
        assert [await states(cluster).read(key, leader_epoch=-1) for key in keys] == before
        await states(cluster).renew(older_ms=0)
        await states(cluster).prune()
        starts = log_starts(cluster)
        assert sum(starts.values()) >= 12
        await states(cluster).write(keys[1], change(acknowledged(7, 8), leader_epoch=3))
        after = [await states(cluster).read(key, leader_epoch=-1) for key in keys]
        await cluster.crash()
        await cluster.start()
        assert [await states(cluster).read(key, leader_epoch=-1) for key in keys] == after
        assert log_starts(cluster) == starts


def log_starts(cluster: LocalCluster) -> dict[int, int]:
    """Where the logs of the topic begin."""
    assert cluster.node is not None
    find = cluster.node.services.replicas.find
    return {number: find(SHARE_STATE_TOPIC, number).log.start_offset for number in range(2)}


async def test_nothing_is_cut_that_is_needed() -> None:
    """A share partition that nothing happens to keeps the log behind it, until its snapshot is renewed."""
    async with LocalCluster(properties={**SETTINGS, "share.coordinator.state.topic.num.partitions": "1"}) as cluster:
        read = await topic_id(cluster)
        old, busy = (SharePartitionKey(group_id="g", topic_id=read, partition=number) for number in range(2))
        for key in (old, busy):
            await states(cluster).initialize(key, state_epoch=0, start_offset=0)
        for turn in range(8):
            await states(cluster).write(busy, change(acknowledged(turn, turn)))
        assert cluster.node is not None
        log = cluster.node.services.replicas.find(SHARE_STATE_TOPIC, 0).log
        await states(cluster).prune()
        assert log.start_offset == 0
        await states(cluster).renew(older_ms=3_600_000)
        await states(cluster).prune()
        assert log.start_offset == 0
        await states(cluster).renew(older_ms=0)
        await states(cluster).prune()
        assert log.start_offset == 10
        before = await states(cluster).read(busy, leader_epoch=-1)
        await cluster.stop()
        await cluster.start()
        assert await states(cluster).read(busy, leader_epoch=-1) == before
        assert (await states(cluster).summary(old)).start_offset == 0


async def test_the_state_goes_with_its_topic() -> None:
    """Also after a restart; that of other topics stays."""
    async with LocalCluster(properties=SETTINGS) as cluster:
        read, left = await topic_id(cluster), await topic_id(cluster, "left")
        for used_topic in (read, left):
            key = SharePartitionKey(group_id="g", topic_id=used_topic, partition=0)
            await states(cluster).initialize(key, state_epoch=0, start_offset=4)
        async with states_against(cluster.bootstrap_servers) as run:
            await run.prepare()
            await run.admin.request(
                DeleteTopicsRequest(topics=[DeleteTopicState(name="left")], topic_names=[], timeout_ms=9_000)
            )
        for _ in range(2):
            shards = states(cluster).runtime.all_shards().values()
            assert {key.topic_id for shard in shards for key in shard.partitions} == {read}
            await cluster.crash()
            await cluster.start()
            await states(cluster).runtime.wait_loaded(within_s=patient(10))


async def test_the_topic_is_the_brokers_own() -> None:
    """It comes with the first share partition; clients cannot make another, grow, cut or delete it."""
    async with LocalCluster(properties=SETTINGS) as cluster, states_against(cluster.bootstrap_servers) as run:
        await run.prepare()
        await run.ready("g")
        wanted = CreatableTopic(
            name=SHARE_STATE_TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        made = await run.admin.request(CreateTopicsRequest(topics=[wanted], timeout_ms=9_000))
        assert made.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        grown = CreatePartitionsTopic(name=SHARE_STATE_TOPIC, count=9, assignments=None)
        answer = await run.admin.request(CreatePartitionsRequest(topics=[grown], timeout_ms=9_000, validate_only=False))
        assert answer.results[0].error_code == ErrorCode.INVALID_REQUEST
        cut = DeleteRecordsTopic(
            name=SHARE_STATE_TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)]
        )
        answer = await run.admin.request(DeleteRecordsRequest(topics=[cut], timeout_ms=9_000))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        deletion = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=SHARE_STATE_TOPIC)], topic_names=[], timeout_ms=9_000
        )
        answer = await run.admin.request(deletion)
        assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_many_partitions_are_asked_for_together() -> None:
    """Two leaders' requests for the same share partitions at once are carried out one after the other, each whole."""
    async with LocalCluster(properties=SETTINGS) as cluster:
        read = await topic_id(cluster)
        key = SharePartitionKey(group_id="g", topic_id=read, partition=0)
        await states(cluster).initialize(key, state_epoch=0, start_offset=0)
        await asyncio.gather(
            *(states(cluster).write(key, change(acknowledged(2 * turn, 2 * turn))) for turn in range(50))
        )
        assert len((await states(cluster).read(key, leader_epoch=-1)).batches) == 50


async def test_a_key_that_is_none_has_no_coordinator() -> None:
    """And does not make the topic; a group's name may have colons in it."""
    async with LocalCluster(properties=SETTINGS) as cluster, states_against(cluster.bootstrap_servers) as run:
        await run.prepare()
        for key in ("g", "g:x:0", f"g:{run.text_id()}:x", f":{run.text_id()}:0", f" :{run.text_id()}:0"):
            assert await run.coordinator_error(key) == ErrorCode.INVALID_REQUEST
        assert cluster.node is not None
        assert SHARE_STATE_TOPIC not in cluster.node.services.image.topics
        assert await run.coordinator_error(f"a:b:{run.text_id()}:0") == ErrorCode.NONE
        answer = await run.admin.request(
            FindCoordinatorRequest(coordinator_keys=[f"g:{run.text_id()}:0"], key_type=2), at_most=5
        )
        assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_nothing_of_it_is_there_unless_it_is_switched_on() -> None:
    """No key is advertised, no coordinator found, every request is refused, and no topic made."""
    async with LocalCluster(properties=SETTINGS) as cluster, states_against(cluster.bootstrap_servers) as run:
        await without_share_groups(cluster.bootstrap_servers)
        await run.prepare()
        versions = await run.admin.request(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        assert not KEYS & {api.api_key for api in versions.api_keys}
        assert SHARE_VERSION not in {feature.name for feature in versions.finalized_features}
        assert {feature.name: feature.max_version for feature in versions.supported_features}[SHARE_VERSION] == 2
        assert await run.coordinator_error(f"g:{run.text_id()}:0") == ErrorCode.INVALID_REQUEST
        assert cluster.node is not None
        assert SHARE_STATE_TOPIC not in cluster.node.services.image.topics


async def test_it_is_advertised_where_it_is_switched_on() -> None:
    """With the level of the feature, and served over the wire."""
    async with LocalCluster(properties=SETTINGS) as cluster, states_against(cluster.bootstrap_servers) as run:
        await run.ready("s")
        versions = await run.admin.request(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        assert {api.api_key for api in versions.api_keys} >= KEYS
        assert {f.name: f.max_version_level for f in versions.finalized_features}[SHARE_VERSION] == 1
        await life(run)
        assert len(run.outcome()) == 34
