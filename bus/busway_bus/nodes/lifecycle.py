"""A broker's life in its cluster: registration, heartbeats, controlled shutdown (KIP-631).

Here: the states of Kafka's BrokerLifecycleManager, and the loop that sends the requests.
Not here: the controller's side (`controller.brokers`, `controller.heartbeats`), the connection (`channels`).
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

from busway_bus.controller.brokers import RegisterBroker
from busway_bus.kernel.node_channels import ControllerChannel
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    RegisteredFeature,
    RegisteredListener,
)

logger = logging.getLogger("busway.broker")

BACKOFF_MS: Final = 100
"""First pause after a failed request; doubled each time, up to the session timeout."""
CATCH_UP_S: Final = 0.01
"""Pause between heartbeats until this broker has caught up."""
SHUTDOWN_S: Final = 0.05
"""Pause between the first heartbeats of a controlled shutdown."""
_HOPELESS: Final = frozenset(
    {ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION}
)
"""Refusals of a registration that no retry changes."""


class BrokerState(Enum):
    """States, as in Kafka."""

    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class CannotRegister(OSError):
    """The controller refuses this broker; the text has reason and remedy."""


class BrokerLifecycle:
    """Registers this broker and sends its heartbeats.

    Args:
        registration: of this start; its incarnation is that of all requests.
        metadata_offset: the offset that this broker has followed.
        check: raises CannotRegister if no further attempt can succeed; called between attempts.

    Attributes:
        previous_epoch: epoch of the last start if it lost no acknowledged record, else -1.
        epoch: -1 before the registration.
        unfenced: set once the controller has unfenced this broker.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        registration: RegisterBroker,
        *,
        cluster_id: str,
        metadata_offset: Callable[[], int],
        heartbeat_ms: int,
        session_ms: int,
        registration_ms: int,
        machine: Machine,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._channel, self._registration, self._cluster_id = channel, registration, cluster_id
        self._metadata_offset = metadata_offset
        self._heartbeat_s, self._session_ms, self._registration_s = (
            heartbeat_ms / 1000,
            session_ms,
            registration_ms / 1000,
        )
        self._machine = machine
        self.state = BrokerState.STARTING
        self.previous_epoch = self.epoch = -1
        self.caught_up = asyncio.Event()
        self.unfenced = asyncio.Event()
        self._may_shut_down = asyncio.Event()
        self._ready = False
        self._now = asyncio.Event()
        self._failures = 0
        self._last_problem = ""

    async def register(self) -> None:
        """Register, with retries.

        Raises:
            CannotRegister: it is refused for good, or for longer than `initial.broker.registration.timeout.ms`.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._registration_s
        while True:
            problem = await self._try_to_register()
            if problem is None:
                return
            self._check()
            if problem.code in _HOPELESS or loop.time() >= deadline_s:
                raise CannotRegister(f"the controller does not register this broker: {problem}{_remedy(problem.code)}")
            logger.warning("the controller does not register this broker yet: %s", problem)
            await asyncio.sleep(self._backoff_s())

    async def _try_to_register(self) -> KafkaError | None:
        registration = self._registration
        request = BrokerRegistrationRequest(
            broker_id=registration.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=registration.incarnation,
            listeners=[
                RegisteredListener(name=end.name, host=end.host, port=end.port, security_protocol=end.security_protocol)
                for end in registration.endpoints
            ],
            features=[
                RegisteredFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in registration.features
            ],
            rack=registration.rack,
            log_dirs=sorted(registration.directories),
            previous_broker_epoch=self.previous_epoch,
        )
        try:
            answer: BrokerRegistrationResponse = await self._channel.send(request)
        except KafkaError as problem:
            return problem
        if answer.error_code:
            return KafkaError(ErrorCode(answer.error_code))
        self.epoch, self._failures = answer.broker_epoch, 0
        return None

    async def run(self) -> None:
        """Send heartbeats until the task is cancelled, or the controlled shutdown is over."""
        while self.state is not BrokerState.SHUTTING_DOWN:
            self._now.clear()
            pause_s = await self._beat()
            try:
                async with asyncio.timeout(pause_s):
                    await self._now.wait()
            except TimeoutError:
                pass

    def ready(self) -> None:
        """Have this broker unfenced: it serves."""
        self._ready = True
        self._now.set()

    async def shut_down(self, within_s: float) -> None:
        """Have the leaderships moved to other brokers; give up after `within_s`."""
        if self.state is not BrokerState.RUNNING:
            return
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._now.set()
        try:
            async with asyncio.timeout(within_s):
                await self._may_shut_down.wait()
        except TimeoutError:
            logger.warning("this broker stops before its leaderships are moved: no controller answered in time")

    async def _beat(self) -> float:
        """Send a heartbeat; return the pause until the next, in s."""
        shuts_down = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        request = BrokerHeartbeatRequest(
            broker_id=self._registration.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._ready,
            want_shut_down=shuts_down,
        )
        try:
            answer: BrokerHeartbeatResponse = await self._channel.send(request)
            if answer.error_code:
                raise KafkaError(ErrorCode(answer.error_code))
        except KafkaError as problem:
            if self._last_problem != str(problem):
                self._last_problem = str(problem)
                logger.warning("the heartbeat of this broker failed, and is tried again: %s", problem)
            return self._backoff_s()
        if self._last_problem:
            logger.warning("the heartbeats of this broker are answered again")
        self._failures, self._last_problem = 0, ""
        return self._answered(answer, shuts_down=shuts_down)

    def _answered(self, answer: BrokerHeartbeatResponse, *, shuts_down: bool) -> float:
        if self.state is BrokerState.STARTING:
            if answer.is_caught_up:
                self.state = BrokerState.RECOVERY
                self.caught_up.set()
            return CATCH_UP_S
        if self.state is BrokerState.RECOVERY and not answer.is_fenced:
            self.state = BrokerState.RUNNING
            self.unfenced.set()
        if shuts_down:
            if answer.should_shut_down:
                self.state = BrokerState.SHUTTING_DOWN
                self._may_shut_down.set()
            return SHUTDOWN_S
        return CATCH_UP_S if self.state is BrokerState.RECOVERY and self._ready else self._heartbeat_s

    def _backoff_s(self) -> float:
        backoff_ms = min(BACKOFF_MS << min(self._failures, 16), self._session_ms)
        self._failures += 1
        return backoff_ms * self._machine.chance.uniform(0.98, 1.02) / 1000


def _remedy(code: ErrorCode) -> str:
    if code is ErrorCode.INCONSISTENT_CLUSTER_ID:
        return "; the cluster.id in meta.properties is another cluster's: write the right one, into an empty directory"
    if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        return "; another broker with this node.id runs: stop it, or choose another node.id"
    return ""
