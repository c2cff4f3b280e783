"""The controller on this node.

Here: passing commands and their context to the metadata log.
Not here: the commands, a controller on another node (another `Controller`).
"""

from collections.abc import Callable
from typing import TypeVar, cast
from uuid import UUID

from busway.net.machine import OS
from busway_bus.controller.brokers import BrokerHeartbeat
from busway_bus.controller.controller import Command, ControllerRequestContext, LongCommand, Surroundings
from busway_bus.controller.heartbeats import BrokerHeartbeats
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import ClusterImage
from busway_bus.quorum.metadata_log import MetadataLog

R = TypeVar("R")


class LocalController:
    """Decides with this node's metadata log; see `controller.controller.Controller`.

    Args:
        monotonic_s: for sessions of brokers.
        cluster_id: brokers of another cluster are refused; empty accepts any.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataLog,
        new_ids: Callable[[], UUID],
        *,
        monotonic_s: Callable[[], float] = OS.monotonic_s,
        cluster_id: str = "",
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._new_ids = new_ids
        self._monotonic_s = monotonic_s
        self._cluster_id = cluster_id
        self._heartbeats = BrokerHeartbeats()

    @property
    def leader_id(self) -> int:
        return self._metadata.writer.leader_id

    async def request(self, command: Command[R], context: ControllerRequestContext) -> R:
        """Decide on a command; the first one in a new cluster finds its features finalized."""
        metadata = self._metadata
        heartbeat: object = command
        if isinstance(heartbeat, BrokerHeartbeat):
            self._arrived(heartbeat)
        await metadata.format()

        def surroundings() -> Surroundings:
            self._heartbeats.begin(metadata.leadership)
            return Surroundings(
                config=self._config,
                new_id=self._new_ids,
                next_offset=metadata.next_offset,
                heartbeats=self._heartbeats,
                now_ms=self._now_ms(),
                cluster_id=self._cluster_id,
            )

        if hasattr(command, "is_long"):  # `isinstance` of a protocol looks for all members, at each heartbeat
            long = cast("LongCommand", command)
            if long.is_long(metadata.image):
                await self._take_parts(long, surroundings)
        return await metadata.run(lambda image: command.decide(image, surroundings()))

    async def _take_parts(self, command: LongCommand, surroundings: Callable[[], Surroundings]) -> None:
        first = True

        def part(image: ClusterImage) -> Decision[bool]:
            return command.part(image, surroundings(), first=first)

        while await self._metadata.run(part):
            first = False

    def _arrived(self, heartbeat: BrokerHeartbeat) -> None:
        broker = self._metadata.image.brokers.get(heartbeat.node_id)
        if self._metadata.leadership >= 0 and broker is not None and broker.epoch == heartbeat.epoch:
            self._heartbeats.begin(self._metadata.leadership)
            self._heartbeats.arrived(broker, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._monotonic_s() * 1000)
