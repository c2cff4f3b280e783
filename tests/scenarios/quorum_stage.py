"""Transcripts of a quorum: what is done to three nodes, and all that they do.

Here: the reader of `quorum/*.txt`, and the nodes that it acts on.
Not here: the stories. A line that begins with `>` is done, the lines below it are what follows, each of them; a line
that begins with `#` tells the story. Nothing moves by itself: messages wait on their line from one node to another,
each clock stands, a disk that `stands` keeps what is written waiting.

Commands: `timeout N` (node N has waited for long enough), `deliver A B` (all from A to B that waits now), `deliver` (everything, until nothing
comes any more), `lose A B`, `propose N text`, `disk N stands`, `disk N works`, `crash N`, `start N`, `snapshot N O` (node N has a snapshot up to offset O, and
its log begins there), `short N` (of its snapshot one byte is left), `checked N intact`, `checked N damaged` (what it downloaded).
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.core import Quorum
from busway_bus.quorum.log_view import LogView
from busway_bus.quorum.ready import (
    Answer,
    Downloaded,
    Persisted,
    ReadSnapshot,
    Ready,
    Reply,
    Request,
    Send,
    SnapshotPart,
    Snapshotted,
)
from busway_bus.quorum.settings import QuorumSettings
from busway_bus.quorum.states import NOBODY, Election
from busway_bus.quorum.voters import ReplicaKey, VoterSet
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchRequest, FetchResponse
from busway_protocol.messages.metadata_snapshots import FetchSnapshotRequest, FetchSnapshotResponse
from busway_protocol.messages.quorum import VoteRequest, VoteResponse
from busway_protocol.records.batch import BatchHeader, iter_batches
from busway_protocol.records.builder import BatchBuilder

NODES = (1, 2, 3)
SNAPSHOT_BYTES = 30
SETTINGS = QuorumSettings(fetch_snapshot_max_bytes=12)
MESSAGES_MAX = 200


class Asker(NamedTuple):
    """Who waits for an answer."""

    node_id: int
    life: int
    correlation: int


class Actor:
    """One node, its disk, and what it has written that is not there yet."""

    def __init__(self, node_id: int) -> None:
        self.id, self.life, self.works, self.now_ms = node_id, 0, True, 0
        self.election = Election()
        self.durable: list[tuple[BatchHeader, bytes]] = []
        self.written: list[tuple[BatchHeader, bytes]] = []
        self.writing: deque[Ready] = deque()
        self.snapshots: dict[SnapshotId, int] = {}
        self.start = 0
        self.last_part: SnapshotPart | None = None
        self.core: Quorum | None = None
        self.shown = ""


class Stage:
    """Three nodes, and what has been seen of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.links: dict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self.actors = {node_id: Actor(node_id) for node_id in NODES}
        for actor in self.actors.values():
            self._start(actor)
        self.lines.clear()
        self.links.clear()

    def do(self, command: str) -> list[str]:
        """Carry out one line; what follows from it."""
        self.lines = []
        match command.split():
            case ["timeout", node]:
                core, actor = self._core(node), self.actors[int(node)]
                actor.now_ms = max(actor.now_ms, core.replica.deadline_ms)
                self._done(actor, core.tick(actor.now_ms))
            case ["deliver"]:
                for _ in range(MESSAGES_MAX):
                    waiting = [link for link in sorted(self.links) if self.links[link]]
                    if not waiting:
                        break
                    self._deliver(*waiting[0])
                assert not any(self.links.values()), "they talk without end"
            case ["deliver", source, target]:
                for _ in range(len(self.links[int(source), int(target)])):
                    self._deliver(int(source), int(target))
            case ["lose", source, target]:
                self.links[int(source), int(target)].clear()
            case ["propose", node, text]:
                builder = BatchBuilder()
                builder.append(0, None, text.encode())
                actor = self.actors[int(node)]
                _, ready = self._core(node).propose(builder.build(), actor.now_ms, text)
                self._done(actor, ready)
            case ["disk", node, ("stands" | "works") as how]:
                self.actors[int(node)].works = how == "works"
                self._flush(self.actors[int(node)])
            case ["snapshot", node, offset]:
                actor = self.actors[int(node)]
                (last,) = [header for header, _ in actor.durable if header.next_offset == int(offset)]
                actor.start = last.next_offset
                actor.snapshots = {SnapshotId(actor.start, last.partition_leader_epoch): SNAPSHOT_BYTES}
                for log in (actor.durable, actor.written):
                    log[:] = [entry for entry in log if entry[0].base_offset >= actor.start]
                self._snapshotted(actor)
            case ["short", node]:
                actor = self.actors[int(node)]
                actor.snapshots = dict.fromkeys(actor.snapshots, 1)
                self._snapshotted(actor)
            case ["checked", node, ("intact" | "damaged") as how]:
                actor = self.actors[int(node)]
                part, actor.last_part = actor.last_part, None
                assert part is not None, "it has downloaded nothing"
                message = Downloaded(snapshot=part.snapshot, number=part.number, intact=how == "intact")
                self._done(actor, self._core(node).step(message, actor.now_ms))
            case ["crash", node]:
                self.actors[int(node)].core = None
            case ["start", node]:
                self._start(self.actors[int(node)])
            case _:
                raise ValueError(f"no such command: {command}")
        return self.lines

    def _core(self, node: str) -> Quorum:
        core = self.actors[int(node)].core
        assert core is not None, f"node {node} is down"
        return core

    def _snapshotted(self, actor: Actor) -> None:
        message = Snapshotted(snapshots=dict(actor.snapshots), start_offset=actor.start)
        self._done(actor, self._core(str(actor.id)).step(message, actor.now_ms))

    def _start(self, actor: Actor) -> None:
        actor.life += 1
        actor.written = list(actor.durable)
        actor.writing.clear()
        actor.works, actor.shown = True, ""
        actor.last_part = None
        log = LogView(start_offset=actor.start, end_offset=actor.start, snapshots=dict(actor.snapshots))
        for header, _ in actor.durable:
            log.appended(header.partition_leader_epoch, header.base_offset, header.next_offset)
        log.flushed(log.end_offset)
        actor.core = Quorum(
            me=ReplicaKey(actor.id),
            voters=VoterSet.fixed(NODES),
            election=actor.election,
            log=log,
            chance=Random(actor.id),
            now_ms=actor.now_ms,
            settings=SETTINGS,
        )
        self._done(actor, actor.core.tick(actor.now_ms))

    def _deliver(self, source: int, target: int) -> None:
        message, life = self.links[source, target].popleft()
        actor = self.actors[target]
        if actor.core is not None and life in {None, actor.life}:
            self._done(actor, actor.core.step(message, actor.now_ms))

    def _done(self, actor: Actor, ready: Ready) -> None:
        core = actor.core
        assert core is not None
        shown = f"{actor.id} is {core.role.name} in epoch {core.epoch}"
        if shown != actor.shown:
            self.lines.append(shown)
            actor.shown = shown
        self.lines += _writes(actor.id, ready)
        _append(actor.written, ready)
        parts = [write.part for write in ready.append if write.part is not None and write.part.last]
        actor.last_part = parts[-1] if parts else actor.last_part
        if ready.apply is not None:
            self.lines.append(f"{actor.id} applies what is below {ready.apply}")
        for words, proposals in (("has committed", ready.committed), ("gives up", ready.discarded)):
            self.lines += [f"{actor.id} {words} {proposal.waiter}" for proposal in proposals]
        for message in ready.send:
            self._send(actor, message)
        if ready.writes:
            actor.writing.append(ready)
            self._flush(actor)

    def _flush(self, actor: Actor) -> None:
        while actor.works and actor.writing and actor.core is not None:
            ready = actor.writing.popleft()
            actor.election = ready.save or actor.election
            _append(actor.durable, ready)
            for write in ready.append:
                if write.install is not None:
                    actor.start, actor.snapshots = write.install.offset, {write.install: SNAPSHOT_BYTES}
            self._done(actor, actor.core.step(Persisted(number=ready.number), actor.now_ms))

    def _send(self, actor: Actor, message: Send | Reply) -> None:
        if isinstance(message, Send):
            target, life = message.to, None
            asker = Asker(actor.id, actor.life, message.correlation)
            self.links[actor.id, target].append((Request(waiter=asker, body=message.body), life))
        else:
            target, life = message.waiter.node_id, message.waiter.life
            if message.read is not None and isinstance(message.body, FetchResponse):
                behind = [batch for header, batch in actor.written if header.base_offset >= message.read.offset]
                message.body.responses[0].partitions[0].records = b"".join(behind)
            if isinstance(message.read, ReadSnapshot) and isinstance(message.body, FetchSnapshotResponse):
                message.body.topics[0].partitions[0].unaligned_records = bytes(message.read.bytes_max)
            answer = Answer(correlation=message.waiter.correlation, body=message.body)
            self.links[actor.id, target].append((answer, life))
        self.lines.append(f"{actor.id} -> {target} {_told(message.body)}")


