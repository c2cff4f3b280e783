"""The settings of consumer and share groups, Kafka 4.3's (KIP-848, KIP-932).

Here: the keys with Kafka's defaults, 4.4's for dead letters of share groups (KIP-1191), checks in Kafka's words.
Settings of streams groups are refused by name.
Not here: a group's overrides (`metadata.image`), the value in force (`metadata.group_settings`).
"""

from collections.abc import Mapping
from typing import Final

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError, ConfigKey, ConfigType, ConfigValue, by_name, closest
from busway_bus.kernel.group_bounds import bounds_of
from busway_bus.kernel.resets import parse_reset

_NOT_SERVED: Final = "streams."


class _ResetKey(ConfigKey):
    """The key of a share group's start, with Kafka's error text."""

    def parse(self, text: str) -> ConfigValue:
        value = text.strip()
        try:
            if not value.startswith(("earliest", "latest", "by_duration:")):
                raise ValueError(value)
            parse_reset(value)
        except ValueError:
            form = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            reason = f"Invalid value `{value}` for configuration {self.name}. {form}"
            raise ConfigError(
                self.name, reason, f"Invalid value {value} for configuration {self.name}: {reason}"
            ) from None
        return value


def _key(
    name: str, kind: ConfigType, default: ConfigValue, doc: str, *, of: type[ConfigKey] = ConfigKey, **bounds: object
) -> ConfigKey:
    return of(
        name=name,
        type=kind,
        default=default,
        synonyms=(f"group.{name}",) if kind is ConfigType.INT else (),
        doc=doc,
        read_only=False,
        **bounds,  # type: ignore[arg-type]
    )


GROUP_CONFIGS: Final[Mapping[str, ConfigKey]] = by_name(
    [
        _key("consumer.assignment.interval.ms", ConfigType.INT, 1000,
             "Shortest time in ms between two assignments of the group.", at_least=0),
        _key("consumer.heartbeat.interval.ms", ConfigType.INT, 5000,
             "Heartbeat interval of the group's members, in ms.", at_least=1),
        _key("consumer.session.timeout.ms", ConfigType.INT, 45_000,
             "Time in ms without a heartbeat after which a member of the group is fenced.", at_least=1),
        _key("errors.deadletterqueue.copy.record.enable", ConfigType.BOOLEAN, False,
             "Whether a dead letter of the share group has the record's key and value, or only its position in headers."),
        _key("errors.deadletterqueue.topic.name", ConfigType.STRING, "",
             "Topic for the share group's dead letters; empty is none."),
        _key("share.assignment.interval.ms", ConfigType.INT, 1000,
             "Shortest time in ms between two assignments of the group.", at_least=0),
        _key("share.auto.offset.reset", ConfigType.STRING, "latest",
             "Position at which the group begins a partition: latest, earliest, or by_duration: with an age, such as by_duration:PT1H.",
             of=_ResetKey),
        _key("share.delivery.count.limit", ConfigType.INT, 5,
             "Number of deliveries of a record, after which it is archived.", at_least=2),
        _key("share.heartbeat.interval.ms", ConfigType.INT, 5000,
             "Heartbeat interval of the group's members, in ms.", at_least=1),
        _key("share.isolation.level", ConfigType.STRING, "read_uncommitted",
             "Whether records of transactions that are not committed are delivered.",
             one_of=("read_committed", "read_uncommitted")),
        _key("share.partition.max.record.locks", ConfigType.INT, 2000,
             "Largest number of records of a partition that are in flight in the group.", at_least=100),
        _key("share.record.lock.duration.ms", ConfigType.INT, 30_000,
             "Duration, in ms, of the lock of an acquired record.", at_least=1000),
        _key("share.renew.acknowledge.enable", ConfigType.BOOLEAN, True,
             "Whether a member may renew the lock of a record."),
        _key("share.session.timeout.ms", ConfigType.INT, 45_000,
             "Time in ms without a heartbeat after which a member of the group is fenced.", at_least=1),
    ]
)  # fmt: skip


def parse_group_config(name: str, text: str) -> ConfigValue:
    """Parse one setting.

    ConfigError: an unknown name (with the closest), or a bad value.
    """
    key = GROUP_CONFIGS.get(name)
    if key is not None:
        return key.parse(text)
    if name.startswith(_NOT_SERVED):
        message = f"{name} cannot be set: streams groups are not served"
        raise ConfigError(name, "streams groups are not served", message)
    hint = closest(name, GROUP_CONFIGS)
    raise ConfigError(
        name, "unknown group config", f"Unknown group config name: {name}" + (f". Did you mean {hint}?" if hint else "")
    )


def group_default(config: BrokerConfig, name: str) -> ConfigValue:
    key = GROUP_CONFIGS[name]
    default: ConfigValue = config.get(key.synonyms[0]) if key.synonyms else key.default
    return default


def in_bounds(config: BrokerConfig, name: str, value: ConfigValue) -> ConfigValue:
    """Clamp a value to the broker's current bounds, as in Kafka."""
    bounds = bounds_of(name)
    if bounds is None:
        return value
    assert isinstance(value, int)
    low, high = map(config.get, bounds)
    return max(int(low), min(int(high), value))


def check_group_configs(config: BrokerConfig, overrides: Mapping[str, str | None]) -> None:
    """Check that a group's settings fit together and the broker's bounds."""
    own = {name: parse_group_config(name, text) for name, text in overrides.items() if text is not None}
    values = {name: group_default(config, name) for name in GROUP_CONFIGS} | own
    for name in GROUP_CONFIGS:
        bounds, value = bounds_of(name), values[name]
        if bounds is None:
            continue
        assert isinstance(value, int)
        low, high = bounds
        if value < config.get(low):
            raise _refusal(name, f"must be greater than or equal to {low}")
        if value > config.get(high):
            raise _refusal(name, f"must be less than or equal to {high}")
    letters = "errors.deadletterqueue.topic.name"
    if str(values[letters]).startswith("__"):
        raise ConfigError(letters, "DLQ topic name must not start with '__'")
    for kind in ("consumer", "share"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        longest, shortest = values[session], values[heartbeat]
        assert isinstance(longest, int)
        assert isinstance(shortest, int)
        if longest <= shortest:
            raise _refusal(session, f"must be greater than {heartbeat}")


def _refusal(name: str, what: str) -> ConfigError:
    return ConfigError(name, what, f"{name} {what}")
