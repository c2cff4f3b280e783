"""Bugs put into the quorum's driver, and into what is built on it, on purpose: a simulation that does not find them is worth nothing.

Here: each as a change of a named function, with its story.
Not here: how they are put in (`tests.simulation.planting`), and that they are found (`tests.simulation.test_planted_cluster`). Those of the
core are beside its own simulation.
"""

import asyncio
import functools
from typing import Any, Final

from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.log_view import Diverging
from busway_bus.quorum.metadata_snapshots import PART
from busway_bus.quorum.snapshot_download import INSTALL
from busway_bus.quorum.votes import majority
from busway_bus.scheduling.off_loop import off_loop
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
    async def nothing(offset: int) -> None:
        pass

    def change(self: Any, write: Any) -> Any:
        self._truncate = nothing
        return original(self, write)

    return change


def _emptied_first(_: Any) -> Any:
    async def snapshot(self: Any, change: Any) -> None:
        if change.part is not None:
            self._after = functools.partial(
                self._downloaded,
                change.part,
                await off_loop(functools.partial(self._download.check, change.part.snapshot)),
            )
            return
        await self._restart(change.install.offset)
        await off_loop(functools.partial(self._download.name, change.install))
        self._download.installed(change.install)
        self._installed(change.install)
        await off_loop(self._download.finish)

    return snapshot


def _part_is_loaded(original: Any) -> Any:
    def settle(files: Any, directory: str, snapshots: Any, restart: Any) -> None:
        for name in files.list(directory):
            if name.endswith(PART):
                snapshot = SnapshotId.from_name(name.removesuffix(".part"))
                files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix('.part')}")
                snapshots.sizes[snapshot] = files.sizes(directory)[name.removesuffix(".part")]
        original(files, directory, snapshots, restart)

    return settle


def _install_is_not_noted(original: Any) -> Any:
    def name(self: Any, snapshot: Any) -> None:
        original(self, snapshot)
        self._files.remove(f"{self._directory}/{INSTALL}")
        self._files.sync_directory(self._directory)

    return name


def _counts_before_it_is_installed(original: Any) -> Any:
    def restarted(self: Any, snapshot: Any, size: int) -> None:
        original(self, snapshot, size)
        self.flushed_offset = snapshot.offset

    return restarted


def _names_no_snapshot(_: Any) -> Any:
    def where_parted(self: Any, offset: int, epoch: int) -> Any:
        end = self.end_of(epoch)
        return None if end.epoch == epoch and end.offset >= offset else Diverging(end)

    return where_parted


_WRITER, _LOG = "busway_bus.quorum.log_writer:LogWriter", "busway_bus.quorum.metadata_log:MetadataLog"
PLANTED: Final = (
    Planted(
        "vote not written to its file",
        "a vote is sent and never written",
        (("busway_bus.quorum.election_file:ElectionFile.write", _votes_in_memory),),
    ),
    Planted(
        "metadata log never synced",
        "written data counts as synced",
        (("busway_bus.log.flusher:Flusher.flush", _never_synced),),
    ),
    Planted(
        "controller replies before its sync",
        "replies are sent before the data that they depend on is on disk",
        ((f"{_WRITER}.write", _told_at_once),),
    ),
    Planted(
        "metadata committed by a minority",
        "the high watermark needs one voter fewer than a majority",
        (("busway_bus.quorum.leadership:committed_offset", _one_voter_too_few),),
    ),
    Planted(
        "image published before its commit",
        "the published image contains uncommitted records",
        ((f"{_LOG}._hold", _published_when_written),),
    ),
    Planted(
        "undecided changes kept after a lost leadership",
        "undecided changes are kept after a lost leadership",
        ((f"{_LOG}.lost", _keeps_the_undecided),),
    ),
    Planted(
        "new controller decides before it has the whole log",
        "a new leader decides on an image without the records of earlier leaders",
        ((f"{_LOG}._catch_up", _decides_too_early),),
    ),
    Planted(
        "whole log committed at a start",
        "a start treats its whole log as committed",
        (("busway_bus.quorum.metadata_store:MetadataStore.__init__", _starts_with_all),),
    ),
    Planted(
        "log emptied before the snapshot has its name",
        "the log is emptied before the snapshot that replaces it has its name",
        ((f"{_WRITER}._snapshot", _emptied_first),),
    ),
    Planted(
        "partial snapshot loaded",
        "a download that a crash cut off counts as a snapshot",
        (("busway_bus.quorum.metadata_store:settle", _part_is_loaded),),
    ),
    Planted(
        "installation of a snapshot not noted",
        "a start does not know that a snapshot was to replace the log",
        (("busway_bus.quorum.snapshot_download:SnapshotDownload.name", _install_is_not_noted),),
    ),
    Planted(
        "snapshot applied before it is installed",
        "what a snapshot covers is applied while it replaces the log",
        (("busway_bus.quorum.log_view:LogView.restarted", _counts_before_it_is_installed),),
    ),
    Planted(
        "follower behind the log's start gets no snapshot",
        "a follower behind the beginning of the log gets no snapshot id",
        (("busway_bus.quorum.log_view:LogView.where_parted", _names_no_snapshot),),
    ),
    Planted(
        "diverging metadata log not truncated",
        "a diverging log is not truncated",
        ((f"{_WRITER}._change", _never_cuts),),
    ),
)
