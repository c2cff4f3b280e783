"""The data directory: identity, checkpoints, deletion, what a crash left, and partitions that cannot be opened."""

import itertools
from typing import Any
from uuid import UUID

import pytest

from busway_bus.log.directories import aside
from busway_bus.log.log_config import LogConfig
from busway_bus.log.meta_properties import WrongDirectory
from busway_bus.log.partition_log import CorruptLog
from busway_bus.log.store import LogStore
from busway_bus.testing.sim_files import PowerCut, SimFiles
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
CONFIG = LogConfig(retention_ms=-1)
TOPIC, OTHER = UUID(int=1), UUID(int=2)
LOG = f"t-0/{0:020d}.log"


def start(files: SimFiles, node_id: int = 1) -> LogStore:
    """The store on that disk."""
    numbers = itertools.count(100)
    return LogStore(files, node_id=node_id, new_ids=lambda: UUID(int=next(numbers)))


def fill(store: LogStore, topic: str = "t", count: int = 3, topic_id: UUID = TOPIC) -> None:
    """Open a partition, append to it and flush."""
    log = store.open(topic, 0, topic_id, CONFIG, NOW)
    for _ in range(count):
        builder = BatchBuilder()
        builder.append(NOW, b"k", b"v")
        log.append(builder.build(), leader_epoch=0, now_ms=NOW)
    point = log.flush_point()
    point.sync()
    log.flushed(point)


def save(store: LogStore) -> bool:
    """Write a checkpoint."""
    return store.write(store.checkpoint({}))


def delete(store: LogStore, topic: str = "t", topic_id: UUID = TOPIC) -> None:
    """Delete a partition and its files."""
    for directory in store.delete([store.unregister((topic, 0), topic_id)]):
        store.remove(directory)


def text(files: SimFiles, name: str) -> list[str]:
    """The entries of a checkpoint."""
    return (files.read_bytes(name) or b"").decode().splitlines()[2:]


def test_a_directory_is_formatted_once_and_known_again():
    """The identity stays; another node's directory is refused, and so is one that cannot be read."""
    files = SimFiles()
    first = start(files).identity
    assert start(files).identity == first
    with pytest.raises(WrongDirectory, match="belongs to node 1"):
        start(files, node_id=2)
    files.replace("meta.properties", b"version=1\n")
    with pytest.raises(WrongDirectory, match="cannot be read"):
        start(files)


def test_a_clean_stop_is_trusted_once():
    """The mark is taken away at the start, so that a crash afterwards is noticed."""
    files = SimFiles()
    store = start(files)
    fill(store)
    store.close()
    assert files.read_bytes(".kafka_cleanshutdown") is not None
    again = start(files)
    assert files.read_bytes(".kafka_cleanshutdown") is None
    log = again.open("t", 0, TOPIC, CONFIG, NOW)
    assert (log.end_offset, log.flushed_offset) == (3, 3)


def test_the_epoch_of_the_last_registration_is_known_after_any_end():
    """In Kafka's mark after a clean stop, in a file of Busway's own after a kill."""
    files = SimFiles()
    first = start(files)
    assert (first.last_broker_epoch, first.previous_broker_epoch) == (-1, -1)
    first.registered(17)
    killed = start(files)
    assert (killed.clean, killed.last_broker_epoch, killed.previous_broker_epoch) == (False, 17, -1)
    killed.registered(18)
    killed.close()
    stopped = start(files)
    assert (stopped.clean, stopped.last_broker_epoch, stopped.previous_broker_epoch) == (True, 18, 18)


