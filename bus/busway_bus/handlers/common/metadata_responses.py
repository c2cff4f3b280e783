"""Answers to those who ask for all topics, kept for as long as the picture of the cluster stays what it is.

What lives here: the bytes of those answers, in a bound. What does not: what they say (`metadata`). Tools and patterns ask for all topics
again and again, and ten thousand partitions take a tenth of a second to be told of.
"""

from typing import NamedTuple

from busway_bus.kernel.limits import METADATA_ANSWERS_BYTES_MAX
from busway_bus.metadata.image import ClusterImage
from busway_protocol.compile import Chunk


class Asked(NamedTuple):
    """Of what an answer depends, beside the picture."""

    version: int
    listener: str
    controller_id: int
    topic_operations: bool
    cluster_operations: bool


class MetadataAnswers:
    """The answers of one picture; another one drops them."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._kept: dict[Asked, list[Chunk]] = {}
        self._bytes = 0

    def find(self, image: ClusterImage, asked: Asked) -> list[Chunk] | None:
        """The answer, all but its header; None where none is kept."""
        return self._kept.get(asked) if image is self._image else None

    def keep(self, image: ClusterImage, asked: Asked, body: list[Chunk]) -> None:
        """Have it for the next who asks, if there is room."""
        if image is not self._image:
            self._image, self._bytes = image, 0
            self._kept.clear()
        size = sum(map(len, body))
        if asked not in self._kept and self._bytes + size <= METADATA_ANSWERS_BYTES_MAX:
            self._kept[asked] = body
            self._bytes += size
