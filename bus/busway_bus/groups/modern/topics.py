"""The cluster's topics as groups see them that the coordinator balances.

What lives here: names and ids, how many partitions, and a number that is another whenever something of a topic is that a group goes by.
What does not: which topics a group reads (`group`, `consumer_group`).
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
"""So many topics or more are not looked at again for their hash while nothing has changed."""


class Topics:
    """Those of the current picture.

    Args:
        image: the current picture.
    """

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._hashes: dict[str, tuple[TopicImage, object, int]] = {}
        self._of_many: dict[frozenset[str], int] = {}
        self._of_picture: object = None
        self._picture: tuple[object, object] = (None, None)

    @property
    def version(self) -> object:
        """Another object whenever a topic is made, changed or removed."""
        return self._image().topics

    @property
    def picture(self) -> object:
        """Another object whenever anything may have changed that `hash_of` goes by: topics, or brokers, which have racks."""
        image = self._image()
        if self._picture[0] is not image.topics or self._picture[1] is not image.brokers:
            self._picture = image.topics, image.brokers
        return self._picture

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

    def among(self, names: AbstractSet[str]) -> list[TopicImage]:
        """The topics that there are of these names, in order."""
        return sorted(self.each(names), key=attrgetter("name"))

    def each(self, names: AbstractSet[str]) -> Iterator[TopicImage]:
        """The topics that there are of these names, as they are now, in no order. A member may name very many that are not there: those are
        gone through that are fewer."""
        topics = self._image().topics
        if len(names) > len(topics):
            return (topic for name, topic in topics.pairs() if name in names)
        return (topic for topic in map(topics.get, names) if topic is not None)

    def as_they_are(self) -> "Topics":
        """Those of the picture that is current now, for work during which that may change."""
        image = self._image()
        return Topics(lambda: image)

    def ids_of(self, names: AbstractSet[str]) -> frozenset[UUID]:
        """The ids of those of the names that there are."""
        return frozenset(topic.topic_id for topic in self.among(names))

    def partitions(self, topic_id: UUID) -> int:
        """How many partitions a topic has, 0 where there is none with that id."""
        image = self._image()
        topic = image.topics.get(image.names.get(topic_id, ""))
        return 0 if topic is None else len(topic.partitions)

    def hash_of(self, names: AbstractSet[str]) -> int:
        """A number for these topics as they are, 0 where there is none of them. Kafka computes another one for the same topics; a group
        that moves from one to the other is balanced anew once."""
        every = frozenset(names)
        if len(every) < MANY:
            return self._hash_of(every)
        if self._of_picture is not self.picture:
            self._of_picture = self.picture
            self._of_many.clear()
        number = self._of_many.get(every)
        if number is None:
            number = self._hash_of(every)
            while len(self._of_many) >= HASHED_SETS_MAX:
                del self._of_many[next(iter(self._of_many))]
            self._of_many[every] = number
        return number

    def _hash_of(self, names: frozenset[str]) -> int:
        image = self._image()
        digest = hashlib.blake2b(digest_size=8)
        found = self.among(names)
        for topic in found:
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
