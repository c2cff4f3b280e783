"""Following the image on the simulated disk: in batches, off the loop, and where a part of it fails the rest is served."""

import asyncio
import itertools
import threading
from uuid import UUID

import pytest

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.topics import INTERNAL
from busway_bus.log.directories import metadata_bytes
from busway_bus.log.store import LogStore
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import LOST, NO_LEADER, UNASSIGNED, ClusterImage
from busway_bus.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from busway_bus.replication import local_partitions
from busway_bus.replication.local_partitions import LocalPartitions
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.errors import ErrorCode, KafkaError

T, U, V = UUID(int=0x77), UUID(int=0x88), UUID(int=0x99)


class Watched(SimFiles):
    """A disk that notes waits of the loop's thread, and is full below some paths."""

    def __init__(self):
        super().__init__()
        self.full: tuple[str, ...] = ()
        self.loop_thread: int | None = None
        self.batches: list[tuple[str, int]] = []

    def check_sync(self):
        assert threading.get_ident() != self.loop_thread, "the loop waits for the disk"
        super().check_sync()

    def _check(self, path):
        assert threading.get_ident() != self.loop_thread, f"the loop waits for the disk at {path}"
        if path.startswith(self.full) and self.full:
            raise OSError(28, "No space left on device", path)

    def make_directories(self, names):
        self.batches.append(("make", len(names)))
        for name in names:
            self._check(name)
        super().make_directories(names)

    def rename_all(self, pairs):
        self.batches.append(("rename", len(pairs)))
        for old, _ in pairs:
            self._check(old)
        super().rename_all(pairs)

    def replace(self, path, content):
        self._check(path)
        super().replace(path, content)
        self.batches.append((path, len(content)))

    def remove_tree(self, path):
        assert threading.get_ident() != self.loop_thread
        super().remove_tree(path)


@pytest.fixture
def files():
    return Watched()


@pytest.fixture
def local(files):
    numbers = itertools.count(100)
    store = LogStore(files, node_id=1, new_ids=lambda: UUID(int=next(numbers)))
    files.loop_thread = threading.get_ident()
    files.batches.clear()
    return LocalPartitions(BrokerConfig.from_properties({}), store, lambda _: None)


def creation(name, topic_id, count, *configs):
    """The records of a new topic."""
    places = [
        PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=[1],
            isr=[1],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=0,
        )
        for number in range(count)
    ]
    settings = [ConfigRecord(resource_type=2, resource_name=name, name=key, value=value) for key, value in configs]
    return [TopicRecord(name=name, topic_id=topic_id), *settings, *places]


async def change(local, image, *records) -> ClusterImage:
    """Follow one change."""
    delta = Delta(image)
    for record in records:
        delta.apply(record)
    after = delta.image()
    await local.follow(after, delta)
    return after


async def test_many_partitions_are_made_and_deleted_in_batches_off_the_loop(local, files):
    """One wait for all directories, one rename of all, checkpoints written once; nothing of it on the loop's thread."""
    image = await change(local, ClusterImage(), *creation("t", T, 100, ("retention.ms", "7")))
    assert files.batches[0] == ("make", 100)
    assert [local.find("t", number).log.config.retention_ms for number in range(100)] == [7] * 100
    assert local.name_of(T) == "t"
    files.loop_thread = None
    local._store.write(local._store.checkpoint({}))
    files.loop_thread = threading.get_ident()
    files.batches.clear()
    await change(local, image, RemoveTopicRecord(topic_id=T), *creation("t", U, 2))
    assert [entry for entry in files.batches if entry[0] in {"make", "rename"}] == [("rename", 100), ("make", 2)]
    assert [path for path, _ in files.batches if path.endswith("checkpoint")] == ["recovery-point-offset-checkpoint"]
    assert (local.find("t", 1).topic_id, local.name_of(T), local.name_of(U)) == (U, None, "t")
    with pytest.raises(KafkaError):
        local.find("t", 2)
    while local._remover is not None:
        await local._remover
    assert sorted(name for name in files.list(".") if name.startswith("t-")) == ["t-0", "t-1"]


