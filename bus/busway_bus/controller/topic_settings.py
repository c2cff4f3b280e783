"""Settings of topics that the controller's decisions depend on.

Here: `TopicSettings`, with min.insync.replicas and unclean.leader.election.enable as of one image.
Not here: changing settings (`configs`).
"""

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigValue
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS
from busway_bus.metadata.image import ClusterImage

_MIN_ISR = "min.insync.replicas"
_UNCLEAN = "unclean.leader.election.enable"


class TopicSettings:
    """Values of one decision, each read once per topic.

    A topic's own value wins over the controller's, that over the cluster's, and that over `server.properties`.
    """

    def __init__(self, image: ClusterImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config
        self._known: dict[tuple[str, str], ConfigValue] = {}
        self._brokers = (image.broker_configs(str(config.node_id)), image.broker_configs(""))

    def min_isr(self, topic: str) -> int:
        """The topic's min.insync.replicas, at most its replication factor."""
        value = self._value(topic, _MIN_ISR)
        assert isinstance(value, int)
        return min(value, len(self._image.topics[topic].partitions[0].replicas))

    def unclean_elections(self, topic: str) -> bool:
        return bool(self._value(topic, _UNCLEAN))

    def _value(self, topic: str, name: str) -> ConfigValue:
        key = (topic, name)
        if key not in self._known:
            self._known[key] = self._read(topic, name)
        return self._known[key]

    def _read(self, topic: str, name: str) -> ConfigValue:
        definition = TOPIC_CONFIGS[name]
        for values in (self._image.topic_configs(topic), *self._brokers):
            if name in values:
                return definition.parse(values[name])
        value = self._config.properties.get(name)
        return definition.default if value is None else value
