"""An index of partitions by broker, so that a change of a broker costs only its partitions.

Here: building the index of the next image from changed partitions, and reading it. Kafka has these maps in
`BrokersToIsrs`, `BrokersToElrs` and `imbalancedPartitions`.
Not here: which partitions changed (`delta`).
"""

from collections.abc import Iterable, Iterator
from typing import Final

from busway_bus.metadata.image import NO_LEADER, ClusterImage, PartitionImage, Places
from busway_bus.metadata.sorted_map import SortedMap

LEADERLESS: Final = -1
"""Key of the partitions without a leader."""
IMBALANCED: Final = -2
"""Key of the partitions that another replica than the first leads, or none."""
MOVING: Final = -3
"""Key of the partitions with a reassignment in progress."""
Change = tuple[str, int, PartitionImage | None, PartitionImage | None]
"""Topic, partition index, the partition before and after; None for one that is not there."""


def partitions_at(image: ClusterImage, key: int) -> Iterator[tuple[str, int, PartitionImage]]:
    """Iterate over partitions with a broker in ISR or ELR, or over those of another key, by topic and index."""
    for topic, partitions in image.places.get(key, SortedMap()).pairs():
        images = image.topics[topic].partitions
        for partition in partitions:
            yield topic, partition, images[partition]


def updated(places: Places, changes: Iterable[Change]) -> Places:
    """Return the index after changes of partitions; the cost is linear in the changes."""
    edits: dict[int, dict[str, dict[int, bool]]] = {}
    for topic, partition, before, after in changes:
        if before is after:
            continue
        old, new = _keys(before), _keys(after)
        for key in new:
            if key not in old:
                edits.setdefault(key, {}).setdefault(topic, {})[partition] = True
        for key in old:
            if key not in new:
                edits.setdefault(key, {}).setdefault(topic, {})[partition] = False
    if not edits:
        return places
    changed = {}
    for key, topics in edits.items():
        of_key = places.get(key, SortedMap())
        following = of_key.updated({topic: _edited(of_key.get(topic, ()), edit) for topic, edit in topics.items()})
        changed[key] = following or None
    return places.updated(changed)


def _keys(partition: PartitionImage | None) -> tuple[int, ...]:
    if partition is None:
        return ()
    keys = partition.isr + partition.elr
    if partition.removing or partition.adding:
        keys = (*keys, MOVING)
    if partition.leader == NO_LEADER:
        return (*keys, LEADERLESS, IMBALANCED)
    return keys if partition.replicas[:1] == (partition.leader,) else (*keys, IMBALANCED)


def _edited(partitions: tuple[int, ...], edits: dict[int, bool]) -> tuple[int, ...] | None:
    if not partitions:
        return tuple(sorted(edits))
    kept = [partition for partition in partitions if partition not in edits]
    kept += [partition for partition, added in edits.items() if added]
    return tuple(sorted(kept)) or None
