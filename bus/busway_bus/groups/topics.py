"""The cluster's topics as groups see them that the coordinator balances.

What lives here: names and ids, how many partitions, and a number that is another whenever something of a topic is that a group goes by.
What does not: which topics a group reads (`modern`, `consumer`).
"""

import hashlib
from collections.abc import Callable, Iterable
from uuid import UUID

from busway_bus.metadata.image import ClusterImage, TopicImage


class Topics:
    """Those of the current picture.

    Args:
        image: the current picture.
    """

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._hashes: dict[str, tuple[TopicImage, object, int]] = {}

    @property
    def version(self) -> object:
        """Another object whenever a topic is made, changed or removed."""
        return self._image().topics

    def names(self) -> Iterable[str]:
        """All of them."""
        return self._image().topics

    def id_of(self, name: str) -> UUID | None:
        """A topic's id, None where there is none of that name."""
        topic = self._image().topics.get(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic_id: UUID) -> str | None:
        """A topic's name, None where there is none with that id."""
        return self._image().names.get(topic_id)

    def ids_of(self, names: Iterable[str]) -> frozenset[UUID]:
        """The ids of those of the names that there are."""
        return frozenset(topic_id for topic_id in map(self.id_of, names) if topic_id is not None)

    def partitions(self, topic_id: UUID) -> int:
        """How many partitions a topic has, 0 where there is none with that id."""
        image = self._image()
        topic = image.topics.get(image.names.get(topic_id, ""))
        return 0 if topic is None else len(topic.partitions)

    def hash_of(self, names: Iterable[str]) -> int:
        """A number for these topics as they are, 0 where there is none of them. Kafka computes another one for the same topics; a group
        that moves from one to the other is balanced anew once."""
        image = self._image()
        digest = hashlib.blake2b(digest_size=8)
        found = False
        for name in sorted(names):
            topic = image.topics.get(name)
            if topic is not None:
                found = True
                digest.update(self._hash(topic, image).to_bytes(8, "big"))
        return int.from_bytes(digest.digest(), "big", signed=True) if found else 0

    def _hash(self, topic: TopicImage, image: ClusterImage) -> int:
        cached = self._hashes.get(topic.name)
        if cached is not None and cached[0] is topic and cached[1] is image.brokers:
            return cached[2]
        racks = {broker.node_id: broker.rack for broker in image.brokers.values() if broker.rack is not None}
        digest = hashlib.blake2b(topic.topic_id.bytes, digest_size=8)
        digest.update(f"{len(topic.partitions)} {topic.name}".encode())
        if racks:
            for partition in topic.partitions:
                digest.update(repr(sorted(racks[node] for node in partition.replicas if node in racks)).encode())
        number = int.from_bytes(digest.digest(), "big")
        if len(self._hashes) > 2 * len(image.topics):
            self._hashes.clear()  # topics that are gone
        self._hashes[topic.name] = topic, image.brokers, number
        return number
