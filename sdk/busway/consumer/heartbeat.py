"""Heartbeats of classic groups, and what both group protocols share of them.

Not here: consumer groups (`heartbeat_modern`), reactions to responses (`group_classic`).

A coordinator that is unreachable, moved or loading is found again and retried for the same member and generation,
without limit. Only an error that it returns ends a session. After the connection of a heartbeat was lost, the next one
follows at once on another: Busway's broker fences a member without a connection long before its session ends. The first
heartbeat of a classic member follows an interval after it joined, and has a connection of its own.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from busway.cluster.coordinator import PASSING
from busway.consumer.coordinator import Coordinator, Member
from busway.errors import BrokerError, BuswayError, NotRunning
from busway.net.clock import REAL_TIME
from busway.options import ConsumerOptions
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import HeartbeatRequest

logger: logging.Logger = logging.getLogger("busway.consumer")

_TRIES_IN_SESSION: Final = 3
"""Requests time out after this fraction of the session timeout, so that another connection can be tried."""


class PollTracker:
    """Time of the last poll; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._polled_s: float | None = None

    def polled(self) -> None:
        now_s = REAL_TIME.monotonic_s()
        with self._lock:
            self._polled_s = now_s

    def since_poll_s(self) -> float:
        now_s = REAL_TIME.monotonic_s()
        with self._lock:
            return 0.0 if self._polled_s is None else now_s - self._polled_s


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatTimings:
    interval_s: float
    answer_s: float
    reader_s: float

    @staticmethod
    def of(options: ConsumerOptions) -> "HeartbeatTimings":
        return HeartbeatTimings(
            interval_s=options.heartbeat_interval_ms / 1000,
            answer_s=min(options.request_timeout_ms, options.session_timeout_ms / _TRIES_IN_SESSION) / 1000,
            reader_s=options.max_poll_interval_ms / 1000,
        )


OnResponse = Callable[..., None]
"""Callback for the group's response; None if the reader was overdue and the member left."""


class CoordinatorContact:
    """Heartbeats to the coordinator on one connection after another.

    Args:
        woken: ends a wait; cleared before each request.
    """

    def __init__(self, coordinator: Coordinator, woken: asyncio.Event | None = None) -> None:
        self._coordinator = coordinator
        self._woken = asyncio.Event() if woken is None else woken
        self._backoff = coordinator.backoff()
        self._failing = self._is_lost = False
        self._requests = 0

    async def ask(self, request: Any, timeout_s: float) -> tuple[ErrorCode, Any, str]:
        """Return the error code, the response if any, and the error text; raise `NotRunning` if the client was aborted."""
        self._woken.clear()
        self._is_lost = False
        self._requests += 1
        try:
            answer = await self._coordinator.ask(
                request, timeout_s=timeout_s, when_lost=partial(self._lost, self._requests)
            )
        except BrokerError as refused:
            return refused.code, None, str(refused)
        except NotRunning:
            raise
        except BuswayError as failed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None, str(failed)
        code = error_for(answer.error_code)
        return code, answer, code.text

    def _lost(self, request: int) -> None:
        if request != self._requests:
            return  # later ones have had another connection
        self._is_lost = True
        self._woken.set()

    async def wait(self, seconds: float) -> None:
        """Wait for the next heartbeat's time; after a lost connection only for the backoff."""
        try:
            async with REAL_TIME.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            self._backoff.reset()
            return
        if self._is_lost:
            await REAL_TIME.sleep(self._backoff.next())

    def heartbeat_failed(self, why: str) -> float:
        self._coordinator.forget()
        if not self._failing:
            logger.warning(
                "group %s: heartbeats fail; this member keeps its partitions and retries: %s",
                self._coordinator.group,
                why,
            )
        self._failing = True
        return self._backoff.next()

    def heartbeat_received(self) -> None:
        if self._failing:
            logger.info("group %s: heartbeats succeed again", self._coordinator.group)
            self._backoff.reset()
        self._failing = False


def is_overdue(group: str, reader: PollTracker, pace: HeartbeatTimings) -> bool:
    since_poll_s = reader.since_poll_s()
    if since_poll_s <= pace.reader_s:
        return False
    logger.warning(
        "group %s: the reader has asked for nothing for %.1f s, more than max_poll_interval_ms=%d allows; leaving the group "
        "until it does: give it less to do between two polls, or a longer interval",
        group,
        since_poll_s,
        pace.reader_s * 1000,
    )
    return True


async def send_heartbeats(
    coordinator: Coordinator, member: Member, reader: PollTracker, pace: HeartbeatTimings, on_response: OnResponse
) -> None:
    """Send heartbeats until the group rejects the member or the reader is overdue."""
    contact = CoordinatorContact(coordinator)
    await contact.wait(pace.interval_s)
    while True:
        if is_overdue(member.group, reader, pace):
            await coordinator.leave(member)
            on_response(member, None)
            return
        request = HeartbeatRequest(
            group_id=member.group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        try:
            code, _, text = await contact.ask(request, pace.answer_s)
        except NotRunning:
            return
        if code in PASSING:
            await REAL_TIME.sleep(contact.heartbeat_failed(text))
            continue
        contact.heartbeat_received()
        if code is not ErrorCode.NONE:
            on_response(member, code)
            if code is not ErrorCode.REBALANCE_IN_PROGRESS:
                return
        await contact.wait(pace.interval_s)
