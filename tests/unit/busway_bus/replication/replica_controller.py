"""The controller of brokers that replicate with each other, and the checks that it calls.

Here: a controller that decides with the real commands, at once and without a log; `Watch`.
Not here: the brokers (`replica_cluster`).
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from busway_bus.controller.controller import Surroundings
from busway_bus.controller.heartbeats import BrokerHeartbeats
from busway_bus.kernel.config import BrokerConfig
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.features import SUPPORTED
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import FeatureLevelRecord

LISTENER: Final = "PLAINTEXT"
SETTINGS: Final = {
    "listeners": f"{LISTENER}://h:9092",
    "busway.insecure": "true",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "200",
    "min.insync.replicas": "2",
}


class Watch:
    """Called where a rule of the whole cluster can be checked; checks nothing itself."""

    def decided(self, before: ClusterImage, image: ClusterImage) -> None:
        """The controller has written a change, which no broker has read yet."""

    def altering(self, request: Any, response: Any, image: ClusterImage) -> None:
        """The controller answers an AlterPartition request, on the image before it."""

    def acknowledged(self, index: int, offset: int) -> None:
        """A leader acknowledges a record with acks=all."""

    def served_until_now(self) -> Mapping[Any, int]:
        """Return what `served` has noted when a request comes."""
        return {}

    def served(
        self,
        leader: tuple[int, int],
        request: Any,
        response: Any,
        before: dict[int, int],
        after: dict[int, int],
        served: Mapping[Any, int],
    ) -> None:
        """A process of a leader answers a follower's fetch; its leader epochs when the request came and now."""


class Controller:
    """Decides at once, without a log: every record is committed."""

    leader_id = 100

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.watch = Watch()
        self.followers: dict[int, Callable[[ClusterImage, Delta, int], None]] = {}
        self.config = BrokerConfig.defaults(
            node_id="100", **{key.replace(".", "_"): value for key, value in SETTINGS.items() if key != "listeners"}
        )
        self.image = ClusterImage()
        self.records: list[Any] = [
            FeatureLevelRecord(name=name, feature_level=highest) for name, (_, highest) in SUPPORTED.items()
        ]
        self.image, _ = self.everything()
        self.heartbeats = BrokerHeartbeats()
        self._ids = itertools.count(1_000)

    async def request(self, command: Any, context: Any = None) -> Any:
        """As of `controller.Controller`."""
        return self.decide(command)

    def decide(self, command: Any) -> Any:
        """Decide, and publish the change to all brokers."""
        surroundings = Surroundings(
            config=self.config,
            new_id=lambda: UUID(int=next(self._ids)),
            next_offset=len(self.records),
            heartbeats=self.heartbeats,
            now_ms=int(self._now() * 1000),
        )
        decision = command.decide(self.image, surroundings)
        if decision.records:
            delta = Delta(self.image)
            for record in decision.records:
                delta.apply(record)
            before, self.image = self.image, delta.image()
            self.records += decision.records
            self.watch.decided(before, self.image)
            for publish in self.followers.values():
                publish(self.image, delta, len(self.records))
        return decision.reply

    def everything(self) -> tuple[ClusterImage, Delta]:
        """All that was ever decided, as one change."""
        delta = Delta(ClusterImage())
        for record in self.records:
            delta.apply(record)
        return delta.image(), delta
