"""Bugs put into the quorum's driver, and into what is built on it, on purpose: a simulation that does not find them is worth nothing.

Here: each as a change of a named function, with its story.
Not here: how they are put in (`tests.simulation.planting`), and that they are found (`test_controllers`). Those of the
core are beside its own simulation.
"""

import asyncio
from typing import Any, Final

from busway_bus.quorum.votes import majority
from tests.simulation.planting import Planted


def _votes_in_memory(original: Any) -> Any:
    def write(self: Any, election: Any) -> None:
        if election.voted_id < 0 or election.leader_id >= 0:
            original(self, election)

    return write


def _never_synced(_: Any) -> Any:
    return lambda self, log, flushed: asyncio.get_running_loop().call_soon(flushed, None)


def _told_at_once(original: Any) -> Any:
    def write(self: Any, ready: Any) -> None:
        original(self, ready)
        asyncio.get_running_loop().call_soon(self._persisted, ready.number)

    return write


def _one_voter_too_few(_: Any) -> Any:
    def committed(ends: Any, epoch_start_offset: int) -> int | None:
        descending = sorted(ends, reverse=True)
        offset = descending[majority(len(descending)) - 2]
        return offset if offset > epoch_start_offset else None

    return committed


def _published_when_written(original: Any) -> Any:
    def hold(self: Any, command: Any, change: Any) -> None:
        original(self, command, change)
        self.committed(change.end_offset)

    return hold


def _keeps_the_undecided(_: Any) -> Any:
    def lost(self: Any) -> None:
        self._newest, self._epoch = None, -1

    return lost


def _decides_too_early(_: Any) -> Any:
    def catch_up(self: Any) -> None:
        if self._epoch >= 0 and self._newest is None:
            self._newest = self._committed_image = self.image
            self._go_on()

    return catch_up


def _starts_with_all(original: Any) -> Any:
    def init(self: Any, store: Any, snapshots: Any, now_ms: int, *, all_committed: bool) -> None:
        original(self, store, snapshots, now_ms, all_committed=True)

    return init


def _never_cuts(original: Any) -> Any:
    def change(self: Any, write: Any) -> Any:
        self._truncate = lambda offset: None
        return original(self, write)

    return change


_WRITER, _LOG = "busway_bus.quorum.log_writer:LogWriter", "busway_bus.quorum.metadata_log:MetadataLog"
PLANTED: Final = (
    Planted(
        "vote_in_memory",
        "a vote is sent and never written",
        (("busway_bus.quorum.election_file:ElectionFile.write", _votes_in_memory),),
    ),
    Planted(
        "never_synced",
        "written data counts as synced",
        (("busway_bus.log.flusher:Flusher.flush", _never_synced),),
    ),
    Planted(
        "replies_before_sync",
        "replies are sent before the data that they depend on is on disk",
        ((f"{_WRITER}.write", _told_at_once),),
    ),
    Planted(
        "minority_commits",
        "the high watermark needs one voter fewer than a majority",
        (("busway_bus.quorum.leadership:committed_offset", _one_voter_too_few),),
    ),
    Planted(
        "published_when_written",
        "the published image contains uncommitted records",
        ((f"{_LOG}._hold", _published_when_written),),
    ),
    Planted(
        "keeps_undecided_changes",
        "undecided changes are kept after a lost leadership",
        ((f"{_LOG}.lost", _keeps_the_undecided),),
    ),
    Planted(
        "decides_too_early",
        "a new leader decides on an image without the records of earlier leaders",
        ((f"{_LOG}._catch_up", _decides_too_early),),
    ),
    Planted(
        "start_assumes_committed",
        "a start treats its whole log as committed",
        (("busway_bus.quorum.metadata_store:MetadataStore.__init__", _starts_with_all),),
    ),
    Planted("log_not_truncated", "a diverging log is not truncated", ((f"{_WRITER}._change", _never_cuts),)),
)
