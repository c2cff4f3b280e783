"""Showing a group that its member lives.

What lives here: `beat`, which does it until the group says something else or the reader has been away for too long. What does not: where
it runs, so that a blocked event loop does not stop it (`heart_thread`), what the member does about the group's answer (`group`).

A coordinator that cannot be reached, that has moved or is loading says nothing about the member: it is looked up and asked again, in
the name of the same member and generation, however long that takes. Only its own word ends a session.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from busway.cluster.coordinator import PASSING
from busway.consumer.coordinator import Coordinator, Member
from busway.errors import BrokerError, BuswayError, NotRunning
from busway.net.machine import current_machine
from busway.options import ConsumerOptions
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import HeartbeatRequest

log = logging.getLogger("busway.consumer")

_TRIES_IN_SESSION: Final = 3
"""An answer is waited for no longer than this share of a session, so that another connection can be tried before it ends."""


class Reader:
    """When records were last asked for; any thread may tell it, and look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._polled_s: float | None = None

    def polled(self) -> None:
        """Records are asked for now."""
        now_s = current_machine().monotonic_s()
        with self._lock:
            self._polled_s = now_s

    def away_s(self) -> float:
        """Since when none were; 0 before the first time."""
        now_s = current_machine().monotonic_s()
        with self._lock:
            return 0.0 if self._polled_s is None else now_s - self._polled_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a member shows itself, how long it waits for an answer, how long its reader may be away; seconds."""

    interval_s: float
    answer_s: float
    reader_s: float

    @staticmethod
    def of(options: ConsumerOptions) -> "Pace":
        """As the options say."""
        return Pace(
            interval_s=options.heartbeat_interval_ms / 1000,
            answer_s=min(options.request_timeout_ms, options.session_timeout_ms / _TRIES_IN_SESSION) / 1000,
            reader_s=options.max_poll_interval_ms / 1000,
        )


Told = Callable[[Member, ErrorCode | None], None]
"""What the group answered to a member; None: its reader was away for too long, and it has left."""


async def beat(coordinator: Coordinator, member: Member, reader: Reader, pace: Pace, told: Told) -> None:
    """Show that a member lives until its group does not know it any more, or its reader is away for too long."""
    backoff = coordinator.backoff()
    failing = False
    wait_s = pace.interval_s
    while True:
        await asyncio.sleep(wait_s)
        if (away_s := reader.away_s()) > pace.reader_s:
            log.warning(
                "group %s: the reader has asked for nothing for %.1f s, more than max_poll_interval_ms=%d allows; leaving the group "
                "until it does: give it less to do between two polls, or a longer interval",
                member.group,
                away_s,
                pace.reader_s * 1000,
            )
            await coordinator.leave(member)
            told(member, None)
            return
        try:
            answer = await coordinator.ask(
                HeartbeatRequest(
                    group_id=member.group,
                    generation_id=member.generation,
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                ),
                timeout_s=pace.answer_s,
            )
            code = error_for(answer.error_code)
            problem: BuswayError | None = None
        except BrokerError as refused:
            code, problem = refused.code, refused
        except NotRunning:
            return
        except BuswayError as failed:
            code, problem = ErrorCode.COORDINATOR_NOT_AVAILABLE, failed
        if code in PASSING:
            coordinator.forget()
            if not failing:
                log.warning(
                    "group %s: the coordinator does not hear this member, which keeps its partitions and asks again: %s",
                    member.group,
                    problem or code.text,
                )
            failing, wait_s = True, backoff.next()
            continue
        if failing:
            log.info("group %s: the coordinator hears this member again", member.group)
            backoff.reset()
        failing, wait_s = False, pace.interval_s
        if code is not ErrorCode.NONE:
            told(member, code)
            if code is not ErrorCode.REBALANCE_IN_PROGRESS:
                return
