"""The controller on this node.

Here: passing commands and their context to the metadata log.
Not here: the commands, a controller on another node (another `Controller`).
"""

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from busway_bus.controller.controller import Command, ControllerRequestContext, Surroundings
from busway_bus.kernel.config import BrokerConfig
from busway_bus.quorum.metadata_log import MetadataLog

R = TypeVar("R")


class LocalController:
    """Decides with this node's metadata log; see `controller.controller.Controller`."""

    def __init__(self, config: BrokerConfig, metadata: MetadataLog, new_ids: Callable[[], UUID]) -> None:
        self._config = config
        self._metadata = metadata
        self._new_ids = new_ids

    @property
    def leader_id(self) -> int:
        return self._metadata.writer.leader_id

    async def request(self, command: Command[R], context: ControllerRequestContext) -> R:
        metadata = self._metadata

        def surroundings() -> Surroundings:
            return Surroundings(config=self._config, new_id=self._new_ids, next_offset=metadata.next_offset)

        return await metadata.run(lambda image: command.decide(image, surroundings()))
