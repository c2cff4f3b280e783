"""Settings of brokers: what replacing all of them takes away."""

from uuid import UUID

import pytest
from tests.unit.busway_bus.controller.cluster import SmallCluster

from busway_bus.controller.configs import AlterConfigs, ConfigOperation, Update
from busway_bus.controller.controller import Surroundings
from busway_bus.controller.topics import CreateTopics, NewTopic
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError


def replaced(image: ClusterImage, *updates: Update) -> tuple[ClusterImage, KafkaError | None]:
    """Return the image after AlterConfigs of the cluster's default, and the reply."""
    command = AlterConfigs(kind=BROKER_RESOURCE, updates=(("", updates),), incremental=False)
    surroundings = Surroundings(config=BrokerConfig.defaults(), new_id=lambda: UUID(int=1), next_offset=0)
    decision = command.decide(image, surroundings)
    delta = Delta(image)
    for record in decision.records:
        delta.apply(record)
    return delta.image(), decision.reply[0]


def test_the_clusters_min_insync_replicas_is_not_taken_away_by_leaving_it_out() -> None:
    """It may be set and not removed, as in Kafka (KIP-966); other settings that are left out go back to their defaults."""
    least, size = "min.insync.replicas", "message.max.bytes"
    sets = ConfigOperation.SET
    image, problem = replaced(ClusterImage(), (least, sets, "2"), (size, sets, "1000"))
    assert problem is None
    image, problem = replaced(image, (size, sets, "2000"))
    assert problem is not None
    assert problem.code is ErrorCode.INVALID_CONFIG
    assert problem.message == "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    image, problem = replaced(image, (least, sets, "3"))
    assert problem is None
    assert dict(image.broker_configs("")) == {least: "3"}


@pytest.mark.parametrize("name", ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"])
def test_a_cluster_refuses_throttles_by_name(name: str) -> None:
    """With the remedy; removing one is allowed, and a node alone has no replication to throttle."""
    clustered = {
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:9,CONTROLLER://127.0.0.1:10",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:10,2@127.0.0.1:20,3@127.0.0.1:30",
    }
    empty: dict[str, str] = {}
    for properties, refused in ((empty, False), (clustered, True)):
        cluster = SmallCluster()
        cluster.config = BrokerConfig.from_properties({"node.id": "1", **properties})
        cluster.create("t", (1, 2))
        removal, update = (name, ConfigOperation.DELETE, None), (name, ConfigOperation.SET, "0:1")
        removed, changed = (
            cluster.run(AlterConfigs(kind=TOPIC_RESOURCE, updates=(("t", (each,)),), incremental=True))[0]
            for each in (removal, update)
        )
        assert removed is None
        new = NewTopic(name="u", partitions=1, replication_factor=1, configs={name: "*"})
        (created,) = cluster.run(CreateTopics(topics=(new,)))
        for outcome in (changed, created):
            assert isinstance(outcome, KafkaError) is refused
            if refused:
                assert outcome.code is ErrorCode.INVALID_CONFIG
                assert f"{name} is not served" in str(outcome)
                assert "without --throttle" in str(outcome)


@pytest.mark.parametrize("name", ["leader.replication.throttled.rate", "follower.replication.throttled.rate"])
def test_rates_of_throttles_are_refused_by_name(name: str) -> None:
    """With the remedy."""
    with pytest.raises(ConfigError, match="without --throttle"):
        BrokerConfig.defaults().dynamic.check({name: "1000"}, per_broker=True)