def test_the_recovery_point_turns_a_hole_into_an_error_and_the_partition_can_be_given_up():
    """Below the checkpoint nothing is cut; an empty directory in its place is the operator's word that the loss is accepted."""
    files = SimFiles()
    store = start(files)
    fill(store)
    save(store)
    assert text(files, "recovery-point-offset-checkpoint") == ["t 0 3"]
    files.open(LOG).truncate(100)
    again = start(files)
    with pytest.raises(CorruptLog):
        again.open("t", 0, TOPIC, CONFIG, NOW)
    fill(again, "u", topic_id=OTHER)
    again.close()
    assert text(files, "recovery-point-offset-checkpoint") == ["t 0 3", "u 0 3"]
    assert files.read_bytes(".kafka_cleanshutdown") is None
    with pytest.raises(CorruptLog):
        start(files).open("t", 0, TOPIC, CONFIG, NOW)
    files.remove_tree("t-0")
    last = start(files)
    with pytest.raises(
        WrongDirectory, match=r"t-0 is gone, but it had records up to offset 3.*make an empty directory"
    ):
        last.open("t", 0, TOPIC, CONFIG, NOW, new=False)
    files.make_directory("t-0")
    last = start(files)
    assert last.open("t", 0, TOPIC, CONFIG, NOW, new=False).end_offset == 0
    assert last.open("u", 0, OTHER, CONFIG, NOW).end_offset == 3


def test_a_partition_that_cannot_be_opened_can_be_deleted():
    """Its files go, and the name is free."""
    files = SimFiles()
    fill(start(files))
    files.open(LOG).content[70] ^= 1
    store = start(files)
    store._recovery["t", 0] = 3
    with pytest.raises(CorruptLog):
        store.open("t", 0, TOPIC, CONFIG, NOW)
    delete(store)
    assert not files.list("t-0")
    assert store.open("t", 0, OTHER, CONFIG, NOW).end_offset == 0
    store.close()
    assert files.read_bytes(".kafka_cleanshutdown") is not None


def test_a_partition_whose_directory_could_not_be_made_can_be_deleted():
    """A full disk at the creation of a topic leaves nothing that keeps it from being deleted."""
    files = SimFiles()
    store = start(files)
    files.failing = True
    with pytest.raises(OSError, match="simulated"):
        store.open("t", 0, TOPIC, CONFIG, NOW)
    files.failing = False
    delete(store)
    assert store.open("t", 0, OTHER, CONFIG, NOW).end_offset == 0


def test_the_start_of_a_log_survives():
    """log-start-offset-checkpoint, as DeleteRecords needs it."""
    files = SimFiles()
    store = start(files)
    fill(store)
    store.logs["t", 0].advance_start(2, NOW)
    save(store)
    assert start(files).open("t", 0, TOPIC, CONFIG, NOW).start_offset == 2


def test_a_deleted_topic_leaves_nothing_that_could_harm_its_successor():
    """Its checkpoints go with it, also those in a checkpoint that was taken before and written after."""
    files = SimFiles()
    store = start(files)
    fill(store)
    store.logs["t", 0].advance_start(2, NOW)
    store.note_cleaned(("t", 0), 1)
    save(store)
    late = store.checkpoint({})
    delete(store)
    assert not store.write(late)
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        assert text(files, name) == []
    assert store.cleaned_offset(("t", 0)) == 0
    store.note_cleaned(("t", 0), 1)
    assert store.cleaned_offset(("t", 0)) == 0
    log = store.open("t", 0, OTHER, CONFIG, NOW)
    assert (log.start_offset, log.end_offset) == (0, 0)


GONE = UUID(int=3)


def content(files: SimFiles, directory: str) -> dict[str, bytes | None]:
    """Every file in a directory."""
    return {name: files.read_bytes(f"{directory}/{name}") for name in files.list(directory)}


