"""Snapshots of the metadata log on the simulated disk: a start after a power cut at any step has everything, and costs what is new."""

import itertools
import random
from uuid import UUID

import pytest

from busway_bus.controller.brokers import RegisterBroker
from busway_bus.controller.controller import ITSELF
from busway_bus.controller.topics import CreateTopics, DeleteTopics, NewTopic
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.log.flusher import Flusher
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.log.store import LogStore
from busway_bus.metadata.committing import Owner
from busway_bus.quorum.local_controller import LocalController
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.quorum.metadata_snapshots import MetadataSnapshots, SnapshotLimits
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.errors import KafkaError
from busway_protocol.types import Buffer

DIRECTORY = "__cluster_metadata-0"
NUMBERS = itertools.count(100)


def new_id() -> UUID:
    """Another one each time."""
    return UUID(int=next(NUMBERS))


class Broker:
    """The metadata log of one start, and its controller."""

    def __init__(
        self, files: SimFiles, *, bytes_max: int = 1, retention_bytes: int = 0, snapshots: bool = True
    ) -> None:
        self.store = LogStore(files, node_id=1, new_ids=new_id)
        self.flusher = Flusher()
        limits = SnapshotLimits(bytes_max=bytes_max, interval_ms=0, retention_bytes=retention_bytes)
        self.log = MetadataLog(self.store, self.flusher, limits=limits)
        if snapshots:
            self.log.allow_snapshots(lambda: False)
        self.controller = LocalController(BrokerConfig.defaults(), self.log, new_id)

    async def register(self) -> None:
        """Make the log usable."""
        await self.log.format()
        directory = self.store.identity.directory_id
        endpoint = Endpoint(name="PLAINTEXT", host="h", port=9092)
        await self.controller.request(
            RegisterBroker(
                node_id=1,
                incarnation=directory,
                endpoints=(endpoint,),
                rack=None,
                directories=(directory,),
                features=(),
            ),
            ITSELF,
        )

    async def create(self, *names: str) -> None:
        """Topics of two partitions."""
        topics = tuple(NewTopic(name=name, partitions=2, configs={"retention.ms": "7"}) for name in names)
        (*replies,) = await self.controller.request(CreateTopics(topics=topics), ITSELF)
        for reply in replies:
            if isinstance(reply, KafkaError):
                raise reply


def snapshots(files: SimFiles) -> list[str]:
    """The names of the files."""
    return [name for name in files.list(DIRECTORY) if "checkpoint" in name and not name.startswith("leader")]


def segments(files: SimFiles) -> list[str]:
    """The segments of the log."""
    return [name for name in files.list(DIRECTORY) if name.endswith(".log")]


class Majority:
    """A writer whose records are on the disks of others before they are on this one's."""

    leading, leader_id = True, 1

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    @property
    def end_offset(self) -> int:
        """Of the log."""
        return self.log.end_offset

    def begin(self, owner: Owner) -> None:
        """Lead."""
        self.owner = owner
        owner.leads(0, 0, 1)

    def propose(self, batch: Buffer) -> int:
        """Append and flush nothing: the others have."""
        self.log.append_own(batch, leader_epoch=1, now_ms=0)
        self.owner.committed(self.log.end_offset)
        return self.log.end_offset

    def snapshotted(self, start_offset: int) -> None:
        """No reader lives in the same process."""

    def check_disk(self) -> None:
        """It works."""


async def test_a_snapshot_is_never_ahead_of_the_log_on_the_same_disk():
    """What is in it is on the disks of a majority; without it on this one too, the next start would find a log that ends before its snapshot."""
    files = SimFiles()
    store = LogStore(files, node_id=1, new_ids=new_id)
    limits = SnapshotLimits(bytes_max=1, interval_ms=0)
    log = MetadataLog(store, Flusher(), limits=limits, writer=lambda log, _: Majority(log))
    log.allow_snapshots(lambda: False)
    log.writer.begin(log)
    await log.format()
    await log.drain()
    assert len(snapshots(files)) == 1
    files.cut_power(lambda limit: 0)
    again = MetadataLog(LogStore(files, node_id=1, new_ids=new_id), Flusher(), writer=lambda log, _: Majority(log))
    assert again.image == log.image


async def test_a_start_begins_with_the_newest_snapshot_and_the_log_loses_its_beginning():
    """Two snapshots stay, and the log from the older one on; what a start replays is what came behind the newest."""
    files = SimFiles()
    broker = Broker(files)
    await broker.register()
    for number in range(12):
        await broker.create(f"t{number}")
        await broker.log.drain()
        broker.flusher.close()
        image = broker.log.image
        if number % 3 == 2:
            files.cut_power(lambda limit: 0)
        broker = Broker(files)
        assert broker.log.image == image
    assert len(snapshots(files)) == 2
    assert len(segments(files)) <= 3
    older, newer = (int(name[:20]) for name in snapshots(files))
    assert broker.log.log.start_offset <= older < newer == broker.log.log.end_offset
    assert broker.log.log._segments[0].base_offset > 0


