"""Followers of a partition as seen by the leader, and ISR membership.

Here: followers' lags, the rules for leaving and entering the ISR; times in monotonic ms.
Not here: the use of the ISR (`partition_state`), AlterPartition requests (KIP-497).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

UNKNOWN_OFFSET: Final = -1
"""Log end offset of a follower before its first fetch."""
UNKNOWN_EPOCH: Final = -1
"""Broker epoch that the controller does not check."""


@dataclass(slots=True, kw_only=True, eq=False)
class FollowerState:
    """One follower.

    Attributes:
        log_end_offset: end of what counts as its own: flushed, or written with another `durability`.
        log_start_offset: start of its log.
        caught_up_ms: when it last had all of the leader's log.
        fetched_ms: time of its last fetch; `leader_end_offset` is the leader's log end then.
        broker_epoch: of the process that fetched last (KIP-903); -1 if unknown.
        joining: it is outside of the ISR, may enter it, and is not far behind: the high watermark waits for it.
    """

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int
    fetched_ms: int
    leader_end_offset: int
    broker_epoch: int = UNKNOWN_EPOCH
    joining: bool = False

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Note a fetch from `offset`: the follower has everything below it.

        It is caught up now if it has the whole log, and as of its previous fetch if it has the log of that time: a
        follower one fetch behind a busy leader stays in the ISR.
        """
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.fetched_ms = now_ms
        self.leader_end_offset = leader_end_offset

    def lags(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it is behind for longer than `lag_max_ms` (replica.lag.time.max.ms)."""
        return self.log_end_offset < leader_end_offset and now_ms - self.caught_up_ms > lag_max_ms


class FollowerFetch(NamedTuple):
    """What all partitions of a follower's fetch have in common.

    Attributes:
        broker_epoch: of the follower's process; -1 if it does not say.
        eligible: it may enter an ISR: it is registered with this epoch, not fenced and not shutting down.
        lag_max_ms: replica.lag.time.max.ms.
    """

    replica: int
    broker_epoch: int
    eligible: bool
    lag_max_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition:
    """A leader's request for a new ISR. The controller refuses outdated epochs (KIP-497).

    Attributes:
        broker_epochs: of the members of `isr` when they were found to be in sync, so that a process which started
            since then does not enter (KIP-903). That of the leader is -1.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...] = field(default=(), compare=False)


def without_lagging(
    isr: Collection[int],
    followers: Mapping[int, FollowerState],
    *,
    leader_end_offset: int,
    now_ms: int,
    lag_max_ms: int,
) -> tuple[int, ...]:
    return tuple(
        replica
        for replica in isr
        if replica not in followers or not followers[replica].lags(leader_end_offset, now_ms, lag_max_ms)
    )


def may_enter(follower: FollowerState, *, high_watermark: int, leader_epoch_start: int) -> bool:
    """Whether a follower outside of the ISR may enter it.

    It must have all committed records, and all from before this leader epoch, where its log may diverge.
    """
    return follower.log_end_offset >= max(high_watermark, leader_epoch_start)