def _append(log: list[tuple[BatchHeader, bytes]], ready: Ready) -> None:
    for write in ready.append:
        if write.install is not None:
            log.clear()
        if write.truncate_to is not None:
            log[:] = [entry for entry in log if entry[0].next_offset <= write.truncate_to]
        for content in write.batches:
            log += [(header, bytes(batch)) for header, batch in iter_batches(content)]


def _writes(node_id: int, ready: Ready) -> Iterator[str]:
    if ready.save is not None:
        leader = "nobody" if ready.save.leader_id == NOBODY else ready.save.leader_id
        voted = "nobody" if ready.save.voted is None else ready.save.voted.id
        yield f"{node_id} saves epoch {ready.save.epoch}, leader {leader}, vote for {voted}"
    for write in ready.append:
        if write.truncate_to is not None:
            yield f"{node_id} cuts its log at {write.truncate_to}"
        if write.part is not None:
            end = write.part.position + len(write.part.content)
            yield f"{node_id} writes bytes {write.part.position} to {end} of the snapshot {_id(write.part.snapshot)}{', the last' * write.part.last}"
        if write.install is not None:
            yield f"{node_id} replaces its log by the snapshot {_id(write.install)}"
        for content in write.batches:
            for header, _ in iter_batches(content):
                yield f"{node_id} appends {header.base_offset} of epoch {header.partition_leader_epoch}"


