"""Settings of brokers: what replacing all of them takes away."""

from uuid import UUID

from busway_bus.controller.configs import AlterConfigs, ConfigOperation, Update
from busway_bus.controller.controller import Surroundings
from busway_bus.kernel.config import BrokerConfig
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import BROKER_RESOURCE, ClusterImage
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
