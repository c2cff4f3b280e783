"""Bugs put into the quorum's core on purpose: a simulation that does not find them is worth nothing.

Here: each as a change of a named function, with its story.
Not here: how they are put in (`tests.simulation.planting`), and that they are found (`tests.simulation.test_planted_cluster`).
"""

from typing import Any, Final

from tests.simulation.planting import Planted

from busway_bus.quorum.states import Event, Role
from busway_bus.quorum.voters import ReplicaKey
from busway_bus.quorum.votes import majority


def _votes_in_memory(original: Any) -> Any:
    def save(self: Any, election: Any) -> None:
        if election.voted_id < 0 or election.leader_id >= 0:
            original(self, election)

    return save


def _any_epoch_counts(original: Any) -> Any:
    return lambda ends, epoch_start_offset: original(ends, -1)


def _one_voter_too_few(_: Any) -> Any:
    def committed(ends: Any, epoch_start_offset: int) -> int | None:
        descending = sorted(ends, reverse=True)
        offset = descending[majority(len(descending)) - 2]
        return offset if offset > epoch_start_offset else None

    return committed


def _one_offset_too_far(original: Any) -> Any:
    def committed(ends: Any, epoch_start_offset: int) -> int | None:
        offset = original(ends, epoch_start_offset)
        return None if offset is None else offset + 1

    return committed


def _cut_at_high_watermark(original: Any) -> Any:
    def move(self: Any, event: Event, *args: Any, **values: Any) -> None:
        from busway_bus.quorum.ready import LogWrite

        original(self, event, *args, **values)
        if event is Event.LEADER_SEEN and self.high_watermark < self.log.end_offset:
            self.log.truncated(self.high_watermark)
            self.outbox.append(LogWrite(truncate_to=self.high_watermark))

    return move


def _without_fencing(original: Any) -> Any:
    return lambda self, leader_id, epoch, now_ms: original(self, leader_id, max(epoch, self.epoch), now_ms)


def _any_log_will_do(original: Any) -> Any:
    return lambda role, election, candidate, *, covers: original(role, election, candidate, covers=True)


def _any_log_would_do(original: Any) -> Any:
    return lambda role, *, covers, fetched: original(role, covers=True, fetched=fetched)


def _pre_votes_elect(original: Any) -> Any:
    def stand(self: Any, now_ms: int) -> None:
        granted = set(self.ballot.granted)
        original(self, now_ms)
        self.ballot.granted |= granted

    return stand


def _votes_twice(original: Any) -> Any:
    def may_vote(role: Role, election: Any, candidate: ReplicaKey, *, covers: bool) -> bool:
        from busway_bus.quorum.states import Election

        return bool(
            original(role, Election(epoch=election.epoch, leader_id=election.leader_id), candidate, covers=covers)
        )

    return may_vote


def _released_at_once(_: Any) -> Any:
    def released(self: Any) -> Any:
        messages = tuple(message for _, message in self._held)
        self._held.clear()
        return messages

    return released


def _written_is_flushed(_: Any) -> Any:
    def appended(self: Any, epoch: int, base_offset: int, next_offset: int) -> None:
        self.epochs.assign(epoch, base_offset)
        self.end_offset = self.flushed_offset = next_offset

    return appended


def _never_parts(_: Any) -> Any:
    return lambda self, offset, epoch: None


def _new_epoch_at_once(original: Any) -> Any:
    """What the first version of the outbox did."""

    def replace_reads(self: Any, instead: Any) -> None:
        from collections import deque

        from busway_bus.quorum.ready import Reply

        self._held = deque(
            (number, Reply(waiter=message.waiter, body=instead(message)) if getattr(message, "read", None) else message)
            for number, message in self._held
        )
        original(self, instead)

    return replace_reads


def _waits_for_ever(_: Any) -> Any:
    return lambda self, now_ms: None


def _everything_is_committed(original: Any) -> Any:
    def decided(self: Any) -> Any:
        outcomes = original(self)
        left = tuple(self._proposals)
        self._proposals.clear()
        return (*outcomes, *left)

    return decided