def _id(snapshot: SnapshotId) -> str:
    return f"{snapshot.offset} of {snapshot.epoch}"


def _told(body: Any) -> str:
    """One message, in words."""
    if isinstance(body, FetchSnapshotRequest):
        asked = body.topics[0].partitions[0]
        snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        return f"FetchSnapshot? {_id(snapshot)} from byte {asked.position}, in {asked.current_leader_epoch}"
    if isinstance(body, FetchSnapshotResponse):
        part = body.topics[0].partitions[0]
        text = f"FetchSnapshot: {ErrorCode(part.error_code).name}, leader {part.current_leader.leader_id} in {part.current_leader.leader_epoch}"
        if part.error_code:
            return text
        return f"{text}, {len(part.unaligned_records or b'')} of {part.size} bytes from {part.position} on"
    if isinstance(body, FetchResponse):
        got = body.responses[0].partitions[0]
        text = f"Fetch: {ErrorCode(got.error_code).name}, leader {got.current_leader.leader_id} in {got.current_leader.leader_epoch}"
        offsets = [str(header.base_offset) for header, _ in iter_batches(got.records or b"")]
        if got.snapshot_id.end_offset >= 0:
            return f"{text}, needs the snapshot {got.snapshot_id.end_offset} of {got.snapshot_id.epoch}"
        if got.diverging_epoch.epoch >= 0:
            return f"{text}, parted where {got.diverging_epoch.epoch} ends at {got.diverging_epoch.end_offset}"
        return f"{text}, high watermark {got.high_watermark}, records {' '.join(offsets) or 'none'}"
    partition = body.topics[0].partitions[0]
    if isinstance(body, FetchRequest):
        return f"Fetch? from {partition.fetch_offset} after {partition.last_fetched_epoch}, in {partition.current_leader_epoch}"
    if isinstance(body, VoteRequest):
        kind = "Pre-vote?" if partition.pre_vote else "Vote?"
        return f"{kind} in {partition.replica_epoch}, log to {partition.last_offset} of {partition.last_offset_epoch}"
    name = type(body).__name__.removesuffix("Request").removesuffix("Response")
    leader = f"leader {partition.leader_id} in {partition.leader_epoch}"
    if isinstance(body, VoteResponse):
        given = "yes" if partition.vote_granted else "no"
        return f"Vote: {given}, {ErrorCode(partition.error_code).name}, {leader}"
    if hasattr(partition, "error_code"):
        return f"{name}: {ErrorCode(partition.error_code).name}, {leader}"
    return f"{name}! {leader}"


def played(text: str) -> str:
    """A transcript as it is when its commands are carried out now."""
    stage, lines = Stage(), []
    for line in text.splitlines():
        if line.startswith("#") or (not line and (not lines or lines[-1])):
            lines.append(line)
        elif line.startswith("> "):
            lines += [line, *stage.do(line[2:])]
    return "\n".join(lines).rstrip() + "\n"
