"""Settings of topics, as their logs need them.

Here: one `LogConfig` for all topics with the same settings.
Not here: the settings themselves (`kernel.topic_configs`), when they change (`local_partitions`).
"""

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.limits import TYPED_SETTINGS_MAX
from busway_bus.kernel.topic_configs import fixed_configs
from busway_bus.log.log_config import LogConfig
from busway_bus.metadata.image import ClusterImage


class TopicLogConfigs:
    """The typed settings of topics on one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._typed: dict[frozenset[tuple[str, str]], LogConfig] = {}

    def of(self, image: ClusterImage, topic: str) -> LogConfig:
        own = {**image.topic_configs(topic), **fixed_configs(topic)}
        key = frozenset(own.items())
        typed = self._typed.get(key)
        if typed is None:
            if len(self._typed) >= TYPED_SETTINGS_MAX:
                self._typed.clear()
            typed = self._typed[key] = LogConfig.from_values(self._config.topic_config(own))
        return typed

    def clear(self) -> None:
        """Drop all, after a change of the broker's settings."""
        self._typed.clear()
