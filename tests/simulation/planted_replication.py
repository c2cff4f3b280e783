"""Bugs put into replication on purpose: in leaders, followers and their logs.

Here: each as a change of a named function.
Not here: the engine and the bound of each (`planted_cluster`), how they are put in (`planting`).
"""

import asyncio
from typing import Any, Final

from tests.simulation.planting import Planted

_STATE, _LOGS = (
    "busway_bus.replication.partition_state:PartitionState",
    "busway_bus.replication.follower_logs:FollowerLogs",
)
_FETCHER = "busway_bus.replication.fetcher"


def _one_ahead(original: Any) -> Any:
    def raise_(self: Any, offset: int) -> Any:
        return original(self, min(offset + 1, self.log_end_offset))

    return raise_


def _local_alone(original: Any) -> Any:
    def acknowledged_offset(self: Any, acks: int) -> int:
        return int(original(self, 1))

    return acknowledged_offset


def _without_pending(original: Any) -> Any:
    def advance(self: Any) -> Any:
        in_flight, self.in_flight = self.in_flight, None
        joining = [follower for follower in self.followers.values() if follower.joining]
        for follower in joining:
            follower.joining = False
        try:
            return original(self)
        finally:
            self.in_flight = in_flight
            for follower in joining:
                follower.joining = True

    return advance


def _keeps_waiting(original: Any) -> Any:
    def became_follower(self: Any, partition: Any) -> Any:
        original(self, partition)
        return ()

    return became_follower


def _enough_replicas(_: Any) -> Any:
    def count(self: Any) -> None:
        self.under_min_isr = False

    return count


def _from_any_offset(_: Any) -> Any:
    return lambda follower, *, high_watermark, leader_epoch_start: follower.log_end_offset >= 0


def _before_this_epoch(original: Any) -> Any:
    return lambda follower, *, high_watermark, leader_epoch_start: original(
        follower, high_watermark=high_watermark, leader_epoch_start=0
    )


def _any_epoch(_: Any) -> Any:
    def check_epoch(self: Any, epoch: int) -> None:
        pass

    return check_epoch


def _never_diverges(_: Any) -> Any:
    return lambda partition, epoch, offset: None


def _counts_before_it_compares(original: Any) -> Any:
    def partition_data(self: Any, partition: Any, cached: Any) -> Any:
        if self._follower is not None:
            self._note(partition, cached, self._follower)
        return original(self, partition, cached)

    return partition_data


def _cuts_at_high_watermark(original: Any) -> Any:
    def put(self: Any, partition: Any) -> None:
        followed = self._followed.get((partition.topic, partition.index))
        if followed is None or followed.epoch != partition.state.leader_epoch:
            log = partition.log
            if partition.high_watermark < log.end_offset:
                log.producers = log.cut(partition.high_watermark, 0).in_place_of(log.producers)
                partition.truncated()
        original(self, partition)

    return put


def _cuts_nothing(_: Any) -> Any:
    return lambda log, *, epoch, end_offset: log.end_offset


def _counts_unflushed(_: Any) -> Any:
    async def synced(self: Any, partitions: Any) -> None:
        pass

    return synced


def _keeps_producers(_: Any) -> Any:
    return lambda self, other: other


def _forgets_producers(original: Any) -> Any:
    def cut(self: Any, offset: int, now_ms: int) -> Any:
        from busway_bus.log.producer_state import ProducerState

        original(self, offset, now_ms)
        return ProducerState()

    return cut


def _keeps_epochs(_: Any) -> Any:
    def truncate(self: Any, end: int) -> None:
        pass

    return truncate


def _blind_to_transactions(original: Any) -> Any:
    def transaction_began(self: Any, first_offset: int) -> None:
        from busway_bus.replication.partition_state import Role

        if self.role is Role.LEADER:
            original(self, first_offset)

    return transaction_began


def _not_restored(original: Any) -> Any:
    def transactions_restored(self: Any, first_open_offset: int | None) -> None:
        original(self, None)

    return transactions_restored


def _appends_after_the_leadership(_: Any) -> Any:
    async def in_turn(
        self: Any,
        partition: Any,
        records: Any,
        header: Any,
        write: Any,
        acks: int,
        *,
        previous_turn: Any,
        turn: Any,
    ) -> Any:
        from busway_bus.log.inspection import inspect

        try:
            try:
                batch = await self.slices.run(inspect(records, header, partition.log.config, self._wall_ms()))
            finally:
                if previous_turn is not None:
                    await asyncio.wait([previous_turn])
            return self._append(partition, write, batch)
        finally:
            turn.set_result(None)
            if partition.turn is turn:
                partition.turn = None

    return in_turn


def _restarted_followers(_: Any) -> Any:
    def check_follower(self: Any, replica: int, broker_epoch: int) -> None:
        self.check_leader()

    return check_follower


def _without_epochs(original: Any) -> Any:
    def ask(self: Any, isr: Any) -> Any:
        from dataclasses import replace

        request = original(self, isr)
        self.in_flight = replace(request, broker_epochs=(-1,) * len(isr))
        return self.in_flight

    return ask


