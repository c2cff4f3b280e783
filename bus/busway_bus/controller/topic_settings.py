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
        self._known: dict[str, tuple[int, bool]] = {}
        self._brokers = (image.broker_configs(str(config.node_id)), image.broker_configs(""))

    def min_isr(self, topic: str) -> int:
        """The topic's min.insync.replicas, at most its replication factor."""
        return self._of(topic)[0]

    def unclean_elections(self, topic: str) -> bool:
        return self._of(topic)[1]

    def _of(self, topic: str) -> tuple[int, bool]:
        known = self._known.get(topic)
        if known is None:
            least = self._read(topic, _MIN_ISR)
            assert isinstance(least, int)
            factor = len(self._image.topics[topic].partitions[0].replicas)
            known = self._known[topic] = min(least, factor), bool(self._read(topic, _UNCLEAN))
        return known

    def _read(self, topic: str, name: str) -> ConfigValue:
        definition = TOPIC_CONFIGS[name]
        for values in (self._image.topic_configs(topic), *self._brokers):
            if name in values:
                return definition.parse(values[name])
        value = self._config.properties.get(name)
        return definition.default if value is None else value