def _stands_at_once(original: Any) -> Any:
    def poll_ballot(self: Any, now_ms: int, *, due: bool) -> None:
        if self.role is Role.PROSPECTIVE:
            self.replica.stand(now_ms)
        else:
            original(self, now_ms, due=due)

    return poll_ballot


def _would_always_vote(_: Any) -> Any:
    return lambda role, *, covers, fetched: True


def _leads_on(_: Any) -> Any:
    return lambda self, now_ms: False


_VOTES, _REPLICA, _CORE, _OUTBOX = (f"busway_bus.quorum.{name}" for name in ("leadership", "replica", "core", "outbox"))
PLANTED: Final = (
    Planted(
        "vote not persisted",
        "a vote is sent before it is on disk, and is never written",
        ((f"{_OUTBOX}:Outbox.save", _votes_in_memory),),
    ),
    Planted(
        "records of an earlier epoch committed by counting",
        "records of an earlier epoch are committed by counting replicas, before a record of the leader's own epoch",
        ((f"{_VOTES}:committed_offset", _any_epoch_counts),),
    ),
    Planted(
        "high watermark of a minority",
        "the high watermark needs one voter fewer than a majority",
        ((f"{_VOTES}:committed_offset", _one_voter_too_few),),
    ),
    Planted(
        "metadata high watermark one record ahead",
        "the high watermark is one record ahead",
        ((f"{_VOTES}:committed_offset", _one_offset_too_far),),
    ),
    Planted(
        "metadata log truncated to the high watermark",
        "a new follower truncates its log at its high watermark, not where it diverges from the leader's",
        ((f"{_REPLICA}:Replica.move", _cut_at_high_watermark),),
    ),
    Planted(
        "leader of an earlier epoch accepted",
        "a leader of an earlier epoch is accepted as the current one",
        ((f"{_CORE}:Quorum._check_leader", _without_fencing),),
    ),
    Planted(
        "vote for a shorter log",
        "voters do not compare a candidate's log with their own",
        ((f"{_CORE}:may_vote", _any_log_will_do), (f"{_CORE}:would_vote", _any_log_would_do)),
    ),
    Planted(
        "pre-votes counted as votes",
        "responses to a pre-vote count as votes",
        ((f"{_REPLICA}:Replica.stand", _pre_votes_elect),),
    ),
    Planted(
        "two votes in an epoch", "a voter votes for every candidate of an epoch", ((f"{_CORE}:may_vote", _votes_twice),)
    ),
    Planted(
        "replies before their data is on disk",
        "replies are sent before the data that they depend on is on disk",
        ((f"{_OUTBOX}:Outbox._released", _released_at_once),),
    ),
    Planted(
        "leader counts unflushed records",
        "a leader counts records that it has written but not flushed",
        (("busway_bus.quorum.log_view:LogView.appended", _written_is_flushed),),
    ),
    Planted(
        "diverging fetch served",
        "a leader does not compare a fetching follower's log with its own",
        (("busway_bus.quorum.log_view:LogView.where_parted", _never_parts),),
    ),
    Planted(
        "new epoch sent before it is on disk",
        "fetches refused after a lost leadership contain the new epoch before it is on disk",
        ((f"{_OUTBOX}:Outbox.replace_reads", _new_epoch_at_once),),
    ),
    Planted(
        "request without a time-out",
        "a request with a lost response never times out",
        (("busway_bus.quorum.requests:Requests.expire", _waits_for_ever),),
    ),
    Planted(
        "all proposals acknowledged with the first",
        "all proposals count as committed as soon as one is",
        ((f"{_VOTES}:Leadership.decided", _everything_is_committed),),
    ),
    Planted(
        "pre-vote skipped",
        "a node raises its epoch and asks for votes without the pre-votes of a majority (KIP-996)",
        ((f"{_CORE}:Quorum._poll_ballot", _stands_at_once),),
    ),
    Planted(
        "pre-vote granted beside a live leader",
        "a leader, and a follower that has one, grant every pre-vote",
        ((f"{_CORE}:would_vote", _would_always_vote),),
    ),
    Planted(
        "check-quorum ignored",
        "a leader that no majority fetches from goes on leading",
        ((f"{_VOTES}:Leadership.has_lost_its_majority", _leads_on),),
    ),
)