def test_a_start_removes_only_what_a_committed_deletion_names_and_keeps_the_rest():
    """Half-deleted directories go; those of unknown topics are set aside whole; what a known partition expects stays in place."""
    files = SimFiles()
    store = start(files)
    for topic, topic_id in (("t", TOPIC), ("u", OTHER), ("gone", GONE), ("again", GONE), ("torn", GONE)):
        fill(store, topic, topic_id=topic_id)
    save(store)
    files.make_directory(f"v-0.{GONE.hex}-delete")
    files.make_directory("w-0.00-delete")
    files.make_directory("no-logs")
    files.make_directory("looks-like-0")
    files.replace("torn-0/partition.metadata", b"")
    before = {name: content(files, name) for name in ("t-0", "u-0", "torn-0")}
    again = start(files)
    known = {("t", 0): TOPIC, ("again", 0): UUID(int=9), ("v", 0): UUID(int=10)}
    settled = again.settle(known, {GONE})
    assert settled.deleted == [f"again-0.{GONE.hex}-delete", f"gone-0.{GONE.hex}-delete", f"v-0.{GONE.hex}-delete"]
    strays = {name: f"{name}.{UUID(int=100).hex}-stray" for name in ("u-0", "torn-0")}
    assert settled.strays == strays
    assert content(files, "t-0") == before["t-0"]
    for name, kept in strays.items():
        assert content(files, kept) == before[name]
    names = set(files.list("."))
    assert {"no-logs", "looks-like-0", "w-0.00-delete"} <= names
    assert not names & {"gone-0", "again-0", "u-0", "torn-0", *settled.deleted}
    assert "again 0 3" not in text(files, "recovery-point-offset-checkpoint")
    assert again.open("again", 0, UUID(int=9), CONFIG, NOW, new=False).end_offset == 0
    assert again.open("t", 0, TOPIC, CONFIG, NOW, new=False).end_offset == 3
    assert [line for line in settled.lines() if "u-0" in line and "kept as" in line]
    third = start(files).settle(known, {GONE})
    assert (third.deleted, third.strays, third.earlier) == ([], {}, sorted(strays.values()))
    assert "2 directories set aside" in "".join(third.lines())


def test_a_replica_that_was_moved_while_the_broker_was_stopped_is_set_aside():
    """Whole, as in Kafka; the partition may move back, and begins empty then."""
    files = SimFiles()
    store = start(files)
    fill(store)
    fill(store, "u", topic_id=OTHER)
    save(store)
    before = content(files, "t-0")
    again = start(files)
    settled = again.settle({("u", 0): OTHER}, set(), {("t", 0): TOPIC})
    kept = f"t-0.{UUID(int=100).hex}-stray"
    assert (settled.strays, settled.moved) == ({"t-0": kept}, {"t-0"})
    assert content(files, kept) == before
    assert [line for line in settled.lines() if "moved to other brokers" in line and kept in line]
    assert again.open("u", 0, OTHER, CONFIG, NOW, new=False).end_offset == 3
    assert again.open("t", 0, TOPIC, CONFIG, NOW, new=False).end_offset == 0


def test_a_deletion_that_was_cut_off_leaves_no_checkpoint_to_a_topic_of_the_same_name():
    """The old directory has its new name already, the new topic has none yet: what the checkpoints say is the old one's."""
    files = SimFiles()
    fill(start(files))
    store = start(files)
    store.open("t", 0, TOPIC, CONFIG, NOW)
    save(store)
    files.rename("t-0", aside(("t", 0), TOPIC, "-delete"))
    again = start(files)
    again.settle({("t", 0): OTHER}, {TOPIC})
    assert text(files, "recovery-point-offset-checkpoint") == []
    assert again.open("t", 0, OTHER, CONFIG, NOW, new=False).end_offset == 0