async def test_many_changed_partitions_are_followed_in_turns(local, monkeypatch):
    """Ten in each turn of the event loop here."""
    monkeypatch.setattr(local_partitions, "REGISTERED_AT_ONCE_MAX", 10)
    image = await change(local, ClusterImage(), *creation("t", T, 95))
    changes = [PartitionChangeRecord(topic_id=T, partition_id=number, leader=1) for number in range(95)]
    following = asyncio.ensure_future(change(local, image, *changes))
    followed = [0]
    while not following.done():
        await asyncio.sleep(0)
        followed.append(sum(partition.state.leader_epoch == 1 for partition in local))
    assert followed[-1] == 95
    assert max(after - before for before, after in itertools.pairwise(followed)) == 10


@pytest.mark.parametrize("name", sorted(INTERNAL))
async def test_internal_topics_are_always_flushed(files, name):
    """Whatever the broker says, and whatever an earlier version let the topic have of its own."""
    store = LogStore(files, node_id=1, new_ids=lambda: UUID(int=100))
    local = LocalPartitions(BrokerConfig.from_properties({"log.durability": "os"}), store, lambda _: None)
    image = await change(local, ClusterImage(), *creation(name, T, 1), *creation("t", U, 1))
    assert (local.find(name, 0).log.config.durability, local.find("t", 0).log.config.durability) == ("flush", "os")
    await change(local, image, ConfigRecord(resource_type=2, resource_name=name, name="durability", value="os"))
    assert local.find(name, 0).log.config.durability == "flush"


async def test_one_change_costs_what_it_changes(local, files):
    """A setting of one topic looks at its partitions alone, and touches no file."""
    image = await change(local, ClusterImage(), *creation("t", T, 3), *creation("u", U, 3))
    files.batches.clear()
    config = local.find("u", 0).log.config
    await change(local, image, ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="9"))
    assert [local.find("t", number).log.config.retention_ms for number in range(3)] == [9] * 3
    assert local.find("u", 0).log.config is config
    assert files.batches == []


async def test_where_one_partition_cannot_be_made_the_rest_is_served_and_it_comes_back(local, files, caplog):
    """Refused in words; the others are there; with room on the disk it is opened by itself."""
    files.full = ("t-1/",)
    image = await change(local, ClusterImage(), *creation("t", T, 3))
    await change(local, image, *creation("u", U, 1))
    local.check_online(U)
    local.find("t", 0)
    local.find("t", 2)
    with pytest.raises(KafkaError, match="t-1 is offline") as offline:
        local.find("t", 1)
    assert offline.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError, match=r"t is created, but 1 of its partitions are offline: .*No space left"):
        local.check_online(T)
    for _ in range(3):
        await local.reopen()
    assert caplog.text.count("partition t-1 is offline") == 1
    await change(local, image, ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="9"))
    files.full = ()
    await local.reopen()
    assert local.find("t", 1).log.end_offset == 0
    assert local.find("t", 1).log.config.retention_ms == 9
    local.check_online(T)


async def test_a_disk_that_refuses_a_deletion_does_not_keep_other_changes_from_being_followed(local, files, caplog):
    """The topic is gone for clients, and new topics are made; one of its name is when its files could be set aside."""
    image = await change(local, ClusterImage(), *creation("t", T, 2))
    files.full = ("t-",)
    image = await change(local, image, RemoveTopicRecord(topic_id=T), *creation("u", U, 1))
    with pytest.raises(KafkaError) as gone:
        local.find("t", 0)
    assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    local.find("u", 0)
    assert "cannot be set aside yet" in caplog.text
    await change(local, image, *creation("t", V, 1))
    await local.reopen()
    with pytest.raises(KafkaError, match="offline"):
        local.find("t", 0)
    files.full = ()
    await local.reopen()
    assert local.find("t", 0).topic_id == V
    await local.reopen()
    assert local.find("t", 0).topic_id == V
    while local._remover is not None:
        await local._remover
    assert [name for name in files.list(".") if name.startswith("t-")] == ["t-0"]
    assert local.undeleted


