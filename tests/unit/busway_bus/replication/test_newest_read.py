"""The read that followers share: of the same partition, epoch, offset and end alone."""

from types import SimpleNamespace
from typing import Any

from busway_bus.replication.newest_read import NewestRead


def leader(epoch: int = 3, start: int = 0, end: int = 10) -> Any:
    """A partition with a log from `start` to `end`."""
    state = SimpleNamespace(leader_epoch=epoch)
    return SimpleNamespace(state=state, log=SimpleNamespace(start_offset=start, end_offset=end))


def test_the_last_read_is_given_for_the_same_offset() -> None:
    newest, partition, records = NewestRead(), leader(), bytearray(b"records")
    assert not newest.get(partition, 7)
    newest.note(partition, 7, records)
    assert newest.get(partition, 7) is records
    assert not newest.get(partition, 8)
    assert not newest.get(leader(), 7)


def test_it_is_not_given_after_a_change_of_the_log() -> None:
    """Appended records, another leader epoch in which the log may have been cut, or deleted records."""
    newest, partition = NewestRead(), leader()
    newest.note(partition, 7, bytearray(b"records"))
    partition.log.end_offset = 11
    assert not newest.get(partition, 7)
    partition.log.end_offset = 10
    assert newest.get(partition, 7)
    partition.state.leader_epoch = 4
    assert not newest.get(partition, 7)
    partition.state.leader_epoch = 3
    partition.log.start_offset = 8
    assert not newest.get(partition, 7)


def test_one_read_is_kept() -> None:
    newest, first, second = NewestRead(), leader(), leader()
    newest.note(first, 7, bytearray(b"first"))
    newest.note(second, 7, bytearray(b"second"))
    assert not newest.get(first, 7)
    assert newest.get(second, 7) == b"second"
