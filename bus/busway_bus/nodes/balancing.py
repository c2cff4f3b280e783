"""Periodic elections by the active controller.

Here: when preferred replicas and unclean leaders are elected.
Not here: the elections (`controller.elections`), settings (`kernel.election_configs`).
"""

import asyncio
import logging
from typing import Final

from busway_bus.controller.controller import ITSELF, Command, Controller
from busway_bus.controller.elections import BalanceLeaders, ElectMissingLeaders
from busway_bus.kernel.config import BrokerConfig
from busway_bus.quorum.metadata_log import MetadataLog
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.controller")

_MOVED: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})
"""Errors after which another controller, or a later check, elects."""


async def elect_periodically(controller: Controller, metadata: MetadataLog, config: BrokerConfig) -> None:
    """Elect leaders in their intervals, while this node leads; runs until cancelled."""
    async with asyncio.TaskGroup() as elections:
        if config.get("auto.leader.rebalance.enable"):
            seconds = config.get("leader.imbalance.check.interval.seconds")
            elections.create_task(_repeat(controller, metadata, BalanceLeaders(), seconds))
        seconds = config.get("unclean.leader.election.interval.ms") / 1000
        elections.create_task(_repeat(controller, metadata, ElectMissingLeaders(), seconds))


async def _repeat(controller: Controller, metadata: MetadataLog, command: Command[bool], seconds: float) -> None:
    """Request a command at an interval, and again at once while more is due."""
    while True:
        await asyncio.sleep(seconds)
        try:
            while metadata.writer.leading and await controller.request(command, ITSELF):
                pass
        except KafkaError as problem:
            if problem.code not in _MOVED:
                logger.error("leaders cannot be elected now, it is tried again in %d s: %s", seconds, problem)