async def test_what_the_image_does_not_know_yet_is_reported(local, files):
    """A replica that cannot be served, until the image says so; and when it is back."""
    files.full = ("t-1/",)
    image = await change(local, ClusterImage(), *creation("t", T, 2))
    report = local.report()
    assert (report.lost, report.restored) == ((("t", 1),), ())
    image = await change(
        local, image, PartitionChangeRecord(partition_id=1, topic_id=T, leader=NO_LEADER, directories=[LOST])
    )
    assert local.report() is None
    files.full = ()
    await local.reopen()
    report = local.report()
    assert (report.lost, report.restored) == ((), (("t", 1),))
    await change(local, image, PartitionChangeRecord(partition_id=1, topic_id=T, leader=1, directories=[UNASSIGNED]))
    assert local.report() is None
    assert local.find("t", 1).leader_epoch == 2


async def test_partitions_of_other_brokers_are_not_opened(local):
    """They are in the image and not here: clients look their leaders up."""
    record = creation("t", T, 1)[1]
    record.replicas = record.isr = [7]
    await change(local, ClusterImage(), TopicRecord(name="t", topic_id=T), record)
    with pytest.raises(KafkaError) as absent:
        local.find("t", 0)
    assert absent.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_replicas_are_misplaced_until_their_record_names_their_directory(local, files):
    """One that is offline is LOST, and one that is back is in this broker's directory again."""
    files.full = ("t-1/",)
    here = local._store.identity.directory_id

    def assigned(partition_index, directory):
        return PartitionChangeRecord(topic_id=T, partition_id=partition_index, directories=[directory])

    image = await change(local, ClusterImage(), *creation("t", T, 2))
    assert sorted(local.misplaced()) == [(LOST, T, 1), (here, T, 0)]
    image = await change(local, image, assigned(1, LOST), assigned(0, here))
    assert local.misplaced() == []
    files.full = ()
    await local.reopen()
    assert local.misplaced() == [(here, T, 1)]
    image = await change(local, image, assigned(1, here))
    assert local.misplaced() == []
    image = await change(local, image, assigned(0, UUID(int=999)))
    assert local.misplaced() == [(here, T, 0)]
    await change(local, image, RemoveTopicRecord(topic_id=T))
    assert local.misplaced() == []


@pytest.mark.parametrize(
    ("partition", "again"),
    [
        ({"leader": 2, "isr": [2, 3]}, True),
        ({"leader": 2, "isr": [2], "eligible_leader_replicas": [1]}, False),
        ({"leader": NO_LEADER, "isr": [1]}, False),
        ({"leader": 2, "isr": [2, 3], "directories": [UNASSIGNED] * 3}, False),
    ],
    ids=["out of sync", "eligible", "the last one", "not noted yet"],
)
async def test_a_damaged_replica_is_fetched_again_if_the_cluster_can_do_without(files, caplog, partition, again):
    """The controller has noted that it is lost, others lead, and it may not; its files are kept, and named."""
    numbers = itertools.count(100)
    LogStore(files, node_id=1, new_ids=lambda: UUID(int=next(numbers)))
    files.make_directories(["t-0"])
    files.replace("t-0/partition.metadata", metadata_bytes(T))
    files.replace("recovery-point-offset-checkpoint", b"0\n1\nt 0 5\n")
    files.replace("t-0/kept", b"x")
    store = LogStore(files, node_id=1, new_ids=lambda: UUID(int=next(numbers)))
    local = LocalPartitions(BrokerConfig.from_properties({"node.id": "1"}), store, lambda _: None)
    topic, record = creation("t", T, 1)
    record.replicas, record.isr, record.leader, record.directories = [1, 2, 3], [1, 2, 3], 2, [UNASSIGNED] * 3
    image = await change(local, ClusterImage(), topic, record)
    assert local.misplaced() == [(LOST, T, 0)]
    changed = {"directories": [LOST, UNASSIGNED, UNASSIGNED], **partition}
    await change(local, image, PartitionChangeRecord(topic_id=T, partition_id=0, **changed))
    await local.reopen()
    kept = [name for name in files.list(".") if name.endswith("-stray")]
    if not again:
        assert (kept, local.awaited(), local.get(("t", 0))) == ([], [("t", 0)], None)
        return
    assert (local.find("t", 0).log.end_offset, local.awaited()) == (0, [])
    assert files.read_bytes(f"{kept[0]}/kept") == b"x"
    assert local.misplaced() == [(store.identity.directory_id, T, 0)]
    assert f"it is fetched again from broker 2, and the files are kept as {kept[0]}" in caplog.text
