"""Settings of groups reach their members, and outlive the node."""

from pathlib import Path

from tests.support.patience import patient

from busway.net.connection import Connection
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
)
from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.groups_modern import ConsumerGroupHeartbeatRequest

GROUP = 32


async def connected(cluster: LocalCluster) -> Connection:
    """A client of the node."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    opened = Connection(host, int(port), client_id="test", timeout_s=patient(10))
    await opened.connect()
    return opened


async def beaten(client: Connection, member: str, epoch: int = 0) -> tuple[int, int]:
    """What a heartbeat is answered: the interval and the member's epoch."""
    joins = epoch == 0
    answer = await client.request(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=10_000 if joins else -1,
            subscribed_topic_names=["t"] if joins else None,
            topic_partitions=[] if joins else None,
        )
    )
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.heartbeat_interval_ms, answer.member_epoch


async def test_a_member_is_told_with_its_next_heartbeat_and_after_a_restart(tmp_path: Path) -> None:
    """The interval of its group, not the broker's."""
    async with LocalCluster(str(tmp_path), {"group.consumer.heartbeat.interval.ms": "5000"}) as cluster:
        client = await connected(cluster)
        try:
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            while (await client.request(asked)).coordinators[0].error_code:
                pass  # the topic of the groups is being made
            interval_ms, epoch = await beaten(client, "m")
            assert interval_ms == 5000
            own = IncrementalAlterConfigsRequestAlterableConfig(
                name="consumer.heartbeat.interval.ms", config_operation=0, value="7000"
            )
            resource = IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=GROUP, resource_name="g", configs=[own]
            )
            changed = await client.request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
            assert changed.responses[0].error_code == ErrorCode.NONE
            assert (await beaten(client, "m", epoch))[0] == 7000
        finally:
            client.close()
    async with LocalCluster(data_dir=str(tmp_path)) as cluster:
        client = await connected(cluster)
        try:
            listed = await client.request(ListConfigResourcesRequest(resource_types=[GROUP]))
            assert [resource.resource_name for resource in listed.config_resources] == ["g"]
        finally:
            client.close()
