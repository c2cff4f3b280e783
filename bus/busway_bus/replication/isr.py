"""The followers of a partition as its leader sees them, and which of them belong into the in-sync replicas.

What lives here: how far each follower has come and since when it keeps up, who leaves and who enters the ISR. What does not: what the
ISR decides (`partition_state`), and asking the controller for another one (AlterPartition, KIP-497). Pure: times come in, in
milliseconds of a clock that never goes back.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

UNKNOWN_OFFSET: Final = -1
"""Where nothing was heard of a follower since this node leads."""


@dataclass(slots=True, kw_only=True, eq=False)
class FollowerState:
    """One follower.

    Attributes:
        log_end_offset: everything below it counts as being on the follower.
        caught_up_ms: when it last had all that the leader had.
        fetched_ms: when it last fetched; `leader_end_offset` is where the leader's log ended then.
    """

    log_end_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int
    fetched_ms: int
    leader_end_offset: int

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """It asks for what comes from `offset` on, so it has everything before.

        It counts as caught up when it has all that there is, and as of its fetch before when it has all that there was then: else a
        follower that is always one busy moment behind would leave the ISR.
        """
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.fetched_ms = now_ms
        self.leader_end_offset = leader_end_offset

    def lags(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it has been behind for longer than `lag_max_ms` (replica.lag.time.max.ms)."""
        return self.log_end_offset < leader_end_offset and now_ms - self.caught_up_ms > lag_max_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition:
    """The ISR that a leader asks its controller for; the controller refuses it when either epoch is not the newest (KIP-497)."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


def without_lagging(
    isr: Collection[int],
    followers: Mapping[int, FollowerState],
    *,
    leader_end_offset: int,
    now_ms: int,
    lag_max_ms: int,
) -> tuple[int, ...]:
    """The ISR without those that lag; the leader, which is no follower of its own, stays."""
    return tuple(
        replica
        for replica in isr
        if replica not in followers or not followers[replica].lags(leader_end_offset, now_ms, lag_max_ms)
    )


def may_enter(follower: FollowerState, *, high_watermark: int, leader_epoch_start: int) -> bool:
    """Whether a follower outside of the ISR may enter it.

    It has all that is committed, and all that was there when this leader's epoch began: below that it may hold records of another
    leader that are not this log's.
    """
    return follower.log_end_offset >= max(high_watermark, leader_epoch_start)
