"""Fencing of brokers that are gone, by the active controller.

Here: the periodic check of sessions.
Not here: which sessions are over (`controller.heartbeats`), the records (`controller.brokers`).
"""

import asyncio
import logging
from typing import Final

from busway_bus.controller.brokers import FenceStaleBrokers
from busway_bus.controller.controller import ITSELF, Controller
from busway_bus.controller.heartbeats import check_interval_ms
from busway_bus.quorum.metadata_log import MetadataLog
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.controller")

_MOVED: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})
"""Errors after which another controller, or a later check, fences."""


async def fence_stale(controller: Controller, metadata: MetadataLog, *, session_ms: int) -> None:
    """Fence brokers whose sessions are over, while this node leads; runs until cancelled."""
    while True:
        await asyncio.sleep(check_interval_ms(session_ms) / 1000)
        if not metadata.writer.leading:
            continue
        try:
            fenced = await controller.request(FenceStaleBrokers(), ITSELF)
        except KafkaError as problem:
            if problem.code not in _MOVED:
                logger.error("brokers without heartbeats cannot be fenced yet: %s", problem)
            continue
        for node_id in fenced:
            logger.warning("broker %d sent no heartbeat for %d ms and is fenced", node_id, session_ms)
