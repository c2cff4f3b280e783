"""The index from brokers to partitions follows every record, and an update leaves the older image alone."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.partition_places import IMBALANCED, LEADERLESS, MOVING, partitions_at
from busway_bus.metadata.records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

BROKERS = (0, 1, 2)
NAMES = ("a", "b")
SUBSETS = st.lists(st.sampled_from(BROKERS), unique=True)


def partition(topic_id: UUID, index: int, isr: list[int], leader: int) -> PartitionRecord:
    """A partition on all brokers."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(BROKERS),
        isr=isr,
        removing_replicas=[],
        adding_replicas=[],
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
    )


def expected(image: ClusterImage) -> dict[int, list[tuple[str, int]]]:
    """The index, from all partitions."""
    rows: dict[int, list[tuple[str, int]]] = {}
    for topic in image.topics.values():
        for index, placed in enumerate(topic.partitions):
            keys = {*placed.isr, *placed.elr}
            if placed.leader == -1:
                keys.add(LEADERLESS)
            if placed.leader != placed.replicas[0]:
                keys.add(IMBALANCED)
            if placed.adding:
                keys.add(MOVING)
            for key in keys:
                rows.setdefault(key, []).append((topic.name, index))
    return rows


def indexed(image: ClusterImage) -> dict[int, list[tuple[str, int]]]:
    """The index as it is kept."""
    return {key: [(topic, index) for topic, index, _ in partitions_at(image, key)] for key in image.places}


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, str, int, list[int], int, list[int]]]:
    """Topics created and deleted, partitions added and changed."""
    kinds = st.sampled_from(["create", "remove", "add", "change", "change", "change", "cut"])
    return draw(
        st.lists(
            st.tuples(
                kinds,
                st.sampled_from(NAMES),
                st.integers(0, 3),
                SUBSETS,
                st.sampled_from((-1, *BROKERS)),
                SUBSETS,
            ),
            max_size=25,
        )
    )


@given(steps())
def test_the_index_equals_the_partitions(changes: list[tuple[str, str, int, list[int], int, list[int]]]) -> None:
    """After any records, in deltas of any length; a deleted topic and a second one of its name too."""
    image, ids, number = ClusterImage(), dict[str, UUID](), 0
    delta, earlier = Delta(image), list[tuple[ClusterImage, dict[int, list[tuple[str, int]]]]]()
    counts: dict[str, int] = {}
    for kind, name, index, isr, leader, elr in changes:
        number += 1
        if kind == "cut":
            image = delta.image()
            earlier.append((image, expected(image)))
            delta = Delta(image)
        elif kind == "create":
            ids[name], counts[name] = UUID(int=number + 10), 0
            delta.apply(TopicRecord(name=name, topic_id=ids[name]))
        elif name not in ids:
            continue
        elif kind == "remove":
            delta.apply(RemoveTopicRecord(topic_id=ids.pop(name)))
        elif kind == "add":
            delta.apply(partition(ids[name], counts[name], isr, leader))
            counts[name] += 1
        elif index < counts[name]:
            delta.apply(
                PartitionChangeRecord(
                    partition_id=index,
                    topic_id=ids[name],
                    isr=isr,
                    leader=leader,
                    eligible_leader_replicas=elr,
                    adding_replicas=elr if leader == 0 else None,
                )
            )
    earlier.append((delta.image(), expected(delta.image())))
    for kept, rows in earlier:
        assert indexed(kept) == rows == expected(kept)
