"""What consumers could read stays readable, whatever becomes of a topic's settings."""

import asyncio

import pytest
from tests.integration.broker.test_lost_tail import create, fetch, produce
from tests.integration.broker.test_storage import call
from tests.support.patience import patient

from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)


async def set_durability(cluster: LocalCluster, value: str) -> None:
    """AlterConfigs of topic t."""
    config = AlterableConfig(name="durability", value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
    message = AlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await call(cluster, message, ApiKey.ALTER_CONFIGS, 2, AlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE


@pytest.mark.slow
async def test_a_topic_that_is_made_safer_keeps_its_records_readable(cluster: LocalCluster) -> None:
    """durability os to flush: the high watermark stays, and what is not on disk gets there without another record."""
    await create(cluster, "os")
    assert cluster.node is not None
    partition = cluster.node.services.replicas.find("t", 0)

    async def synced(offset: int) -> None:
        async with asyncio.timeout(patient(5)):
            while partition.log.flushed_offset < offset:
                await asyncio.sleep(0)

    await produce(cluster, 10, "v")
    assert partition.log.flushed_offset == 0, "nothing asks for a sync, or this test shows nothing"
    await set_durability(cluster, "flush")
    fetched = await fetch(cluster, 0, read_epoch=-1)
    assert (fetched.high_watermark, bool(fetched.records)) == (10, True)
    await synced(10)
    assert partition.high_watermark == 10


@pytest.mark.slow
async def test_a_topic_that_is_made_faster_shows_what_is_written(cluster: LocalCluster) -> None:
    """durability flush to os: nothing falls back, and the next record is readable as soon as it is acknowledged."""
    await create(cluster, "flush")
    await produce(cluster, 10, "v")
    await set_durability(cluster, "os")
    assert (await fetch(cluster, 0, read_epoch=-1)).high_watermark == 10
    await produce(cluster, 10, "w")
    assert (await fetch(cluster, 10, read_epoch=0)).high_watermark == 20
