"""Showing a group that its coordinator balances that its member lives, and hearing what it gives.

What lives here: `converse`, the one place that sends a member's heartbeats: each epoch follows from the answer before. What does not: what
is said (`membership_modern`), where it runs (`heartbeat_thread`), what the member does about the answers (`group_modern`).

A coordinator that cannot be reached, that has moved or is loading says nothing about the member, as in a classic group. It is then told
everything anew, since it may not have heard the last.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from busway.cluster.coordinator import PASSING
from busway.consumer.coordinator import LEAVE_S, Coordinator
from busway.consumer.heartbeat import CoordinatorContact, HeartbeatTimings, PollTracker, Tell, is_overdue
from busway.consumer.membership_modern import (
    DesiredSubscription,
    HeartbeatState,
    Identity,
    Share,
    TargetAssignment,
    farewell,
)
from busway.errors import BuswayError, NotRunning
from busway.net.clock import REAL_TIME
from busway_protocol.errors import ErrorCode

logger = logging.getLogger("busway.consumer")

_UNRELEASED_S: Final = 1.0
"""A static member that was killed is expected back under its old id; a new one is let in when that one's session has ended."""
_LEAST_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Refused:
    """The coordinator's word that ends a session."""

    code: ErrorCode
    text: str


class HeartbeatSession:
    """A dialogue in the thread of the hearts, with what wakes it; other threads reach it by `HeartbeatThread.call`."""

    def __init__(self, dialogue: HeartbeatState, number: int) -> None:
        self.dialogue = dialogue
        self.number = number
        self._woken = asyncio.Event()

    def wants(self, wish: DesiredSubscription) -> None:
        """As the dialogue's; the coordinator hears it at once."""
        self.dialogue.wants(wish)
        self._woken.set()

    def has(self, share: Share, done: bool) -> None:
        """As the dialogue's; the coordinator hears it at once when the member is done."""
        self.dialogue.has(share, done=done)
        if done:
            self._woken.set()

    async def wait(self, seconds: float) -> None:
        """Until the next beat is due, or there is something to say."""
        self._woken.clear()
        if self.dialogue.has_news:
            return
        try:
            async with REAL_TIME.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return


async def leave(coordinator: Coordinator, identity: Identity) -> None:
    """Leave the group, so that the others need not wait for the session to end; a static member's partitions wait for it."""
    try:
        async with REAL_TIME.timeout(LEAVE_S):
            await coordinator.ask(farewell(identity))
    except (BuswayError, TimeoutError) as problem:
        logger.warning(
            "group %s was not left, its session has to end: %s", identity.group, str(problem) or "no answer in time"
        )


async def converse(
    coordinator: Coordinator, voice: HeartbeatSession, reader: PollTracker, pace: HeartbeatTimings, tell: Tell
) -> None:
    """Keep a session up until the coordinator ends it, or the reader is away for too long; what it gives is told with the session's number."""
    dialogue, hearing = voice.dialogue, CoordinatorContact(coordinator)
    identity = dialogue.identity
    last: TargetAssignment | None = None
    unreleased = False
    while True:
        if is_overdue(identity.group, reader, pace):
            await leave(coordinator, identity)
            tell(voice.number, None)
            return
        try:
            code, answer, text = await hearing.ask(dialogue.request(), pace.answer_s)
        except NotRunning:
            return
        if code is ErrorCode.NONE:
            hearing.heard()
            given = dialogue.answered(answer)
            if given != last:
                last = given
                tell(voice.number, given)
            left_s = pace.reader_s - reader.away_s() + _LEAST_S
            await voice.wait(max(_LEAST_S, min(answer.heartbeat_interval_ms / 1000, left_s)))
            continue
        dialogue.unanswered()
        if code in PASSING or code.retriable:
            await REAL_TIME.sleep(hearing.unheard(text))
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
            tell(voice.number, Refused(code, getattr(answer, "error_message", None) or text))
            return
