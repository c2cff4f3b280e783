"""The controller on this node: what it knows of brokers beside its log."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.unit.busway_bus.controller.members import SESSION_MS, Members

from busway_bus.controller.brokers import BrokerHeartbeat
from busway_bus.controller.controller import ITSELF
from busway_bus.controller.lost_brokers import FenceStaleBrokers
from busway_bus.metadata.image import ClusterImage
from busway_bus.quorum.local_controller import LocalController
from busway_bus.quorum.metadata_log import MetadataLog
from busway_protocol.errors import ErrorCode, KafkaError


def uuid4() -> UUID:
    return UUID(int=7)


class Log:
    """A metadata log that decides at once, or refuses."""

    def __init__(self, image: ClusterImage) -> None:
        self.image, self.leadership, self.next_offset = image, 4, 100
        self.writer = SimpleNamespace(leader_id=1)
        self.full = False

    async def format(self) -> None:
        """The features are finalized."""

    async def run(self, decide: Callable[[ClusterImage], Any]) -> Any:
        if self.full:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return decide(self.image).reply


async def test_a_refused_heartbeat_keeps_the_session() -> None:
    """A controller with too many commands fences no broker that is alive; one of an earlier epoch does not count."""
    members = Members(3)
    log, now_s = Log(members.image), 0.0
    controller = LocalController(members.config, cast("MetadataLog", log), uuid4, monotonic_s=lambda: now_s)
    await controller.request(FenceStaleBrokers(), ITSELF)

    def heartbeat(node_id: int, *, stale: bool = False) -> BrokerHeartbeat:
        return BrokerHeartbeat(node_id=node_id, epoch=members.image.brokers[node_id].epoch - stale, metadata_offset=0)

    for _ in range(5):
        now_s += SESSION_MS / 4_000
        log.full = True
        for command in (heartbeat(1), heartbeat(2, stale=True)):
            with pytest.raises(KafkaError):
                await controller.request(command, ITSELF)
        log.full = False
        fenced = await controller.request(FenceStaleBrokers(), ITSELF)
    assert fenced == (2, 3)


async def test_another_leadership_knows_no_heartbeats() -> None:
    """Every broker has a whole session from its first check on."""
    members = Members(1)
    log, now_s = Log(members.image), 0.0
    controller = LocalController(members.config, cast("MetadataLog", log), uuid4, monotonic_s=lambda: now_s)
    for leadership, fenced in ((4, ()), (5, ()), (5, ()), (5, ()), (5, (1,))):
        log.leadership = leadership
        assert await controller.request(FenceStaleBrokers(), ITSELF) == fenced
        now_s += SESSION_MS / 2_500
