"""Heartbeats of consumer groups (KIP-848).

Here: `converse`, the only sender of a member's heartbeats, since each epoch follows from the previous response.
Not here: their content (`membership_modern`), reactions to responses (`group_modern`).

As in classic groups, an unreachable, moved or loading coordinator does not end the session. The next request then
repeats the full state, because the last may be lost.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from busway.cluster.coordinator import PASSING
from busway.consumer.coordinator import LEAVE_S, Coordinator
from busway.consumer.heartbeat import CoordinatorContact, HeartbeatTimings, OnResponse, PollTracker, is_overdue
from busway.consumer.membership_modern import (
    DesiredSubscription,
    HeartbeatState,
    Identity,
    Share,
    TargetAssignment,
    leave_request,
)
from busway.errors import BuswayError, NotRunning
from busway.net.clock import REAL_TIME
from busway_protocol.errors import ErrorCode

logger: logging.Logger = logging.getLogger("busway.consumer")

_UNRELEASED_S: Final = 1.0
"""Retry interval while the session of a killed static member is open; a new member must wait for its end."""
_LEAST_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Refused:
    code: ErrorCode
    text: str


class HeartbeatSession:
    """A `HeartbeatState` in the heartbeat thread; other threads use `HeartbeatThread.call`."""

    def __init__(self, state: HeartbeatState, number: int) -> None:
        self.state = state
        self.number = number
        self.woken: asyncio.Event = asyncio.Event()
        """Set when there is news for the coordinator."""

    def wants(self, subscription: DesiredSubscription) -> None:
        self.state.wants(subscription)
        self.woken.set()

    def has(self, share: Share, done: bool) -> None:
        self.state.has(share, done=done)
        if done:
            self.woken.set()


async def leave(coordinator: Coordinator, identity: Identity) -> None:
    """Leave the group; a static member leaves temporarily and keeps its partitions. Errors are logged."""
    try:
        async with REAL_TIME.timeout(LEAVE_S):
            await coordinator.ask(leave_request(identity))
    except (BuswayError, TimeoutError) as problem:
        logger.warning(
            "group %s was not left, its session has to end: %s", identity.group, str(problem) or "no answer in time"
        )


async def converse(
    coordinator: Coordinator,
    session: HeartbeatSession,
    reader: PollTracker,
    pace: HeartbeatTimings,
    on_response: OnResponse,
) -> None:
    state, contact = session.state, CoordinatorContact(coordinator, session.woken)
    identity = state.identity
    last: TargetAssignment | None = None
    unreleased = False
    while True:
        if is_overdue(identity.group, reader, pace):
            await leave(coordinator, identity)
            on_response(session.number, None)
            return
        try:
            code, answer, text = await contact.ask(state.request(), pace.answer_s)
        except NotRunning:
            return
        if code is ErrorCode.NONE:
            contact.heartbeat_received()
            given = state.answered(answer)
            if given != last:
                last = given
                on_response(session.number, given)
            if not state.has_news:
                left_s = pace.reader_s - reader.since_poll_s() + _LEAST_S
                await contact.wait(max(_LEAST_S, min(answer.heartbeat_interval_ms / 1000, left_s)))
            continue
        state.unanswered()
        if code in PASSING or code.retriable:
            await REAL_TIME.sleep(contact.heartbeat_failed(text))
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID:
            if not unreleased:
                logger.warning(
                    "group %s: another member is %s; if it was killed, this one joins when its session has ended, otherwise give each its "
                    "own group_instance_id",
                    identity.group,
                    identity.instance_id,
                )
            unreleased = True
            await REAL_TIME.sleep(_UNRELEASED_S)
        else:
            on_response(session.number, Refused(code, getattr(answer, "error_message", None) or text))
            return
