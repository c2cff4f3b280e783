"""Showing a group that its member lives.

What lives here: `beat`, which does it in a classic group until that says something else or the reader has been away for too long, and
what both group protocols need for it. What does not: the other protocol's beat (`heartbeat_modern`), where it runs, so that a blocked event
loop does not stop it (`heartbeat_thread`), what the member does about the group's answer (`group_classic`).

A coordinator that cannot be reached, that has moved or is loading says nothing about the member: it is looked up and asked again, in
the name of the same member and generation, however long that takes. Only its own word ends a session.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from busway.cluster.coordinator import PASSING
from busway.consumer.coordinator import Coordinator, Member
from busway.errors import BrokerError, BuswayError, NotRunning
from busway.net.clock import REAL_TIME
from busway.options import ConsumerOptions
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import HeartbeatRequest

logger = logging.getLogger("busway.consumer")

_TRIES_IN_SESSION: Final = 3
"""An answer is waited for no longer than this share of a session, so that another connection can be tried before it ends."""


class PollTracker:
    """When records were last asked for; any thread may tell it, and look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._polled_s: float | None = None

    def polled(self) -> None:
        """Records are asked for now."""
        now_s = REAL_TIME.monotonic_s()
        with self._lock:
            self._polled_s = now_s

    def away_s(self) -> float:
        """Since when none were; 0 before the first time."""
        now_s = REAL_TIME.monotonic_s()
        with self._lock:
            return 0.0 if self._polled_s is None else now_s - self._polled_s


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatTimings:
    """How often a member shows itself, how long it waits for an answer, how long its reader may be away; seconds."""

    interval_s: float
    answer_s: float
    reader_s: float

    @staticmethod
    def of(options: ConsumerOptions) -> "HeartbeatTimings":
        """As the options say."""
        return HeartbeatTimings(
            interval_s=options.heartbeat_interval_ms / 1000,
            answer_s=min(options.request_timeout_ms, options.session_timeout_ms / _TRIES_IN_SESSION) / 1000,
            reader_s=options.max_poll_interval_ms / 1000,
        )


Tell = Callable[..., None]
"""Tells the member what its group answered; None: its reader was away for too long, and it has left."""


class CoordinatorContact:
    """Whether the coordinator hears a member, and when it is asked again while it does not."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._backoff = coordinator.backoff()
        self._failing = False

    async def ask(self, request: Any, timeout_s: float) -> tuple[ErrorCode, Any, str]:
        """The code of its answer, the answer if there is one, and what is to be said of it.

        Raises:
            NotRunning: the client was aborted.
        """
        try:
            answer = await self._coordinator.ask(request, timeout_s=timeout_s)
        except BrokerError as refused:
            return refused.code, None, str(refused)
        except NotRunning:
            raise
        except BuswayError as failed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None, str(failed)
        code = error_for(answer.error_code)
        return code, answer, code.text

    def unheard(self, why: str) -> float:
        """It was not heard: how long to wait before it asks again, of whoever coordinates the group then."""
        self._coordinator.forget()
        if not self._failing:
            logger.warning(
                "group %s: the coordinator does not hear this member, which keeps its partitions and asks again: %s",
                self._coordinator.group,
                why,
            )
        self._failing = True
        return self._backoff.next()

    def heard(self) -> None:
        """It was heard."""
        if self._failing:
            logger.info("group %s: the coordinator hears this member again", self._coordinator.group)
            self._backoff.reset()
        self._failing = False


def is_overdue(group: str, reader: PollTracker, pace: HeartbeatTimings) -> bool:
    """Whether the reader is away for too long, so that its member has to leave; says so."""
    away_s = reader.away_s()
    if away_s <= pace.reader_s:
        return False
    logger.warning(
        "group %s: the reader has asked for nothing for %.1f s, more than max_poll_interval_ms=%d allows; leaving the group "
        "until it does: give it less to do between two polls, or a longer interval",
        group,
        away_s,
        pace.reader_s * 1000,
    )
    return True


async def beat(
    coordinator: Coordinator, member: Member, reader: PollTracker, pace: HeartbeatTimings, tell: Tell
) -> None:
    """Show that a member lives until its group does not know it any more, or its reader is away for too long."""
    hearing = CoordinatorContact(coordinator)
    wait_s = pace.interval_s
    while True:
        await REAL_TIME.sleep(wait_s)
        if is_overdue(member.group, reader, pace):
            await coordinator.leave(member)
            tell(member, None)
            return
        request = HeartbeatRequest(
            group_id=member.group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        try:
            code, _, text = await hearing.ask(request, pace.answer_s)
        except NotRunning:
            return
        if code in PASSING:
            wait_s = hearing.unheard(text)
            continue
        hearing.heard()
        wait_s = pace.interval_s
        if code is not ErrorCode.NONE:
            tell(member, code)
            if code is not ErrorCode.REBALANCE_IN_PROGRESS:
                return
