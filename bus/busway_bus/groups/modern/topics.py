"""The cluster's topics, for consumer and share groups.

Here: names, ids, numbers of partitions, and a hash for assignments.
Not here: a group's topics (`group`, `consumer_group`).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Final
from uuid import UUID

from busway_bus.kernel.limits import HASHED_SETS_MAX
from busway_bus.metadata.image import ClusterImage, TopicImage

MANY: Final = 1_000
"""Number of topics from which a hash is cached."""


class Topics:
    """The topics of the current image."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._hashes: dict[str, tuple[TopicImage, object, int]] = {}
        self._of_many: dict[frozenset[str], int] = {}
        self._hashed_inputs: object = None
        self._hash_inputs: tuple[object, object] = (None, None)

    @property
    def version(self) -> object:
        """Another object whenever a topic is created, changed or deleted."""
        return self._image().topics

    @property
    def hash_inputs(self) -> object:
        """Another object whenever `hash_of` may have changed, by topics, brokers or racks."""
        image = self._image()
        if self._hash_inputs[0] is not image.topics or self._hash_inputs[1] is not image.brokers:
            self._hash_inputs = image.topics, image.brokers
        return self._hash_inputs

    def names(self) -> Iterable[str]:
        return self._image().topics

    def id_of(self, name: str) -> UUID | None:
        topic = self._image().topics.get(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic_id: UUID) -> str | None:
        return self._image().names.get(topic_id)

    def among(self, names: AbstractSet[str]) -> list[TopicImage]:
        return sorted(self.each(names), key=attrgetter("name"))

    def each(self, names: AbstractSet[str]) -> Iterator[TopicImage]:
        """Yield the existing topics of these names, unordered.

        It iterates over the smaller set: a member may name many missing topics.
        """
        topics = self._image().topics
        if len(names) > len(topics):
            return (topic for name, topic in topics.pairs() if name in names)
        return (topic for topic in map(topics.get, names) if topic is not None)

    def as_they_are(self) -> "Topics":
        """Return a snapshot; later images do not change it."""
        image = self._image()
        return Topics(lambda: image)

    def ids_of(self, names: AbstractSet[str]) -> frozenset[UUID]:
        return frozenset(topic.topic_id for topic in self.among(names))

    def partitions(self, topic_id: UUID) -> int:
        image = self._image()
        topic = image.topics.get(image.names.get(topic_id, ""))
        return 0 if topic is None else len(topic.partitions)

    def hash_of(self, names: AbstractSet[str]) -> int:
        """Return a hash of these topics' metadata, 0 if none exists.

        Kafka's differs: a group that moves from Kafka is assigned once more.
        """
        every = frozenset(names)
        if len(every) < MANY:
            return self._hash_of(every)
        if self._hashed_inputs is not self.hash_inputs:
            self._hashed_inputs = self.hash_inputs
            self._of_many.clear()
        metadata_hash = self._of_many.get(every)
        if metadata_hash is None:
            metadata_hash = self._hash_of(every)
            while len(self._of_many) >= HASHED_SETS_MAX:
                del self._of_many[next(iter(self._of_many))]
            self._of_many[every] = metadata_hash
        return metadata_hash

    def _hash_of(self, names: frozenset[str]) -> int:
        image = self._image()
        digest = hashlib.blake2b(digest_size=8)
        topics = self.among(names)
        for topic in topics:
            digest.update(self._hash(topic, image).to_bytes(8, "big"))
        return int.from_bytes(digest.digest(), "big", signed=True) if topics else 0

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
        metadata_hash = int.from_bytes(digest.digest(), "big")
        if len(self._hashes) > 2 * len(image.topics):
            self._hashes.clear()  # it may contain deleted topics
        self._hashes[topic.name] = topic, image.brokers, metadata_hash
        return metadata_hash
