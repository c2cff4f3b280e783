"""Settings of groups: kept in the metadata, within the bounds of the broker, in force at once."""

from uuid import UUID

import pytest

from busway_bus.controller.configs import AlterConfigs, ConfigOperation
from busway_bus.controller.controller import Surroundings
from busway_bus.coordinator.consumer_groups import consumer_limits
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.group_settings import group_settings
from busway_bus.metadata.image import GROUP_RESOURCE, ClusterImage
from busway_bus.metadata.snapshot import records_of
from busway_protocol.errors import ErrorCode, KafkaError

SESSION = "consumer.session.timeout.ms"


def changed(
    image: ClusterImage, config: BrokerConfig, *updates: tuple[str, int, str | None]
) -> tuple[ClusterImage, KafkaError | None]:
    """The image after a change of the group "g", and the reply."""
    command = AlterConfigs(kind=GROUP_RESOURCE, updates=(("g", updates),), incremental=True)
    decision = command.decide(image, Surroundings(config=config, new_id=lambda: UUID(int=1), next_offset=0))
    delta = Delta(image)
    for record in decision.records:
        delta.apply(record)
    assert delta.quiet is not bool(decision.records), "who asked would be told before it is in force"
    return delta.image(), decision.reply[0]


def test_a_setting_is_in_force_at_once_and_taken_back() -> None:
    """For the group alone; the coordinator sees it at the next heartbeat."""
    config, image = BrokerConfig.defaults(), ClusterImage()
    limits = consumer_limits(config, group_settings(config, lambda: image))
    image, problem = changed(image, config, (SESSION, ConfigOperation.SET, "50000"))
    assert problem is None
    assert (limits.of_group("g").session_timeout_ms, limits.of_group("h").session_timeout_ms) == (50_000, 45_000)
    image, _ = changed(image, config, (SESSION, ConfigOperation.DELETE, None))
    assert limits.of_group("g").session_timeout_ms == 45_000
    assert not image.configs


def test_a_setting_outlives_a_snapshot() -> None:
    """Its records make the same image."""
    image, _ = changed(ClusterImage(), BrokerConfig.defaults(), (SESSION, ConfigOperation.SET, "50000"))
    delta = Delta(ClusterImage())
    for record in records_of(image):
        delta.apply(record)
    assert delta.image().group_configs("g") == {SESSION: "50000"}


def test_bounds_that_were_narrowed_count() -> None:
    """What was set before is the nearest that is allowed now, as in Kafka."""
    image, _ = changed(ClusterImage(), BrokerConfig.defaults(), (SESSION, ConfigOperation.SET, "60000"))
    narrow = BrokerConfig.from_properties({"group.consumer.max.session.timeout.ms": "50000"})
    assert group_settings(narrow, lambda: image)("g", SESSION) == 50_000


def test_values_have_their_types() -> None:
    """As those who ask need them."""
    updates = (("share.renew.acknowledge.enable", 0, "false"), ("share.auto.offset.reset", 0, "by_duration:PT1H"))
    config = BrokerConfig.from_properties({"group.share.delivery.count.limit": "4"})
    image, problem = changed(ClusterImage(), config, *updates)
    setting = group_settings(config, lambda: image)
    assert problem is None
    assert setting("g", "share.renew.acknowledge.enable") is False
    assert setting("g", "share.auto.offset.reset") == "by_duration:PT1H"
    assert setting("g", "share.delivery.count.limit") == 4
    assert setting("g", "share.isolation.level") == "read_uncommitted"


def test_a_value_of_any_length_is_not_kept() -> None:
    """Kafka's bound and words; nothing else of the change counts."""
    image, problem = changed(ClusterImage(), BrokerConfig.defaults(), ("share.isolation.level", 0, "x" * 32_768))
    assert problem is not None
    assert (problem.code, "maximum value size of 32767" in problem.message) == (ErrorCode.INVALID_CONFIG, True)
    assert not image.configs


def test_settings_of_streams_groups_are_refused_by_name() -> None:
    """They are not served."""
    _, problem = changed(ClusterImage(), BrokerConfig.defaults(), ("streams.session.timeout.ms", 0, "50000"))
    assert problem is not None
    assert problem.message == "streams.session.timeout.ms cannot be set: streams groups are not served"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"group.consumer.session.timeout.ms": "10000"}, "must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ({"group.consumer.heartbeat.interval.ms": "20000"}, "must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ({"group.consumer.min.session.timeout.ms": "90000"}, "must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ({"group.share.max.delivery.count.limit": "26"}, "Value must be no more than 25"),
        ({"group.share.max.share.sessions": "100"}, "must be greater than or equal to group.share.max.size"),
        (
            {"group.consumer.min.session.timeout.ms": "1", "group.consumer.session.timeout.ms": "5000"},
            "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        ),
    ],
)  # fmt: skip
def test_a_broker_that_contradicts_itself_does_not_start(properties: dict[str, str], message: str) -> None:
    """Kafka's checks, in its words."""
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.from_properties(properties)
