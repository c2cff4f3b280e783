"""Cached Metadata responses for all topics, valid for one image.

Here: their bytes, bounded: clients poll all topics, and ten thousand partitions take 100 ms.
Not here: their content (`metadata`).
"""

from typing import NamedTuple

from busway_bus.kernel.limits import METADATA_ANSWERS_BYTES_MAX
from busway_bus.metadata.image import ClusterImage
from busway_protocol.compile import Chunk


class Asked(NamedTuple):
    version: int
    listener: str
    controller_id: int
    topic_operations: bool
    cluster_operations: bool


class MetadataAnswers:
    """The responses of one image; a new image drops them."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._kept: dict[Asked, list[Chunk]] = {}
        self._bytes = 0

    def find(self, image: ClusterImage, asked: Asked) -> list[Chunk] | None:
        """Return a cached response without its header."""
        return self._kept.get(asked) if image is self._image else None

    def keep(self, image: ClusterImage, asked: Asked, body: list[Chunk]) -> None:
        if image is not self._image:
            self._image, self._bytes = image, 0
            self._kept.clear()
        size = sum(map(len, body))
        if asked not in self._kept and self._bytes + size <= METADATA_ANSWERS_BYTES_MAX:
            self._kept[asked] = body
            self._bytes += size
