"""Settings of groups: parsing, the broker's bounds, values that must fit together."""

import pytest

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError
from busway_bus.kernel.group_bounds import BOUND_CONFIGS, bounds_of, check_together
from busway_bus.kernel.group_configs import (
    GROUP_CONFIGS,
    check_group_configs,
    group_default,
    in_bounds,
    parse_group_config,
)

CONFIG = BrokerConfig.defaults()


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        (
            "consumer.session.timeout.ms",
            ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
        ),
        (
            "share.delivery.count.limit",
            ("group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"),
        ),
        ("consumer.delivery.count.limit", None),
        ("share.isolation.level", None),
    ],
)
def test_bounds_by_setting(name: str, bounds: tuple[str, str] | None) -> None:
    """The delivery count is a setting of share groups only."""
    assert bounds_of(name) == bounds


def test_each_bounded_setting_has_both_keys_and_a_default_between_them() -> None:
    """The default of a group is within the default bounds."""
    names = {key.name for key in BOUND_CONFIGS}
    bounded = {name: bounds for name in GROUP_CONFIGS if (bounds := bounds_of(name))}
    assert {key for bounds in bounded.values() for key in bounds} == names
    for name, (low, high) in bounded.items():
        assert CONFIG.get(low) <= group_default(CONFIG, name) <= CONFIG.get(high)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"group.consumer.max.session.timeout.ms": 40_000},
            "group.consumer.max.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"group.consumer.session.timeout.ms": 44_999},
            "group.consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"group.share.delivery.count.limit": 11},
            "group.share.delivery.count.limit must be less than or equal to group.share.max.delivery.count.limit",
        ),
        (
            {
                "group.share.min.heartbeat.interval.ms": 1,
                "group.share.max.heartbeat.interval.ms": 45_000,
                "group.share.heartbeat.interval.ms": 45_000,
            },
            "group.share.heartbeat.interval.ms must be less than group.share.session.timeout.ms",
        ),
        (
            {"group.share.max.share.sessions": 10, "group.share.max.size": 11},
            "group.share.max.share.sessions must be greater than or equal to group.share.max.size",
        ),
    ],
)
def test_broker_settings_that_do_not_fit_together(changes: dict[str, int], text: str) -> None:
    """The error names both, as in Kafka."""
    check_together(CONFIG.get)
    with pytest.raises(ConfigError) as refused:
        check_together(lambda name: changes.get(name, CONFIG.get(name)))
    assert str(refused.value) == text


def test_a_group_takes_the_brokers_default() -> None:
    """Settings without a key of the broker have their own."""
    config = BrokerConfig.defaults(**{"group.consumer.heartbeat.interval.ms": "6000"})
    assert group_default(config, "consumer.heartbeat.interval.ms") == 6000
    assert group_default(config, "share.auto.offset.reset") == "latest"


def test_values_are_clamped_when_the_bounds_change_later() -> None:
    """A group's value stays in the metadata; what is in force is within the bounds."""
    name = "share.record.lock.duration.ms"
    assert [in_bounds(CONFIG, name, value) for value in (1000, 30_000, 100_000)] == [15_000, 30_000, 60_000]
    assert in_bounds(CONFIG, "share.isolation.level", "read_committed") == "read_committed"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("share.auto.offset.reset", " earliest ", "earliest"),
        ("share.auto.offset.reset", "by_duration:PT1H", "by_duration:PT1H"),
        ("share.isolation.level", "read_committed", "read_committed"),
        ("consumer.session.timeout.ms", "50000", 50_000),
    ],
)
def test_values_are_parsed(name: str, text: str, value: object) -> None:
    """Blanks around a value are ignored."""
    assert parse_group_config(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("share.auto.offset.reset", "none", "Invalid value `none` for configuration share.auto.offset.reset"),
        ("share.auto.offset.reset", "by_duration:1h", "either 'earliest', 'latest' or of the format"),
        ("share.isolation.level", "serializable", "String must be one of: read_committed, read_uncommitted"),
        ("streams.session.timeout.ms", "50000", "streams groups are not served"),
        ("consumer.sesion.timeout.ms", "1", "Did you mean consumer.session.timeout.ms?"),
        ("colour", "red", "Unknown group config name: colour"),
    ],
)
def test_what_is_not_served_is_refused_by_name(name: str, text: str, message: str) -> None:
    """With the closest name where there is one."""
    with pytest.raises(ConfigError) as refused:
        parse_group_config(name, text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"consumer.session.timeout.ms": "44999"}, "greater than or equal to group.consumer.min.session.timeout.ms"),
        ({"consumer.session.timeout.ms": "60001"}, "less than or equal to group.consumer.max.session.timeout.ms"),
        ({"errors.deadletterqueue.topic.name": "__letters"}, "DLQ topic name must not start with '__'"),
    ],
)
def test_a_groups_overrides_are_within_the_bounds(overrides: dict[str, str | None], text: str) -> None:
    """A deleted override takes the default."""
    check_group_configs(CONFIG, {"consumer.session.timeout.ms": "50000", "share.isolation.level": None})
    with pytest.raises(ConfigError, match=text):
        check_group_configs(CONFIG, overrides)


def test_a_session_is_longer_than_a_heartbeat() -> None:
    """Compared with the value in force where only one is set."""
    config = BrokerConfig.defaults(
        **{
            "group.consumer.min.session.timeout.ms": "10000",
            "group.consumer.max.heartbeat.interval.ms": "20000",
            "group.consumer.heartbeat.interval.ms": "12000",
        }
    )
    with pytest.raises(ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        check_group_configs(config, {"consumer.session.timeout.ms": "12000"})
    check_group_configs(config, {"consumer.session.timeout.ms": "12001"})
