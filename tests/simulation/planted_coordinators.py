"""Bugs put into coordinators that move from broker to broker on purpose.

Here: each as a change of a named function.
Not here: the engine and the bound of each (`planted_cluster`), how they are put in (`planting`).
"""

from typing import Any, Final

from tests.simulation.planting import Planted

_RUNTIME, _LOADER = "busway_bus.coordinator.runtime:Runtime", "busway_bus.coordinator.loading:Loader"
_MARKERS = "busway_bus.coordinator.markers:Markers"


def _at_once(_: Any) -> Any:
    async def durably(self: Any, loaded: Any) -> None:
        pass

    return durably


def _reads_at_once(_: Any) -> Any:
    async def read(self: Any, partition: int, operation: Any) -> Any:
        return operation(self.shard(partition))

    return read


def _up_to_the_high_watermark(_: Any) -> Any:
    async def load(self: Any, stored: Any) -> Any:
        from busway_bus.coordinator.replay import apply_records, latest_records
        from busway_protocol.records.batch import read_header

        shard, end = self._new_shard(), stored.committed()
        batches = (batch for batch in stored.batches() if read_header(batch).next_offset <= end)
        records = await self._replicas.slices.run(latest_records(shard, batches))
        await self._replicas.scheduler.run("", apply_records(shard, records, self._now()))
        return shard

    return load


def _not_resumed(_: Any) -> Any:
    def resume(self: Any, partition: int, shard: Any) -> None:
        pass

    return resume


def _any_answer_will_do(original: Any) -> Any:
    async def write(self: Any, marker: Any, partitions: Any, **named: Any) -> Any:
        from busway_protocol.errors import ErrorCode

        return dict.fromkeys(await original(self, marker, partitions, **named), ErrorCode.NONE)

    return write


def _end_at_once(original: Any) -> Any:
    async def with_id(self: Any, partition: int, transactional_id: str, decide: Any) -> Any:
        outcome = decide(None)
        if outcome.needs_id or outcome.identity is None:
            return await original(self, partition, transactional_id, decide)
        if outcome.ending:
            self.markers.begin(partition, transactional_id)
        return outcome.identity

    return with_id


def _added_at_once(original: Any) -> Any:
    async def add(self: Any, transactional_id: str, identity: Any, partitions: Any, **named: Any) -> None:
        levels = self._levels(named["client_version"])
        self.runtime.decide(
            self.runtime.partition_of(transactional_id),
            lambda shard: shard.add(
                transactional_id, identity, partitions, levels, now=self.runtime.now(), host=named["host"]
            ),
        )

    return add


def _classic_generation_forgotten(original: Any) -> Any:
    def on_loaded(self: Any, partition: int, shard: Any) -> None:
        for group in shard.groups.values():
            if hasattr(group, "generation"):
                group.generation = 0
        original(self, partition, shard)

    return on_loaded


def _consumer_epoch_forgotten(original: Any) -> Any:
    def on_loaded(self: Any, partition: int, shard: Any) -> None:
        for group in shard.groups.values():
            if hasattr(group, "target_epoch"):
                group.epoch = group.target_epoch = 1
        original(self, partition, shard)

    return on_loaded


PLANTED: Final = (
    Planted(
        "offset commit answered before it is replicated",
        "a coordinator answers when its record is in its own log: the next coordinator may not have it",
        ((f"{_RUNTIME}._durably", _at_once),),
    ),
    Planted(
        "coordinator's state read before it is replicated",
        "a reader gets what the next coordinator may not have",
        ((f"{_RUNTIME}.read", _reads_at_once),),
    ),
    Planted(
        "coordinator loads up to the high watermark",
        "a new coordinator begins before it has read its log to the end",
        ((f"{_LOADER}._load", _up_to_the_high_watermark),),
    ),
    Planted(
        "group generation lost at a fail-over",
        "a new coordinator has the members of a classic group, and counts its generations from the first again",
        (("busway_bus.coordinator.group_coordinator:GroupCoordinator._on_loaded", _classic_generation_forgotten),),
    ),
    Planted(
        "group epoch lost at a fail-over",
        "a new coordinator has the members of a consumer group, and counts its epochs from the first again",
        (("busway_bus.coordinator.group_coordinator:GroupCoordinator._on_loaded", _consumer_epoch_forgotten),),
    ),
    Planted(
        "prepared transaction not resumed",
        "a new coordinator does not write the markers of transactions whose end was decided before",
        ((f"{_MARKERS}.resume", _not_resumed),),
    ),
    Planted(
        "refused marker counts as written",
        "a transaction is complete although a partition's leader has refused the marker",
        (("busway_bus.coordinator.remote_markers:ClusterMarkerWriter.write", _any_answer_will_do),),
    ),
    Planted(
        "end of a transaction answered before it is replicated",
        "the next coordinator does not know that the transaction was committed",
        (("busway_bus.coordinator.transaction_coordinator:TransactionCoordinator._with_id", _end_at_once),),
    ),
    Planted(
        "partition added before it is replicated",
        "a record is written to a partition of which the next coordinator does not know that it is part of the transaction",
        (("busway_bus.coordinator.transaction_coordinator:TransactionCoordinator.add", _added_at_once),),
    ),
)