@pytest.mark.slow
async def test_a_power_cut_at_any_step_of_a_snapshot_loses_nothing():
    """Whatever part of what was not synced is left; and the start after it goes on and takes snapshots."""
    for steps in itertools.count():
        files = SimFiles()
        broker = Broker(files)
        await broker.register()
        await broker.create("a")
        await broker.log.drain()
        await broker.create("b")
        await broker.log.drain()
        image = broker.log.image
        broker.log._snapshots._bytes_covered -= 100
        files.steps_left = steps
        broker.log.maintain()
        await broker.log.drain()
        over = files.steps_left is not None and files.steps_left > 0
        files.cut_power(random.Random(steps).randrange)
        again = Broker(files)
        assert again.log.image == image, steps
        await again.create("c")
        await again.log.drain()
        files.cut_power(lambda limit: 0)
        assert Broker(files).log.image == again.log.image
        assert len(snapshots(files)) == 2, steps
        if over:
            break
    assert steps > 8


@pytest.mark.parametrize(
    ("limits", "now_ms", "expendable"),
    [
        (SnapshotLimits(retention_bytes=0), 0, True),
        (SnapshotLimits(retention_bytes=1_000_000), 0, False),
        (SnapshotLimits(retention_bytes=-1, retention_ms=-1), 10**15, False),
        (SnapshotLimits(retention_bytes=-1, retention_ms=0), 10**15, True),
    ],
)
async def test_retention_deletes_the_oldest_of_three_and_never_of_two(
    limits: SnapshotLimits, now_ms: int, expendable: bool
) -> None:
    """By bytes of log and snapshots, or by age; -1 is never (`KafkaMetadataLog.maybeClean`)."""
    files = SimFiles()
    broker = Broker(files, retention_bytes=-1)
    await broker.register()
    for name in "abc":
        await broker.create(name)
        await broker.log.drain()
    assert len(snapshots(files)) >= 3
    kept = MetadataSnapshots(files, DIRECTORY, limits)
    while len(kept.ids) > 3:
        kept.forget_oldest()
    assert kept.expendable(1_000, 0, now_ms) is expendable
    kept.forget_oldest()
    assert not kept.expendable(1_000, kept.ids[0].offset, now_ms)
    before = kept.ids
    kept.forget_oldest()
    assert kept.ids == before


@pytest.mark.parametrize("spoil", ["bit", "cut", "empty"])
async def test_a_damaged_snapshot_falls_back_to_the_one_before(spoil, caplog):
    """With a line that names it; the next snapshot is whole again. With both damaged nothing starts."""
    files = SimFiles()
    broker = Broker(files)
    await broker.register()
    for name in "abc":
        await broker.create(name)
        await broker.log.drain()
    image, (older, newer) = broker.log.image, snapshots(files)

    def damage(name: str) -> None:
        content = bytearray(files.read_bytes(f"{DIRECTORY}/{name}"))
        content[150] ^= 1
        kept = {"bit": bytes(content), "cut": bytes(content[:200]), "empty": b""}[spoil]
        files.replace(f"{DIRECTORY}/{name}", kept)

    damage(newer)
    again = Broker(files)
    assert again.log.image == image
    assert f"the snapshot {newer} is damaged and not used" in caplog.text
    await again.create("d")
    await again.log.drain()
    assert newer not in snapshots(files)
    assert Broker(files).log.image == again.log.image
    for name in snapshots(files):
        damage(name)
    with pytest.raises(CorruptLog, match=r"is damaged and not used.*restore __cluster_metadata-0 from a copy"):
        Broker(files)
    assert older


async def test_a_log_that_ends_before_its_snapshot_is_refused():
    """It was cut: it is unknown what came behind."""
    files = SimFiles()
    broker = Broker(files)
    await broker.register()
    await broker.create("a")
    await broker.log.drain()
    for name in files.list(DIRECTORY):
        if name.endswith((".log", ".index", ".timeindex", ".snapshot")):
            files.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(CorruptLog, match="restore __cluster_metadata-0 from a copy"):
        Broker(files)


async def test_none_is_taken_while_a_deletion_is_not_on_disk():
    """The next start has to know of it: the files still have their old names."""
    files = SimFiles()
    broker = Broker(files, snapshots=False)
    await broker.register()
    await broker.create("a")
    undeleted = True
    broker.log.allow_snapshots(lambda: undeleted)
    ((name, topic_id),) = await broker.controller.request(DeleteTopics(topics=("a",)), ITSELF)
    await broker.log.drain()
    assert (name, snapshots(files)) == ("a", [])
    assert topic_id in Broker(files).log.removed
    undeleted = False
    broker.log.maintain()
    await broker.log.drain()
    assert len(snapshots(files)) == 1


async def test_a_full_disk_puts_a_snapshot_off(monkeypatch, caplog):
    """One line, and not again at every change; the log goes on."""
    files = SimFiles()
    broker = Broker(files)
    opened = files.open

    def full(path):
        if "checkpoint" in path:
            raise OSError(28, "No space left on device")
        return opened(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open", full)
        await broker.register()
        for name in "abc":
            await broker.create(name)
        await broker.log.drain()
    assert caplog.text.count("cannot be written") == 1
    assert snapshots(files) == []
    monkeypatch.setattr(broker.log._snapshots, "_retry_ms", 0)
    await broker.create("d")
    await broker.log.drain()
    assert len(snapshots(files)) == 1
    assert Broker(files).log.image == broker.log.image
