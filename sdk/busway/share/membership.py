"""Member of a share group.

Not here: fetching (`leader`).

A coordinator that is unreachable, moved or loading is asked again in the same epoch.
"""

import base64
import logging
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from busway.cluster.client import ClusterClient, CoordinatorKind
from busway.cluster.coordinator import PASSING, CoordinatorLink
from busway.consumer.heartbeat import PollTracker
from busway.errors import BrokerError, BuswayError, ConnectionFailed, NotRunning, RequestTimedOut, UnsupportedByBroker
from busway.net.clock import REAL_TIME
from busway.net.machine import current_machine
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

logger: logging.Logger = logging.getLogger("busway.share")

_JOIN: Final = 0
_LEAVE: Final = -1
_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_LEAVE_S: Final = 3.0
"""Timeout of leaving, seconds. Leaving only saves the group the session timeout."""
_READER_LOOK_S: Final = 0.1
NEEDED: Final = (
    "share groups need brokers that serve them and a cluster with share.version=1: Busway, with a data directory of this version, or "
    "Apache Kafka from 4.2 on, where `kafka-features.sh upgrade --feature share.version=1` turns them on"
)
AssignedIds = frozenset[tuple[UUID, int]]


def new_member_id() -> str:
    while True:
        text = base64.urlsafe_b64encode(current_machine().uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


class ShareMember:
    """Member of a share group.

    `reader_s` is the maximum time between polls; the member then leaves until the next poll. `changed` is called when
    the assignment or `problem` has changed.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        group: str,
        topics: Iterable[str],
        *,
        rack: str | None,
        reader_s: float,
        changed: Callable[[], None],
    ) -> None:
        self.group = group
        self.member_id: str = new_member_id()
        self.epoch: int = _JOIN
        self.assigned: AssignedIds = frozenset()
        self.joined: bool = False
        """Whether the group has ever sent an assignment, even an empty one."""
        self.problem: BuswayError | None = None
        self.reader: PollTracker = PollTracker()
        self._topics = sorted(topics)
        self._unconfirmed = True
        """The last response may be lost: the next heartbeat repeats the full state, as Java's does."""
        self._rack = rack
        self._reader_s = reader_s
        self._changed = changed
        self._link = CoordinatorLink(cluster, group, CoordinatorKind.GROUP, logger)

    async def run(self) -> None:
        """Join and stay until cancelled or permanently refused, which sets `problem`."""
        backoff = self._link.backoff()
        while True:
            if self.reader.since_poll_s() > self._reader_s:
                await self._wait_for_reader()
            try:
                wait_s = await self._beat()
                backoff.reset()
            except NotRunning:
                return None
            except (ConnectionFailed, RequestTimedOut) as passing:
                logger.warning("share group %s: heartbeats fail, and are retried: %s", self.group, passing)
                self._link.forget()
                wait_s = backoff.next()
            except BrokerError as refused:
                if not refused.retriable and refused.code not in PASSING:
                    return self._fail(refused)
                self._link.forget()
                wait_s = backoff.next()
            except UnsupportedByBroker as old:
                return self._fail(UnsupportedByBroker(f"{old}; {NEEDED}"))
            except BuswayError as failed:
                return self._fail(failed)
            await REAL_TIME.sleep(wait_s)

    def _fail(self, problem: BuswayError) -> None:
        self.problem = problem
        self._changed()

    async def _beat(self) -> float:
        joining = self.epoch == _JOIN
        whole, self._unconfirmed = joining or self._unconfirmed, True
        asked = self.epoch
        answer: ShareGroupHeartbeatResponse = await self._link.ask(
            ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=asked,
                rack_id=self._rack if joining else None,
                subscribed_topic_names=list(self._topics) if whole else None,
            ),
            purpose="share group",
        )
        code = error_for(answer.error_code)
        if code in _FENCED and not joining:
            logger.warning(
                "share group %s does not know this member any more; joining again: %s", self.group, code.text
            )
            self._leave_behind()
            return 0.0
        if code is ErrorCode.UNSUPPORTED_VERSION:
            raise UnsupportedByBroker(f"share group {self.group} is refused: {answer.error_message or NEEDED}")
        if code is not ErrorCode.NONE:
            raise BrokerError(code, f"share group {self.group}", answer.error_message)
        self.epoch, self._unconfirmed = answer.member_epoch, False
        if answer.assignment is not None:
            self.joined = True
            self.assigned = frozenset(
                (topic.topic_id, partition_index)
                for topic in answer.assignment.topic_partitions
                for partition_index in topic.partitions
            )
            logger.info("share group %s, epoch %d: %d partitions", self.group, self.epoch, len(self.assigned))
            self._changed()
        return max(answer.heartbeat_interval_ms, 1) / 1000

    def _leave_behind(self) -> None:
        self.epoch = _JOIN
        self.assigned = frozenset()
        self._changed()

    async def _wait_for_reader(self) -> None:
        logger.warning(
            "share group %s: no records were requested for %.1f s, more than max_poll_interval_ms=%d allows; leaving the group "
            "until the next request",
            self.group,
            self.reader.since_poll_s(),
            self._reader_s * 1000,
        )
        await self.leave()
        while self.reader.since_poll_s() > self._reader_s:
            await REAL_TIME.sleep(_READER_LOOK_S)

    async def leave(self) -> None:
        if self.epoch == _JOIN:
            return
        request = ShareGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=_LEAVE)
        self._leave_behind()
        try:
            async with REAL_TIME.timeout(_LEAVE_S):
                await self._link.ask(request, purpose="share group")
        except (BuswayError, TimeoutError) as problem:
            logger.warning("share group %s was not left: %s", self.group, problem or "no answer in time")
