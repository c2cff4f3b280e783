"""Truncation against a list of batches: any history of appends, rolls, cuts, failures of the disk and restarts reads as the list does."""

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.busway_bus.log.transactional import truncate

from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import PartitionLog
from busway_bus.testing.sim_files import PowerCut, SimFiles
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
CONFIG = LogConfig(retention_ms=-1, segment_bytes=700, index_interval_bytes=100)


class Disk(SimFiles):
    """A disk on which one step fails, after `good_steps` more; none where that is None."""

    good_steps: int | None = None

    def check_disk(self) -> None:
        """Fail once the steps are used up."""
        super().check_disk()
        if self.good_steps is not None:
            self.good_steps -= 1
            if self.good_steps < 0:
                self.good_steps = None
                raise OSError(errno.EIO, "simulated input/output error of one step")


class History:
    """A log, and the list that it must read as: base offset, timestamps and content of each batch."""

    def __init__(self) -> None:
        self.files = Disk()
        self.files.make_directory("t-0")
        self.batches: list[tuple[int, list[int], bytes]] = []
        self.log = self.open()

    def open(self, *, flushed: int = 0, clean: bool = False) -> PartitionLog:
        """The log of this disk."""
        return PartitionLog(self.files, "t-0", CONFIG, now_ms=NOW, flushed=flushed, clean=clean)

    @property
    def end(self) -> int:
        """The offset after the last batch of the list."""
        return self.batches[-1][0] + len(self.batches[-1][1]) if self.batches else 0

    def append(self, number: int) -> None:
        """A batch of one to three records, with times that go back now and then."""
        times = [NOW + (number * (at + 7)) % 50 for at in range(1 + number % 3)]
        builder = BatchBuilder()
        for time in times:
            builder.append(time, b"k", bytes(number % 97))
        info = self.log.append(builder.build(), leader_epoch=number % 5 + len(self.batches), now_ms=NOW)
        assert info.first_offset == self.end
        self.batches.append((info.first_offset, times, self.read(info.first_offset)[0]))

    def flush(self, _: int) -> None:
        """All is on disk."""
        point = self.log.flush_point()
        point.sync()
        self.log.flushed(point)

    def roll(self, _: int) -> None:
        """The next batch begins a segment."""
        self.log.roll(NOW)

    def kept(self, offset: int) -> list[tuple[int, list[int], bytes]]:
        """What is left by a cut at an offset: whole batches."""
        return [batch for batch in self.batches if batch[0] + len(batch[1]) <= offset]

    def truncate(self, number: int) -> None:
        """Cut at an offset, which may be within a batch."""
        offset = number % (self.end + 1)
        truncate(self.log, offset, NOW)
        self.batches = self.kept(offset)

    def truncate_on_a_failing_disk(self, number: int) -> None:
        """The cut fails at some step, all that is left can be read meanwhile, and it is done when it is tried again."""
        offset = number % (self.end + 1)
        self.files.good_steps = number // 1000 % 12
        while self.files.good_steps is not None:
            try:
                truncate(self.log, offset, NOW)
                self.files.good_steps = None
            except OSError:
                self.batches = [batch for batch in self.batches if batch[0] < self.log.end_offset]
                assert len(self.batches) >= len(self.kept(offset))
                self.check()
        truncate(self.log, offset, NOW)
        self.batches = self.kept(offset)

    def truncate_in_a_power_cut(self, number: int) -> None:
        """What was on disk before and is not cut is there after the restart, and behind it nothing that was not in the log."""
        offset = number % (self.end + 1)
        flushed = min(self.log.flushed_offset, offset)
        self.files.steps_left = number // 1000 % 12
        try:
            truncate(self.log, offset, NOW)
        except PowerCut:
            pass
        else:
            self.batches = self.kept(offset)
        self.files.cut_power(lambda limit: number % limit)
        flushed = max((base + len(times) for base, times, _ in self.kept(flushed)), default=0)
        self.log = self.open(flushed=flushed)
        assert flushed <= self.log.end_offset <= self.end
        self.batches = self.kept(self.log.end_offset)

    def restart(self, _: int) -> None:
        """In order; closed segments are trusted until they are read."""
        self.log.close(clean=True)
        self.log = self.open(flushed=self.end, clean=True)

    def kill(self, _: int) -> None:
        """The process ends, the page cache stays."""
        self.log = self.open(flushed=self.log.flushed_offset)

    def cut_power(self, number: int) -> None:
        """What was flushed stays."""
        flushed = self.log.flushed_offset
        self.files.cut_power(lambda limit: number % limit)
        self.log = self.open(flushed=flushed)
        assert flushed <= self.log.end_offset <= self.end
        self.batches = self.kept(self.log.end_offset)

    def read(self, offset: int) -> list[bytes]:
        """Batches from the one with an offset, as a consumer reads them."""
        batches = []
        while data := self.log.read(offset, 300, up_to=self.log.end_offset):
            for header, whole in iter_batches(data):
                assert header.next_offset > offset >= header.base_offset
                batches.append(bytes(whole))
                offset = header.next_offset
        return batches

    def check(self) -> None:
        """From each offset the log reads as the list."""
        assert self.log.end_offset == self.end
        assert self.log.flushed_offset <= self.end
        for number, (base, times, _) in enumerate(self.batches):
            for offset in range(base, base + len(times)):
                assert self.read(offset) == [content for _, _, content in self.batches[number:]]
        assert self.read(self.end) == []

    def check_times(self) -> None:
        """For each time the first record from it on; the largest time."""
        times = [(base + at, time) for base, stamps, _ in self.batches for at, time in enumerate(stamps)]
        for time in range(NOW, NOW + 51):
            expected = next((place for place in times if place[1] >= time), None)
            answer = result(self.log.search_time(time, up_to=self.end))
            assert (answer and answer[:2]) == expected
        largest = max((time for _, time in times), default=None)
        answer = result(self.log.search_largest_time(up_to=self.end))
        assert (answer and answer[:2]) == next((place for place in times if place[1] == largest), None)


def result(search):
    """What a search finds in the end."""
    try:
        while True:
            next(search)
    except StopIteration as over:
        return over.value


ACTIONS: dict[str, Callable[[History, int], None]] = {
    name: getattr(History, name)
    for name in (
        "append",
        "flush",
        "roll",
        "truncate",
        "truncate_on_a_failing_disk",
        "truncate_in_a_power_cut",
        "restart",
        "kill",
        "cut_power",
    )
}
STEPS = st.lists(
    st.tuples(st.sampled_from(["append"] * 9 + list(ACTIONS)), st.integers(0, 10**6)), min_size=5, max_size=30
)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=300)
def test_a_log_that_is_cut_reads_as_a_list_that_is_cut(steps) -> None:
    """After each step but appends, where the next cut or restart would show what they left."""
    history = History()
    for name, number in steps:
        ACTIONS[name](history, number)
        if name != "append":
            history.check()
    history.check()
    history.check_times()


def test_an_index_without_its_log_is_removed_at_a_start() -> None:
    """Else it would become that of the next segment which begins there; names may be lost one by one in a power cut."""
    history = History()
    history.append(0)
    for suffix in (".index", ".timeindex", ".txnindex"):
        history.files.open(f"t-0/{1:020d}{suffix}").append([bytes(24)])
    history.kill(0)
    history.roll(0)
    assert all(history.files.open(f"t-0/{1:020d}{suffix}").size == 0 for suffix in (".index", ".timeindex"))
    history.append(0)
    history.check()
    history.check_times()