def _never_lags(_: Any) -> Any:
    def time_passed(self: Any, now_ms: int, lag_max_ms: int) -> Any:
        return ()

    return time_passed


PLANTED: Final = (
    Planted(
        "high watermark one record ahead",
        "the high watermark is one record beyond what all in-sync replicas have",
        ((f"{_STATE}._raise", _one_ahead),),
        "elections",
    ),
    Planted(
        "acks=all waits for the leader alone",
        "a record is acknowledged when it is on the leader's disk",
        ((f"{_STATE}.acknowledged_offset", _local_alone),),
        "elections",
    ),
    Planted(
        "pending ISR ignored",
        "the high watermark does not wait for a follower whose entry into the ISR is not answered yet",
        ((f"{_STATE}._advance", _without_pending),),
        "isrs",
    ),
    Planted(
        "former leader acknowledges",
        "a leader that becomes a follower does not fail pending acknowledgements: the next leader's records complete them",
        ((f"{_STATE}.became_follower", _keeps_waiting),),
        "elections",
    ),
    Planted(
        "min.insync.replicas ignored",
        "a record is acknowledged that only the leader has",
        ((f"{_STATE}._count_isr", _enough_replicas),),
        "isrs",
    ),
    Planted(
        "ISR grown below the high watermark",
        "a follower enters the ISR with its first fetch",
        (("busway_bus.replication.partition_state:may_enter", _from_any_offset),),
        "isrs",
    ),
    Planted(
        "ISR grown before the leader epoch's start",
        "a follower enters the ISR that lacks records of earlier epochs above the high watermark",
        (("busway_bus.replication.partition_state:may_enter", _before_this_epoch),),
        "elections",
    ),
    Planted(
        "stale leader epoch accepted in Fetch",
        "a leader serves a follower that is in another leader epoch",
        (("busway_bus.replication.partition:Partition.check_epoch", _any_epoch),),
        "epochs",
    ),
    Planted(
        "last fetched epoch ignored",
        "a leader does not compare the follower's last epoch with its own log",
        (("busway_bus.handlers.fetch:diverging_end", _never_diverges),),
        "elections",
    ),
    Planted(
        "offset of a diverging follower counted",
        "a leader counts what a follower has before it compares the logs",
        (("busway_bus.handlers.fetch:_Fetch._partition_data", _counts_before_it_compares),),
        "elections",
    ),
    Planted(
        "follower truncates to its high watermark",
        "a follower of a new leader cuts its log at its high watermark, which is behind the leader's",
        ((f"{_FETCHER}:Fetcher.put", _cuts_at_high_watermark),),
        "elections",
    ),
    Planted(
        "divergence without truncation",
        "a follower that diverges cuts nothing",
        (("busway_bus.replication.following:truncation_offset", _cuts_nothing),),
        "elections",
    ),
    Planted(
        "follower reports unflushed offsets",
        "a follower fetches on before its records are on disk",
        ((f"{_LOGS}.synced", _counts_unflushed),),
        "elections",
    ),
    Planted(
        "producers kept after a truncation",
        "a retried batch that was truncated counts as a duplicate",
        (("busway_bus.log.producer_state:ProducerState.in_place_of", _keeps_producers),),
        "epochs",
    ),
    Planted(
        "producers forgotten after a truncation",
        "the producer state is not rebuilt from the rest of the log",
        (("busway_bus.log.partition_log:PartitionLog.cut", _forgets_producers),),
        "epochs",
    ),
    Planted(
        "leader epochs kept after a truncation",
        "the leader epoch cache lists epochs whose records are gone",
        (("busway_bus.log.epochs:LeaderEpochs.truncate", _keeps_epochs),),
        "elections",
    ),
    Planted(
        "follower blind to an open transaction",
        "the last stable offset of a follower that becomes leader ignores transactions that began before",
        ((f"{_STATE}.transaction_began", _blind_to_transactions),),
        "transactions",
    ),
    Planted(
        "open transactions not restored",
        "the last stable offset ignores transactions that were open when the log was opened or truncated",
        ((f"{_STATE}.transactions_restored", _not_restored),),
        "transactions",
    ),
    Planted(
        "append after the leadership ended",
        "a batch that is inspected in a thread is written although this broker leads no more",
        (("busway_bus.replication.manager:ReplicaManager._in_turn", _appends_after_the_leadership),),
        "epochs",
    ),
    Planted(
        "fetch of a replaced process accepted",
        "a leader counts the fetch of a broker's earlier process",
        (("busway_bus.replication.partition:Partition.check_follower", _restarted_followers),),
        "losses",
    ),
    Planted(
        "AlterPartition without broker epochs",
        "a follower that has restarted since its fetch enters the ISR",
        ((f"{_STATE}._ask", _without_epochs),),
        "losses",
    ),
    Planted(
        "lagging follower stays in sync",
        "the leader never shrinks the ISR: records wait for a follower that does not fetch",
        ((f"{_STATE}.time_passed", _never_lags),),
        "isrs",
    ),
)
