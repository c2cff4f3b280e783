"""Partitions that are created together: few syncs, and after a power cut each directory is still known as its own."""

import itertools
from random import Random
from typing import Any
from uuid import UUID

import pytest

from busway_bus.log.checkpoints import NEW_OWNERS
from busway_bus.log.directories import aside, metadata_bytes, topic_id_in
from busway_bus.log.log_config import LogConfig
from busway_bus.log.meta_properties import WrongDirectory
from busway_bus.log.new_owners import NewOwners
from busway_bus.log.store import NOTED_FROM, LogStore, Opening
from busway_bus.testing.sim_files import PowerCut, SimFiles
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
CONFIG = LogConfig(retention_ms=-1)
TOPIC, OTHER = UUID(int=1), UUID(int=2)
MANY = NOTED_FROM + 2


def start(files: SimFiles) -> LogStore:
    """The store on that disk."""
    numbers = itertools.count(100)
    return LogStore(files, node_id=1, new_ids=lambda: UUID(int=next(numbers)))


def openings(count: int, *, new: bool, topic_id: UUID = TOPIC) -> list[Opening]:
    """Partitions of one topic."""
    return [Opening(key=("t", number), topic_id=topic_id, config=CONFIG, new=new) for number in range(count)]


def open_all(store: LogStore, opened: list[Opening]) -> None:
    """Open them in one batch."""
    store.expect(opened)
    problems = store.prepare(opened)
    if problems:
        raise next(iter(problems.values()))
    for opening in opened:
        outcome = store.load(opening, NOW)
        if isinstance(outcome, Exception):
            raise outcome
        store.adopt(opening, outcome)


def append(store: LogStore, number: int, *, flush: bool) -> None:
    """Append a record."""
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"v")
    log = store.logs["t", number]
    log.append(builder.build(), leader_epoch=0, now_ms=NOW)
    if flush:
        point = log.flush_point()
        point.sync()
        log.flushed(point)


def noted(files: SimFiles) -> list[str]:
    """The lines of the note."""
    return (files.read_bytes(NEW_OWNERS) or b"").decode().splitlines()[2:]


def owner(files: SimFiles, number: int) -> UUID | None:
    """What a directory says of its owner."""
    return topic_id_in(files.read_bytes(f"t-{number}/partition.metadata"))


def test_the_creation_of_many_partitions_waits_for_the_disk_no_more_often_than_that_of_a_few():
    """The owners are noted at once; one partition alone has no note."""
    waits = []
    for count in (1, MANY, 10 * MANY):
        files = SimFiles()
        store = start(files)
        before = files.syncs
        open_all(store, openings(count, new=True))
        waits.append(files.syncs - before)
        assert len(noted(files)) == (0 if count == 1 else count)
    assert waits == [1, 1, 1]


def test_records_of_a_partition_whose_metadata_was_lost_are_read_by_the_note():
    """The cut takes all that was not synced: the file is gone, what was flushed is there."""
    files = SimFiles()
    store = start(files)
    open_all(store, openings(MANY, new=True))
    append(store, 0, flush=True)
    append(store, 1, flush=False)
    files.remove("t-0/partition.metadata")  # its first flush has synced the name, but not the content
    files.cut_power(lambda limit: 0)
    assert owner(files, 0) is None
    again = start(files)
    open_all(again, openings(MANY, new=False))
    assert [again.logs["t", number].end_offset for number in range(MANY)] == [1, *[0] * (MANY - 1)]
    assert [owner(files, number) for number in range(MANY)] == [TOPIC] * MANY


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_any_step_of_the_creation_leaves_no_partition_that_cannot_be_opened(seed):
    """Nor one without what was flushed."""
    chance = Random(seed)
    for step in itertools.count(1):
        files = SimFiles()
        store = start(files)
        files.steps_left = step
        flushed = 0
        try:
            open_all(store, openings(MANY, new=True))
            for number in range(MANY):
                append(store, number, flush=number % 2 == 0)
                flushed = number // 2 + 1
            store.settle_new()
        except PowerCut:
            files.cut_power(chance.randrange)
        else:
            assert step > 3 * MANY
            return
        again = start(files)
        open_all(again, openings(MANY, new=False))
        assert all(again.logs["t", 2 * number].end_offset == 1 for number in range(flushed))


def test_the_note_is_emptied_once_the_files_are_on_disk():
    """Then it is not needed, and a cut loses nothing."""
    files = SimFiles()
    store = start(files)
    open_all(store, openings(MANY, new=True))
    store.settle_new()
    assert noted(files) == []
    files.cut_power(lambda limit: 0)
    assert [owner(files, number) for number in range(MANY)] == [TOPIC] * MANY
    before = files.syncs
    store.settle_new()
    assert files.syncs == before


