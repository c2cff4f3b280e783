"""Settings of a broker that are changed while it runs (KIP-226): in force at once, and after a crash."""

import pytest

from busway import Admin, BrokerError, NewTopic
from busway.admin.admin import BROKER
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow


async def test_they_are_in_force_at_once_and_after_a_crash() -> None:
    """The broker's own, then the cluster's default, then the properties file's; deleted ones give way to the next."""
    async with LocalCluster(properties={"log.retention.hours": "3"}) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("t")])
            await admin.alter_configs("", {"log.retention.ms": "7000000", "max.connections": "500"}, kind=BROKER)
            await admin.alter_configs("1", {"log.retention.ms": "6000000"}, kind=BROKER)
        for crash in (True, False):
            assert cluster.node is not None
            services = cluster.node.services
            assert services.replicas.find("t", 0).log.config.retention_ms == 6_000_000
            assert services.config.get("max.connections") == 500
            if crash:
                await cluster.crash()
                await cluster.start()
        async with Admin(cluster.bootstrap_servers) as admin:
            for name, expected in (("1", 7_000_000), ("", 10_800_000)):
                await admin.alter_configs(name, {"log.retention.ms": None}, kind=BROKER)
                assert services.replicas.find("t", 0).log.config.retention_ms == expected
            for setting in ("num.partitions", "no.such.setting"):
                with pytest.raises(BrokerError, match=setting):
                    await admin.alter_configs("1", {setting: "2"}, kind=BROKER)
