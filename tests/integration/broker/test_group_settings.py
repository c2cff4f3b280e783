"""Settings that a group has of its own: kept, described, and refused where the broker does not let a group have them."""

import pytest

from busway import Admin, BrokerError
from busway_bus.handlers.common.config_entries import Source, group_entries
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow


def in_force(cluster: LocalCluster, name: str, group: str = "g") -> object:
    """The value in force, typed."""
    assert cluster.node is not None
    return cluster.node.services.shares.setting(group, name)


async def test_they_are_in_force_at_once_and_after_a_crash() -> None:
    """A group's own, the broker's where it has none; deleted ones are the broker's again."""
    async with LocalCluster(properties={"group.share.record.lock.duration.ms": "20000"}) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.alter_group_configs(
                "g", {"share.auto.offset.reset": "earliest", "share.session.timeout.ms": "50000"}
            )
        for crash in (True, False):
            assert in_force(cluster, "share.auto.offset.reset") == "earliest"
            assert in_force(cluster, "share.auto.offset.reset", "other") == "latest"
            assert in_force(cluster, "share.session.timeout.ms") == 50_000
            assert in_force(cluster, "share.record.lock.duration.ms") == 20_000
            assert in_force(cluster, "share.renew.acknowledge.enable") is True
            if crash:
                await cluster.crash()
                await cluster.start()
        assert cluster.node is not None
        services = cluster.node.services
        assert services.share_groups.limits("g").session_timeout_ms == 50_000
        configs = {entry.name: entry for entry in group_entries(services.config, services.image.group_configs("g"))}
        assert (configs["share.session.timeout.ms"].value, configs["share.session.timeout.ms"].source) == (
            "50000",
            Source.GROUP,
        )
        assert (configs["share.record.lock.duration.ms"].value, configs["share.record.lock.duration.ms"].source) == (
            "20000",
            Source.STATIC_BROKER,
        )
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.alter_group_configs("g", {"share.auto.offset.reset": None})
        assert in_force(cluster, "share.auto.offset.reset") == "latest"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("share.auto.offset.reset", "tomorrow", "by_duration"),
        ("share.record.lock.duration.ms", "5000", "greater than or equal to group.share.min.record.lock.duration.ms"),
        ("share.delivery.count.limit", "11", "less than or equal to group.share.max.delivery.count.limit"),
        ("share.auto.offset.rest", "latest", "Did you mean share.auto.offset.reset"),
        ("streams.session.timeout.ms", "50000", "streams groups are not served"),
    ],
)
async def test_what_is_wrong_is_refused_by_name(name: str, value: str, text: str, cluster: LocalCluster) -> None:
    """And changes nothing."""
    async with Admin(cluster.bootstrap_servers) as admin:
        with pytest.raises(BrokerError, match=text):
            await admin.alter_group_configs("g", {name: value})
    assert cluster.node is not None
    assert not cluster.node.services.image.group_configs("g")