def test_the_note_stays_after_a_failed_sync():
    """The system may report success for the next one although the content is lost."""
    files = SimFiles()
    store = start(files)
    open_all(store, openings(MANY, new=True))
    files.failing_syncs = True
    with pytest.raises(OSError, match="simulated"):
        store.settle_new()
    files.failing_syncs = False
    store.settle_new()
    assert noted(files)[0].startswith("t 0 ")
    open_all(start(files), openings(MANY, new=False))
    assert owner(files, 0) == TOPIC


def test_a_partition_that_is_made_again_while_the_files_are_synced_stays_noted(monkeypatch: pytest.MonkeyPatch):
    """Its new file is not on disk: without the note a power cut would leave a directory that cannot be opened."""
    files = SimFiles()
    store = start(files)
    open_all(store, openings(MANY, new=True))
    synced = NewOwners._synced

    def again(owners: NewOwners, key: Any, *rest: Any) -> bool:
        is_on_disk = synced(owners, key, *rest)
        if key == ("t", 0):
            for directory in store.delete([store.unregister(key, TOPIC)]):
                store.remove(directory)
            owners.note({key: TOPIC})
            files.make_directories(["t-0"])
            assert owners.write(key, TOPIC)
        return is_on_disk

    monkeypatch.setattr(NewOwners, "_synced", again)
    store.settle_new()
    assert [line.split()[1] for line in noted(files)] == ["0"]


def test_an_owner_that_is_not_noted_is_not_written():
    """The caller writes the file durably; also where the note was settled a moment ago."""
    files = SimFiles()
    store = start(files)
    open_all(store, openings(MANY, new=True))
    while store.settle_new():
        pass
    owners = NewOwners(files)
    assert not owners.write(("t", 0), TOPIC)
    assert owner(files, 0) == TOPIC


@pytest.mark.parametrize("clean", [True, False])
def test_indexes_of_closed_segments_are_made_again(clean: bool):
    """Retention renames them: without them it failed at each run, and nothing was freed."""
    files = SimFiles()
    store = start(files)
    log = store.open("t", 0, TOPIC, CONFIG, NOW)
    for _ in range(3):
        append(store, 0, flush=True)
        log.roll(NOW)
    store.close(clean=clean)
    for base in range(2):
        files.remove(f"t-0/{base:020d}.index")
    log = start(files).open("t", 0, TOPIC, CONFIG, NOW, new=False)
    log.advance_start(2, NOW)
    log.remove_deleted(NOW + 10**9)
    assert f"{0:020d}.log" not in files.list("t-0")
    log.close(clean=True)


def test_the_note_does_not_outlive_its_partitions():
    """A deleted one is not noted any more, once the note is written again: its deletion waits for the disk once."""
    files = SimFiles()
    store = start(files)
    open_all(store, openings(MANY, new=True))
    before = files.syncs
    doomed = store.delete([store.unregister(("t", 0), TOPIC)])
    assert files.syncs == before
    assert len(noted(files)) == MANY
    for directory in doomed:
        store.remove(directory)
    files.failing_syncs = True
    with pytest.raises(OSError, match="simulated"):
        store.settle_new()
    files.failing_syncs = False
    store.settle_new()
    assert ("t", 0) not in NewOwners(files).all()


def test_a_deletion_while_the_broker_was_down_is_known_by_the_note():
    """The directory is removed as its own; later nothing of it is noted."""
    files = SimFiles()
    store = start(files)
    open_all(store, openings(MANY, new=True))
    files.replace("t-1/partition.metadata", b"")
    again = start(files)
    assert aside(("t", 1), TOPIC, "-delete") in again.settle({("t", 2): TOPIC}, {TOPIC}).deleted
    again.settle_new()
    assert [line.split()[1] for line in noted(files)] == ["2"]


@pytest.mark.parametrize("of_note", [TOPIC, OTHER])
def test_the_note_proves_nothing_against_a_partition_metadata_or_for_another_topic(of_note):
    """A directory of another topic is refused whatever the note says."""
    files = SimFiles()
    store = start(files)
    open_all(store, openings(MANY, new=True, topic_id=of_note))
    append(store, 0, flush=True)
    files.replace("t-0/partition.metadata", metadata_bytes(OTHER) if of_note == TOPIC else b"")
    with pytest.raises(WrongDirectory):
        start(files).open("t", 0, TOPIC, CONFIG, NOW, new=False)


def test_a_new_partition_has_no_index_before_its_first_entry():
    """A stop in order makes those that are missing, for Kafka; without records there are none."""
    files = SimFiles()
    store = start(files)
    open_all(store, openings(2, new=True))
    append(store, 0, flush=False)
    assert files.list("t-0") == [f"{0:020d}.log", "partition.metadata"]
    store.close()
    names = [sorted({name.rpartition(".")[2] for name in files.list(f"t-{number}")}) for number in range(2)]
    assert [{"index", "timeindex"} <= {*kinds} for kinds in names] == [True, False]
    again = start(files)
    open_all(again, openings(2, new=False))
    assert [again.logs["t", number].end_offset for number in range(2)] == [1, 0]
