"""An image as a file and back; what is damaged or cut off is known as such."""

from dataclasses import replace
from uuid import UUID

import pytest

from busway_bus.metadata.delta import BrokenHistory, Delta
from busway_bus.metadata.image import Address, BrokerImage, ClusterImage, PartitionImage, TopicImage
from busway_bus.metadata.snapshot import SnapshotId, batches_of, read_into
from busway_bus.metadata.sorted_map import SortedMap
from busway_protocol.errors import ProtocolError

T = UUID(int=7)
PARTITION = PartitionImage(
    leader=1,
    leader_epoch=3,
    partition_epoch=4,
    replicas=(1, 2, 3, 4),
    isr=(1,),
    directories=(UUID(int=8), UUID(int=2), UUID(int=3), UUID(int=4)),
    removing=(3,),
    adding=(4,),
    recovery_state=1,
    elr=(2,),
    last_known_elr=(3,),
)
BROKER = BrokerImage(
    node_id=1,
    epoch=9,
    incarnation=UUID(int=5),
    addresses={"PLAINTEXT": Address(host="h", port=9092)},
    rack="r",
    fenced=False,
    directories=(UUID(int=8),),
    features={"metadata.version": (7, 30)},
)
STOPPING = replace(BROKER, node_id=2, in_controlled_shutdown=True, cordoned_directories=(UUID(int=8),))
IMAGE = ClusterImage(
    topics=SortedMap({"a.b": TopicImage(name="a.b", topic_id=T, partitions=(PARTITION,) * 100)}),
    names=SortedMap({T: "a.b"}),
    metric_names=SortedMap({"a_b": "a.b"}),
    configs=SortedMap({(2, "a.b"): {"retention.ms": "7", "durability": "os"}}),
    brokers=SortedMap({1: BROKER, 2: STOPPING}),
    features=SortedMap({"group.version": 1, "metadata.version": 30}),
    next_producer_id=3000,
)


def content(image: ClusterImage = IMAGE) -> list[bytes]:
    """The batches of its file."""
    return list(batches_of(image, SnapshotId(12, 1), last_ms=5, now_ms=6))


def read(file: bytes) -> ClusterImage:
    """The image in a file."""
    delta = Delta(ClusterImage())
    read_into(file, delta)
    return delta.image()


@pytest.mark.parametrize("image", [IMAGE, ClusterImage()])
def test_an_image_comes_back(image) -> None:
    """All of it."""
    assert read(b"".join(content(image))) == image


def test_a_name_comes_back() -> None:
    """As Kafka writes it; what is none is none."""
    assert SnapshotId(12, 3).name == "00000000000000000012-0000000003.checkpoint"
    assert SnapshotId.from_name(SnapshotId(12, 3).name) == SnapshotId(12, 3)
    for name in ("00000000000000000012-0000000003.checkpoint.part", "bootstrap.checkpoint", "x-1.checkpoint"):
        assert SnapshotId.from_name(name) is None


@pytest.mark.slow
def test_every_cut_is_known() -> None:
    """At each byte, between two batches too; and what comes behind the end."""
    batches = content()
    whole = b"".join(batches)
    for end in {*range(0, len(whole), 7), *(sum(map(len, batches[:number])) for number in range(len(batches)))}:
        with pytest.raises(ProtocolError):
            read(whole[:end])
    for wrong in (whole + batches[1], whole + b"x", b"".join(batches[1:])):
        with pytest.raises((ProtocolError, BrokenHistory)):
            read(wrong)


@pytest.mark.slow
def test_every_flipped_bit_is_known_or_harmless() -> None:
    """A bit of a batch's offset or epoch says nothing; any other is damage."""
    whole = b"".join(content())
    seen = 0
    for bit in range(0, len(whole) * 8, 61):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert read(bytes(damaged)) == IMAGE, bit
        except (ProtocolError, BrokenHistory):
            seen += 1
    assert seen > len(whole) * 8 // 61 * 0.9