@pytest.mark.parametrize(
    "damage",
    [b"", b"version: 0\ntopic_id: AAAA", b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", b"\0" * 40, None],
    ids=["empty", "torn", "version", "zeroes", "gone"],
)
def test_a_damaged_partition_metadata_costs_no_record(damage):
    """The partition is refused with what to do; not even deleting its topic removes what is not known to be the topic's."""
    files = SimFiles()
    fill(start(files))
    if damage is None:
        files.remove("t-0/partition.metadata")
    else:
        files.replace("t-0/partition.metadata", damage)
    before = content(files, "t-0")
    store = start(files)
    store.settle({("t", 0): TOPIC}, {OTHER})
    with pytest.raises(WrongDirectory, match=r"t-0 its owner cannot be determined.*topic_id: AAAAAAAAAAAAAAAAAAAAAQ"):
        store.open("t", 0, TOPIC, CONFIG, NOW, new=False)
    assert content(files, "t-0") == before
    delete(store)
    assert content(files, aside(("t", 0), TOPIC, "-stray")) == before


def test_a_directory_without_meta_properties_is_not_formatted_over():
    """A new cluster id over old data; an empty directory gets one, and what only looks like a partition's is no data."""
    files = SimFiles()
    fill(start(files))
    files.remove("meta.properties")
    with pytest.raises(WrongDirectory, match=r"meta.properties is missing from the data directory, but t-0 holds data"):
        start(files)
    files.remove_tree("t-0")
    files.make_directory("lost-0")
    assert start(files).formatted


def test_names_set_aside_fit_a_file_system():
    """255 bytes, the topic cut short, as Kafka does it."""
    name = aside(("t" * 249, 10_000), TOPIC, "-delete")
    assert len(name) == 255
    assert name.endswith(f"t-10000.{TOPIC.hex}-delete")
    assert aside(("a.b", 3), TOPIC, "-stray") == f"a.b-3.{TOPIC.hex}-stray"


def test_an_older_topics_directory_is_refused():
    """A topic created again must not read its predecessor's records."""
    files = SimFiles()
    fill(start(files))
    with pytest.raises(WrongDirectory, match="belongs to the topic id"):
        start(files).open("t", 0, OTHER, CONFIG, NOW)


def test_an_unchanged_checkpoint_is_not_written_again():
    """An idle node leaves the disk alone."""
    files = SimFiles()
    store = start(files)
    fill(store)
    save(store)
    before = files.syncs
    save(store)
    assert files.syncs == before


def maintained(store: LogStore, now_ms: int) -> list[str]:
    """What went wrong in a maintenance without a stop."""
    steps = store.maintain(now_ms)
    while True:
        try:
            next(steps)
        except StopIteration as over:
            return list(over.value)


def test_maintenance_stops_after_each_log_and_goes_on_without_one_that_is_deleted_meanwhile():
    """A node of ten thousand logs does other things between."""
    files = SimFiles()
    store = start(files)
    for number in range(3):
        store.open("t", number, TOPIC, LogConfig(), NOW)
    steps = store.maintain(NOW)
    next(steps)
    store.delete([store.unregister(("t", 1), TOPIC)])
    assert len(list(steps)) == 1


def test_producers_expire_and_segments_roll_in_maintenance():
    """Every log is looked at."""
    files = SimFiles()
    store = start(files)
    log = store.open("t", 0, TOPIC, LogConfig(segment_ms=10, retention_ms=-1), NOW)
    builder = BatchBuilder(producer_id=3, producer_epoch=0, base_sequence=0)
    builder.append(NOW, b"k", b"v")
    log.append(builder.build(), leader_epoch=0, now_ms=NOW)
    assert maintained(store, NOW + 11) == []
    assert (log.active.base_offset, len(log.producers)) == (1, 1)
    assert len(list(store.expire_producers(NOW + 11, after_ms=10))) == 1
    assert (log.active.base_offset, len(log.producers)) == (1, 0)


def test_a_log_that_cannot_roll_does_not_keep_others_from_it():
    """On a disk that is full retention of the others has to go on."""

    class Full(SimFiles):
        def open(self, path):
            if path.startswith("t-0") and path.endswith(f"{3:020d}.log"):
                raise OSError(28, "no space left on device")
            return super().open(path)

    files = Full()
    store = start(files)
    for topic, topic_id in (("t", TOPIC), ("u", OTHER)):
        fill(store, topic, topic_id=topic_id)
        store.logs[topic, 0].config = LogConfig(retention_ms=1)
    (problem,) = maintained(store, NOW + 10)
    assert "t-0" in problem
    assert "no space" in problem
    assert (store.logs["t", 0].end_offset, store.logs["t", 0].start_offset) == (3, 0)
    assert store.logs["u", 0].start_offset == 3


def test_the_mark_of_a_clean_stop_does_not_come_back_with_a_power_cut():
    """Its removal is on disk before anything is written, or what the cut tore would be trusted at the next start."""
    files = SimFiles()
    store = start(files)
    fill(store)
    store.close()
    start(files)
    files.cut_power(lambda limit: 0)
    assert files.read_bytes(".kafka_cleanshutdown") is None


class Sick:
    """A file that cannot be synced."""

    def __init__(self, file):
        self._file = file

    def sync(self):
        raise OSError(5, "Input/output error")

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_one_log_that_cannot_be_closed_does_not_keep_the_others_from_it(caplog, monkeypatch):
    """The others are closed, the failure is reported, and no mark says that all is well."""
    files = SimFiles()
    store = start(files)
    fill(store)
    fill(store, "u", topic_id=OTHER)
    monkeypatch.setattr(store.logs["t", 0].active, "_log", Sick(store.logs["t", 0].active._log))
    store.close()
    assert "t-0 cannot be closed in order" in caplog.text
    assert files.read_bytes(".kafka_cleanshutdown") is None
    assert store.logs["u", 0].closed
    assert f"{3:020d}.snapshot" in files.list("u-0")


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one_and_is_written_later():
    """No entry is lost by a disk that refuses for a while."""
    files = SimFiles()
    store = start(files)
    fill(store)
    save(store)
    fill(store, "u", topic_id=OTHER)
    files.failing = True
    with pytest.raises(OSError, match="simulated"):
        save(store)
    files.failing = False
    assert text(files, "recovery-point-offset-checkpoint") == ["t 0 3"]
    save(store)
    assert text(files, "recovery-point-offset-checkpoint") == ["t 0 3", "u 0 3"]


@pytest.mark.parametrize("steps", range(12))
def test_a_log_that_is_cut_is_not_taken_for_damaged(steps):
    """The recovery point falls first: whatever a power cut leaves of it, the next start has a log, of the old length or of the new one."""
    files = SimFiles()
    store = start(files)
    fill(store, count=5)
    assert save(store)
    taken = store.checkpoint({})
    files.steps_left = steps
    try:
        store.cut(("t", 0), 2, NOW)
        files.steps_left = None
        assert not store.write(taken)  # what was known before says that more is on disk
    except PowerCut:
        pass
    files.cut_power(lambda limit: 0)
    again = start(files)
    assert again.open("t", 0, TOPIC, CONFIG, NOW, new=False).end_offset in {2, 5}


def test_a_checkpoint_that_a_cut_overtakes_is_not_written():
    """The cut is in another thread: it may end between two looks of the one that collects the offsets."""

    class Overtaken(dict[Any, Any]):
        """Logs of which the first is cut once its offset is known."""

        def items(self) -> Any:
            for key, log in super().items():
                yield key, log
                if log.end_offset > 2:
                    store.cut(key, 2, NOW)

    files = SimFiles()
    store = start(files)
    fill(store, count=5)
    assert save(store)
    store.logs = Overtaken(store.logs)
    assert not store.write(store.checkpoint({}))
    assert text(files, "recovery-point-offset-checkpoint") == ["t 0 2"]


def test_a_directory_that_was_formatted_by_hand_gets_its_own_id():
    """A formatter of the nodes of a cluster writes what they share; what is of one directory alone is made up there, once."""
    files = SimFiles()
    files.replace("meta.properties", b"version=1\ncluster.id=here\nnode.id=1\n")
    store = start(files)
    assert (store.identity.cluster_id, store.formatted) == ("here", True)
    assert start(files).identity == store.identity
