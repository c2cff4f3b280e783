"""The same calls of members of share groups, on Busway and on Apache Kafka: the same answers."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.broker.share_probe import READY_WITHIN_S, Member, ShareRun, share_run
from tests.integration.broker.share_scenarios import SCENARIOS, Scenario
from tests.support.apache_kafka import ApacheKafka

from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.share_groups import ShareGroupHeartbeatRequest

pytestmark = [pytest.mark.java, pytest.mark.slow]
GROUP_RESOURCE, SET = 32, 0
SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.share.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """One broker with share groups."""
    with ApacheKafka(SETTINGS, features={SHARE_VERSION: 1}) as running:
        yield running


async def join(run: ShareRun, member: Member) -> None:
    """Be a member for the group coordinator, as soon as that has begun the share partitions."""
    config = IncrementalAlterConfigsRequestAlterableConfig(
        name="share.auto.offset.reset", config_operation=SET, value="earliest"
    )
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=run.group_id, configs=[config]
    )
    await member.client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    await run.admin.ask(FindCoordinatorRequest(key=run.group_id), 2)  # makes the topic that groups are in
    member.member_id = f"{member.name * 22}"
    epoch = 0
    async with asyncio.timeout(READY_WITHIN_S):
        while True:
            answer = await member.client.ask(
                ShareGroupHeartbeatRequest(
                    group_id=run.group_id,
                    member_id=member.member_id,
                    member_epoch=epoch,
                    subscribed_topic_names=[run.topic],
                ),
                1,
            )
            if answer.error_code == ErrorCode.NONE:
                epoch = answer.member_epoch
                given = answer.assignment
                if given is not None and any(topic.topic_id == run.topic_id for topic in given.topic_partitions):
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_same_answers(scenario: Scenario, kafka: ApacheKafka) -> None:
    """Call by call: codes, what was acquired and how often it was delivered, and which batches came."""
    name = scenario.__name__
    async with (
        LocalCluster(properties=SETTINGS, prompt=False) as cluster,
        share_run(cluster.bootstrap_servers, name, name, join) as run,
    ):
        await scenario(run)
        ours = run.log
    async with share_run(kafka.bootstrap_servers, name, name, join) as run:
        await scenario(run)
        theirs = run.log
    different = [
        f"{label}\n   ours: {our}\n  Kafka: {their}"
        for (label, our), (_, their) in zip(ours, theirs, strict=True)
        if our != their and not (label.endswith("opens") and _without_nothing(our) == _without_nothing(their))
    ]
    assert not different, "\n".join(different)


def _without_nothing(kept: Any) -> Any:
    """An answer without the partitions that have nothing: whether Kafka names one in the first answer is a matter of a moment."""
    code, lock_ms, partitions = kept
    return code, lock_ms, [partition for partition in partitions if partition[1:] != ("NONE", "NONE", [], [])]
