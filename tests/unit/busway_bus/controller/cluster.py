"""An image of brokers and topics, changed by decisions, for tests of controllers."""

import itertools
from dataclasses import replace
from typing import Any
from uuid import UUID

from busway_bus.controller import leaders
from busway_bus.controller.brokers import RegisterBroker
from busway_bus.controller.controller import Surroundings
from busway_bus.controller.topics import CreateTopics, NewTopic
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.features import ELR_VERSION
from busway_bus.metadata.image import TOPIC_RESOURCE, ClusterImage, PartitionImage
from busway_bus.metadata.records import ConfigRecord, FeatureLevelRecord

NODE = 100
"""The controller's id."""


class SmallCluster:
    """Brokers 1 to `brokers`, each with one directory and all unfenced.

    Args:
        elr: whether partitions have eligible leader replicas.
    """

    def __init__(self, brokers: int = 3, *, elr: bool = True, **config: str) -> None:
        self.config = BrokerConfig.defaults(node_id=str(NODE), **config)
        self.image, self._numbers = ClusterImage(), itertools.count(1)
        self.apply([FeatureLevelRecord(name=ELR_VERSION, feature_level=int(elr))])
        for node_id in range(1, brokers + 1):
            self.run(
                RegisterBroker(
                    node_id=node_id,
                    incarnation=UUID(int=900 + node_id),
                    endpoints=(Endpoint(name="PLAINTEXT", host="h", port=9000 + node_id),),
                    rack=None,
                    directories=(UUID(int=100 + node_id),),
                    features=(),
                )
            )
            self._set(node_id, fenced=False)

    def run(self, command: Any) -> Any:
        """Decide, apply the records, return the reply."""
        offset = next(self._numbers)
        decision = command.decide(
            self.image,
            Surroundings(config=self.config, new_id=lambda: UUID(int=next(self._numbers)), next_offset=offset),
        )
        self.apply(decision.records)
        return decision.reply

    def apply(self, records: Any) -> int:
        """Apply records; return how many."""
        delta, count = Delta(self.image), 0
        for record in records:
            delta.apply(record)
            count += 1
        self.image = delta.image()
        return count

    def create(self, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
        """A topic with these replicas of its partitions."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        (reply,) = self.run(
            CreateTopics(topics=(NewTopic(name=name, assignments=tuple(enumerate(replicas)), configs=settings),))
        )
        assert not isinstance(reply, Exception), reply

    def configure(self, topic: str, name: str, value: str) -> None:
        """Set a topic's setting."""
        self.apply([ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value)])

    def fence(self, node_id: int, *, unclean: bool = False) -> int:
        """A broker is fenced, as by its session's end, or by its registration after an unclean shutdown."""
        changed = self.apply(leaders.without_broker(self.image, node_id, config=self.config, unclean=unclean))
        self._set(node_id, fenced=True)
        return changed

    def unfence(self, node_id: int) -> int:
        """A broker is unfenced."""
        changed = self.apply(leaders.with_broker(self.image, node_id, config=self.config))
        self._set(node_id, fenced=False)
        return changed

    def partition(self, topic: str, index: int = 0) -> PartitionImage:
        """A partition as it is."""
        partition = self.image.partition(topic, index)
        assert partition is not None
        return partition

    def _set(self, node_id: int, **fields: Any) -> None:
        broker = replace(self.image.brokers[node_id], **fields)
        self.image = replace(self.image, brokers=self.image.brokers.updated({node_id: broker}))
