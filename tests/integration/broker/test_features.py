"""Levels of features on a node: described, kept over every end, raised in data directories of earlier versions, acted by at once."""

import pytest
from tests.integration.broker.features_scenarios import SAFE, feature_response, update
from tests.integration.broker.groups_probe import Run, run_against

from busway import Admin, BrokerError, Consumer, Producer
from busway.admin.features import FeatureLevels
from busway.admin.new_topic import NewTopic
from busway_bus.metadata import bootstrap
from busway_bus.metadata.features import GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode

pytestmark = pytest.mark.slow


async def levels(run: Run) -> dict[str, int]:
    """The finalized levels, as a client gets them."""
    return {feature.name: feature.max_version_level for feature in (await feature_response(run)).finalized_features}


async def test_levels_outlive_every_end_and_the_epoch_never_falls() -> None:
    """Stopped and killed; whether a snapshot covers the change or the log tells it."""
    for settings in ({}, {"metadata.log.max.record.bytes.between.snapshots": "1"}):
        epochs: list[int] = []
        async with LocalCluster(properties=settings) as cluster:
            for number, level in enumerate((1, 0, 2)):
                async with run_against(cluster.bootstrap_servers) as run:
                    epochs.append((await feature_response(run)).finalized_features_epoch)
                    request = update((TRANSACTION_VERSION, level), kind=SAFE if level < 2 else 1)
                    assert (await run.admin.request(request)).error_code == ErrorCode.NONE
                    before = await levels(run)
                    epochs.append((await feature_response(run)).finalized_features_epoch)
                await (cluster.crash() if number % 2 else cluster.stop())
                await cluster.start()
                async with run_against(cluster.bootstrap_servers) as run:
                    assert before == await levels(run)
                    assert before.get(TRANSACTION_VERSION, 0) == level
                    assert before[METADATA_VERSION] == 30
        assert epochs == sorted(set(epochs))
        assert epochs[0] >= 0


async def test_a_directory_of_an_earlier_version_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows no group.version: members balance each other; raised, the next group is the coordinator's, without a restart."""
    with monkeypatch.context() as earlier:
        earlier.setattr(bootstrap, "levels_of_new_clusters", lambda: {METADATA_VERSION: 30})
        cluster = LocalCluster()
        await cluster.start()
        await cluster.stop()

    async def kind_of(group: str) -> str:
        options = {"group_id": group, "auto_offset_reset": "earliest"}
        async with Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
            await consumer.getone()  # it is a member by then
            return (await admin.describe_group(group)).kind

    async with cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("orders")])
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", b"one")
        before = await admin.describe_features()
        assert before.features[GROUP_VERSION] == FeatureLevels(GROUP_VERSION, 0, 1, 0)
        assert await kind_of("early") == "classic"
        await admin.update_features({GROUP_VERSION: 1, TRANSACTION_VERSION: 2}, validate_only=True)
        assert (await admin.describe_features()).features == before.features
        await admin.update_features({GROUP_VERSION: 1, TRANSACTION_VERSION: 2})
        after = await admin.describe_features()
        assert after.features[GROUP_VERSION].finalized == 1
        assert before.epoch is not None
        assert after.epoch is not None
        assert after.epoch > before.epoch
        assert await kind_of("late") == "consumer"
        await cluster.crash()
        await cluster.start()
        assert cluster.node is not None
        assert cluster.node.services.image.features[GROUP_VERSION] == 1


async def test_a_producer_goes_on_while_the_level_changes(cluster: LocalCluster) -> None:
    """Each transaction is whole, also one that is open meanwhile."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("paid")])
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="till") as producer:
            now, expected = 2, []
            for number, level in enumerate((1, 2, 0, 1, 0, 2)):
                for commit in (True, False, True):
                    await producer.begin_transaction()
                    await producer.send("paid", f"{number} {commit}".encode())
                    if commit and now != level:
                        await admin.update_features({TRANSACTION_VERSION: level}, downgrade=level < now)
                        now = level
                    await producer.send("paid", f"{number} {commit} more".encode())
                    await (producer.commit_transaction() if commit else producer.abort_transaction())
                expected += 2 * [f"{number} True", f"{number} True more"]
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with Consumer("paid", bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
        seen: list[str] = []
        while len(seen) < len(expected):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                seen += [record.value.decode() for record in records]
    assert seen == expected


async def test_what_cannot_be_set_is_refused_by_name(cluster: LocalCluster) -> None:
    """The SDK gives the broker's own words."""
    async with Admin(cluster.bootstrap_servers) as admin:
        for refused, reason in (
            ({"kraft.version": 1}, "for feature kraft.version. Local controller 1 does not support this feature."),
            (
                {TRANSACTION_VERSION: 3},
                "for feature transaction.version. Local controller 1 only supports versions 0-2",
            ),
            ({TRANSACTION_VERSION: 1}, "Can't downgrade the version of this feature without setting"),
        ):
            with pytest.raises(BrokerError, match=reason) as problem:
                await admin.update_features(refused)
            assert problem.value.code is ErrorCode.INVALID_UPDATE_VERSION
        with pytest.raises(ValueError, match="name at least one feature"):
            await admin.update_features({})
        with pytest.raises(ValueError, match="cannot have the level -1"):
            await admin.update_features({GROUP_VERSION: -1})
