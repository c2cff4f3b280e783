"""Planted bugs of clusters: for each the engine that finds it, the bound of seeds, and what it is reported as.

Here: the list; `python -m tests.simulation.planted_cluster [NAME]` measures it.
Not here: what each bug changes (`planted_replication`, `planted_controller`, `planted_coordinators`, and `planted` of the
quorum's tests), the engines (`cluster_engines`), the table with measured numbers (`planted.md`).
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from tests.simulation import planted_controller, planted_coordinators, planted_replication
from tests.simulation.cluster_engines import ClusterBug, search
from tests.simulation.planting import Planted
from tests.simulation.quorum import planted as planted_controllers
from tests.unit.busway_bus.quorum import planted as planted_quorum

Row = tuple[str, int, str]
"""Title, bound of seeds, part of the report."""


def _of(engine: str, bugs: Iterable[Planted], rows: Iterable[Row], *, dear: bool = False) -> Iterator[ClusterBug]:
    by_name = {bug.name: bug for bug in bugs}
    for name, seeds, anomaly in rows:
        yield ClusterBug(by_name[name], engine, seeds, anomaly, dear)


CLUSTER_BUGS: Final = (
    *_of(
        "processes",
        planted_controller.PLANTED,
        (
            ("heartbeat with an old broker epoch accepted", 5, "heartbeat of a replaced process is accepted"),
            ("registration with an old incarnation accepted", 5, "has the epoch of another process"),
            ("registration accepted beside a live process", 5, "registered beside a live process"),
        ),
    ),
    *_of(
        "leaders",
        planted_controller.PLANTED,
        (
            ("stale leader epoch accepted in AlterPartition", 5, "stale request served"),
            ("stale broker epoch accepted in AlterPartition", 5, "stale request served"),
            ("fenced broker enters an ISR", 5, "are fenced and enter the ISR"),
            ("restarted broker enters an ISR", 5, "stale request served"),
            ("unclean election although off", 5, "neither in sync nor eligible"),
            ("eligible leader replicas kept above the minimum", 10, "lacks committed records"),
            ("leader epoch not raised by an election", 5, "epoch reused"),
            ("fenced broker elected", 5, "a fenced broker leads"),
        ),
    ),
    *_of(
        "leaders",
        planted_controller.PLANTED,
        (("eligible leader replicas not kept", 480, "neither in sync nor eligible"),),
        dear=True,
    ),
    *_of(
        "quorum",
        planted_quorum.PLANTED,
        (
            ("vote not persisted", 5, "and epoch 0 is on its disk"),
            ("records of an earlier epoch committed by counting", 5, "committed up to an earlier one alone"),
            ("high watermark of a minority", 5, "counts as committed and is on the disks of"),
            ("metadata high watermark one record ahead", 5, "counts as committed and is on the disks of"),
            ("vote for a shorter log", 20, "without all that was committed"),
            ("pre-votes counted as votes", 5, "is led by"),
            ("two votes in an epoch", 5, "voted in epoch"),
            ("replies before their data is on disk", 5, "is on its disk"),
            ("leader counts unflushed records", 10, "counts as committed and is on the disks of"),
            ("diverging fetch served", 5, "counts as committed and is on the disks of"),
            ("new epoch sent before it is on disk", 20, "tells of epoch"),
            ("all proposals acknowledged with the first", 5, "was acknowledged, and"),
            ("pre-vote skipped", 5, "with the pre-votes of"),
            ("pre-vote granted beside a live leader", 5, "grants a pre-vote"),
            ("check-quorum ignored", 8, "fetch"),
        ),
    ),
    *_of(
        "quorum",
        planted_quorum.PLANTED,
        (
            ("metadata log truncated to the high watermark", 200, "without all that was committed"),
            ("leader of an earlier epoch accepted", 100, "is led by"),
            ("request without a time-out", 40, "not all is committed everywhere"),
        ),
        dear=True,
    ),
    *_of(
        "runtime",
        planted_coordinators.PLANTED,
        (
            ("offset commit answered before it is replicated", 5, "an acknowledged write is lost"),
            ("coordinator's state read before it is replicated", 5, "a reader got what is lost"),
            ("coordinator loads up to the high watermark", 5, "a shard is not what its log says"),
        ),
    ),
    *_of(
        "groups",
        planted_coordinators.PLANTED,
        (
            ("group generation lost at a fail-over", 5, "generation goes back"),
            ("group epoch lost at a fail-over", 5, "epoch goes back"),
        ),
    ),
    *_of(
        "replicas",
        planted_replication.PLANTED,
        (
            ("high watermark one record ahead", 5, "acknowledged too early"),
            ("acks=all waits for the leader alone", 5, "lost track"),
            ("min.insync.replicas ignored", 5, "acknowledged too early"),
            ("ISR grown below the high watermark", 5, "incomplete replica in sync"),
            ("ISR grown before the leader epoch's start", 20, "incomplete replica in sync"),
            ("last fetched epoch ignored", 8, "changed record"),
            ("offset of a diverging follower counted", 40, "acknowledged too early"),
            ("follower truncates to its high watermark", 10, "changed record"),
            ("follower reports unflushed offsets", 5, "acknowledged too early"),
            ("follower blind to an open transaction", 5, "undecided read"),
            ("open transactions not restored", 8, "undecided read"),
            ("fetch of a replaced process accepted", 8, "stale request"),
            ("AlterPartition without broker epochs", 8, "stale request"),
            ("lagging follower stays in sync", 8, "never"),
        ),
    ),
    *_of("replicas", planted_controller.PLANTED, (("fenced broker stays in the ISR", 5, "fenced in sync"),)),
    *_of(
        "replicas",
        planted_replication.PLANTED,
        (
            ("pending ISR ignored", 20, "incomplete replica in sync"),
            ("former leader acknowledges", 150, "lost write"),
            ("stale leader epoch accepted in Fetch", 30, "stale request"),
            ("divergence without truncation", 10, "never"),
            ("producers kept after a truncation", 20, "lost write"),
            ("producers forgotten after a truncation", 20, "undecided read"),
            ("leader epochs kept after a truncation", 60, "never"),
            ("append after the leadership ended", 60, "lost write"),
        ),
        dear=True,
    ),
    *_of(
        "replicas",
        planted_controller.PLANTED,
        (("eligible after an unclean shutdown", 40, "changed record"),),
        dear=True,
    ),
    *_of(
        "controllers",
        planted_controllers.PLANTED,
        (
            ("vote not written to its file", 5, "is on its disk"),
            ("metadata log never synced", 5, "which is on the disks of"),
            ("controller replies before its sync", 5, "is on its disk"),
            ("metadata committed by a minority", 5, "which is on the disks of"),
            ("image published before its commit", 5, "which is not committed"),
            ("whole log committed at a start", 5, "written by several voters"),
            ("undecided changes kept after a lost leadership", 15, "is not that of the committed records"),
            ("new controller decides before it has the whole log", 10, "is not that of the committed records"),
            ("log emptied before the snapshot has its name", 10, "what can be read of its snapshots"),
            ("partial snapshot loaded", 10, "is damaged behind"),
            ("installation of a snapshot not noted", 120, "CorruptLog"),
            ("snapshot applied before it is installed", 10, "committed, and its log has batches up to"),
            ("follower behind the log's start gets no snapshot", 10, "not all is followed"),
            ("diverging metadata log not truncated", 10, "was committed there"),
        ),
        dear=True,
    ),
    *_of(
        "transactions",
        planted_coordinators.PLANTED,
        (
            ("prepared transaction not resumed", 8, "never"),
            ("refused marker counts as written", 8, "a committed transaction is not whole"),
            ("end of a transaction answered before it is replicated", 8, "a committed transaction is not whole"),
            ("partition added before it is replicated", 8, "never"),
        ),
        dear=True,
    ),
)
"""From the cheapest engine to the dearest."""


def main() -> int:
    """Print the rows of the table; 1 if a bug is not found, or reported as something else."""
    failed = 0
    for bug in CLUSTER_BUGS:
        if len(sys.argv) > 1 and not any(word in bug.name for word in sys.argv[1:]):
            continue
        outcome = search(bug)
        wrong = not outcome.failure or bug.anomaly not in outcome.failure
        failed += wrong
        report = f"NOT FOUND AS {bug.anomaly}: {outcome.failure[:200]!r}" if wrong else bug.anomaly
        print(
            f"| {bug.name} | {bug.where} | {outcome.seeds} | {bug.seeds} | {outcome.cpu_s:.1f} | {report} |", flush=True
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
