"""A controller's image and heartbeats, with the log's offsets, for tests of brokers."""

import itertools
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from tests.unit.busway_bus.controller.cluster import SmallCluster

from busway_bus.controller.brokers import BrokerHeartbeat, HeartbeatReply, RegisterBroker
from busway_bus.controller.controller import LongCommand, Surroundings
from busway_bus.controller.heartbeats import BrokerHeartbeats
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.metadata.features import ELR_VERSION, SUPPORTED
from busway_bus.metadata.records import FeatureLevelRecord
from busway_protocol.errors import ErrorCode, KafkaError

SESSION_MS = 9_000
CLUSTER_ID = "cluster"
FEATURES = tuple((name, *levels) for name, levels in {**SUPPORTED, ELR_VERSION: (0, 1)}.items())


def registration(node_id: int, *, run: int = 1, **fields: Any) -> RegisterBroker:
    """The request of a broker's process, its `run`-th."""
    standard: dict[str, Any] = {
        "incarnation": UUID(int=1_000 * run + node_id),
        "endpoints": (Endpoint(name="PLAINTEXT", host="h", port=9_000 + node_id),),
        "rack": None,
        "directories": (UUID(int=200 + node_id),),
        "features": FEATURES,
        "joins": True,
        "cluster_id": CLUSTER_ID,
    }
    return RegisterBroker(node_id=node_id, **{**standard, **fields})


class Members(SmallCluster):
    """A controller's image and heartbeats, with the log's offsets; brokers 1 to `brokers` are unfenced.

    Attributes:
        records: of the last command.
        largest: the most records of one decision.
    """

    def __init__(self, brokers: int = 3, **config: Any) -> None:
        self.offset, self.now_ms, self.heartbeats, self.ids = 10, 0, BrokerHeartbeats(), itertools.count(5_000)
        self.records: tuple[Any, ...] = ()
        self.largest = 0
        super().__init__(0, **config)
        self.apply([FeatureLevelRecord(name="metadata.version", feature_level=30)])
        for node_id in range(1, brokers + 1):
            self.run(registration(node_id))
            self.beat(node_id)

    def run(self, command: Any) -> Any:
        """Decide, a long command in parts first, as `LocalController` does; apply the records, return the reply."""
        self.records = ()
        first = True
        if isinstance(command, LongCommand) and command.is_long(self.image):
            while self._decide(partial(command.part, first=first)):
                first = False
        return self._decide(command.decide)

    def _decide(self, decide: Any) -> Any:
        surroundings = Surroundings(
            config=self.config,
            new_id=lambda: UUID(int=next(self.ids)),
            next_offset=self.offset,
            heartbeats=self.heartbeats,
            now_ms=self.now_ms,
            cluster_id=CLUSTER_ID,
        )
        decision = decide(self.image, surroundings)
        self.records += decision.records
        self.largest = max(self.largest, len(decision.records))
        self.offset += self.apply(decision.records)
        return decision.reply

    def beat(self, node_id: int, *, offset: int | None = None, **fields: Any) -> HeartbeatReply:
        """A heartbeat of a broker that has applied everything, or the log up to an offset."""
        reply: HeartbeatReply = self.run(
            BrokerHeartbeat(
                node_id=node_id,
                epoch=self.image.brokers[node_id].epoch,
                metadata_offset=self.offset - 1 if offset is None else offset,
                **fields,
            )
        )
        return reply

    def refusal(self, command: Any) -> tuple[ErrorCode, str]:
        before = self.image
        with pytest.raises(KafkaError) as refused:
            self.run(command)
        assert self.image is before
        return refused.value.code, str(refused.value.message)

    @property
    def kinds(self) -> list[type[Any]]:
        """The types of the last command's records."""
        return [type(record) for record in self.records]
