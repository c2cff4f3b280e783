"""Topics that are deleted and made again under their names: a power cut at each step, also of the start after it."""

import contextlib
import dataclasses
import itertools
from random import Random
from uuid import UUID

import pytest
from tests.support.variants import with_variants
from tests.unit.busway_bus.log.test_new_owners import CONFIG, NOW, OTHER, TOPIC, open_all, start

from busway_bus.log.checkpoints import RECOVERY_POINTS
from busway_bus.log.directories import aside
from busway_bus.log.store import NOTED_FROM, LogStore, Opening
from busway_bus.testing.sim_files import PowerCut, SimFiles
from busway_protocol.records.builder import BatchBuilder

STARTS = 3
"""Starts after a cut, of which all but the last are cut, too."""


class Disk:
    """A disk, what its broker has flushed, and which of the two topics of one name its cluster has."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.files = SimFiles()
        self.count = self.chance.choice([NOTED_FROM - 1, NOTED_FROM + 1])
        self.topic_id: UUID | None = None
        self.deleted: set[UUID] = set()
        self.flushed: dict[UUID, set[int]] = {TOPIC: set(), OTHER: set()}

    def create(self, store: LogStore, topic_id: UUID) -> None:
        """Make the topic, with a record in each partition, some of them flushed."""
        self.topic_id = topic_id
        open_all(store, self.openings(new=True))
        self.append(store, lambda: self.chance.random() < 0.5)

    def openings(self, *, new: bool) -> list[Opening]:
        """Partitions of the topic that the cluster has now."""
        assert self.topic_id is not None
        return [Opening(key=key, topic_id=self.topic_id, config=CONFIG, new=new) for key in self.keys]

    @property
    def keys(self) -> list[tuple[str, int]]:
        """Partitions of both topics."""
        return [("t", number) for number in range(self.count)]

    def append(self, store: LogStore, flushes) -> None:
        """Append a record with the topic's id to each partition."""
        assert self.topic_id is not None
        for number in range(self.count):
            builder = BatchBuilder()
            builder.append(NOW, b"k", str(self.topic_id).encode())
            log = store.logs["t", number]
            log.append(builder.build(), leader_epoch=0, now_ms=NOW)
            if flushes():
                point = log.flush_point()
                point.sync()
                log.flushed(point)
                self.flushed[self.topic_id].add(number)

    def checkpoint(self, store: LogStore) -> None:
        """Write the checkpoints, as each minute."""
        store.settle_new()
        store.write(store.checkpoint({key: log.flushed_offset for key, log in store.logs.items()}))

    def delete(self, store: LogStore) -> None:
        """Delete the topic, which is committed before its broker begins."""
        topic_id = self.topic_id
        assert topic_id is not None
        self.deleted.add(topic_id)
        self.topic_id = self.chance.choice([None, OTHER])  # what the image of the next start knows
        for directory in store.delete([store.unregister(key, topic_id) for key in self.keys]):
            store.remove(directory)

    def live(self, step: int) -> bool:
        """Make the topic twice; cut the power at that step. False if there are not so many."""
        store = start(self.files)
        self.files.steps_left = step
        try:
            self.create(store, TOPIC)
            if self.chance.random() < 0.5:
                self.checkpoint(store)
            self.delete(store)
            self.create(store, OTHER)
            self.checkpoint(store)
        except PowerCut:
            self.cut()
            return True
        return False

    def cut(self) -> None:
        """Cut the power; sometimes nothing unsynced is left, or the process alone died."""
        kind = self.chance.randrange(3)
        if kind == 0:
            self.files.power_on()
        else:
            self.files.cut_power(self.chance.randrange if kind == 1 else lambda limit: 0)

    def start(self, steps: int | None) -> None:
        """Start as a node does; what was flushed is there, and nothing of the other topic."""
        self.files.steps_left = steps
        store = start(self.files)
        known = {} if self.topic_id is None else dict.fromkeys(self.keys, self.topic_id)
        assert not store.settle(known, self.deleted).strays
        if self.topic_id is None:
            self.create(store, OTHER)
        else:
            open_all(store, self.openings(new=False))
        for number in range(self.count):
            content = b"".join(store.logs["t", number].batches())
            assert not any(str(other).encode() in content for other in self.deleted)
            assert content or number not in self.flushed[self.topic_id]
        self.append(store, lambda: True)
        if self.chance.random() < 0.5:
            self.checkpoint(store)


@pytest.mark.slow
@pytest.mark.parametrize("seed", with_variants(range(40), gate=[1]))
def test_a_power_cut_at_any_step_leaves_the_second_topic_whole_and_nothing_of_the_first(seed: int) -> None:
    """Nor a partition that cannot be opened; also where the starts after the cut are cut."""
    for step in itertools.count(1):
        disk = Disk(1000 * seed + step)
        if not disk.live(step):
            assert step > 50
            return
        for _ in range(STARTS - 1):
            with contextlib.suppress(PowerCut):
                disk.start(disk.chance.randrange(60))
            disk.cut()
        disk.start(None)


@pytest.mark.parametrize("known", [{}, {("t", 0): OTHER}])
def test_a_deletion_that_is_finished_at_a_start_leaves_no_offsets(known: dict[tuple[str, int], UUID]) -> None:
    """The next topic of that name has no directory when the start after its creation was cut."""
    files = SimFiles()
    store = start(files)
    store.open("t", 0, TOPIC, CONFIG, NOW)
    assert store.write(dataclasses.replace(store.checkpoint({}), offsets={RECOVERY_POINTS: {("t", 0): 7}}))
    files.rename("t-0", aside(("t", 0), TOPIC, "-delete"))
    start(files).settle(known, {TOPIC})
    assert "t-0" not in str(files.list("."))
    again = start(files)
    again.settle({("t", 0): OTHER}, {TOPIC})
    again.open("t", 0, OTHER, CONFIG, NOW, new=False)
