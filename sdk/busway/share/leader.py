"""One leader's records and the one request in flight to it.

Not here: when to send (`fetcher`), the layout of requests (`session`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.errors import AcknowledgementFailed, BrokerError, BuswayError, NotRunning, UnsupportedByBroker
from busway.net.clock import REAL_TIME
from busway.options import ShareConsumerOptions
from busway.share.acquired import Acquired, Taken
from busway.share.held import AcknowledgementSet, HeldPartition
from busway.share.membership import NEEDED
from busway.share.session import Id, ShareSession
from busway.types import TopicPartition
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.share_groups import FetchedPartition, ShareAcknowledgeResponse, ShareFetchResponse

logger: logging.Logger = logging.getLogger("busway.share")

_PURPOSE: Final = "share"
_RENEWS: Final = 2
"""First ShareAcknowledge version with lock renewal (KIP-1222)."""
SESSION_OVER: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors that newer metadata may resolve, although not all are retriable."""
_REFUSES_ONE: Final = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
"""One acknowledgement is wrong; all of its partition are refused."""


class Leader:
    """One leader of this member's partitions. `name_of` returns None if the topic's id is unknown."""

    def __init__(
        self,
        node: int,
        cluster: ClusterClient,
        options: ShareConsumerOptions,
        member_id: str,
        name_of: Callable[[Id], TopicPartition | None],
    ) -> None:
        self.node = node
        self.session: ShareSession = ShareSession(options, member_id)
        self.task: asyncio.Task[None] | None = None
        self.is_fetching: bool = False
        self.retry_at: float = 0.0
        self.lock_s: float = 0.0
        self.acquired: deque[tuple[HeldPartition, Acquired]] = deque()
        self._has_renewed = False
        self._ids: dict[TopicPartition, Id] = {}
        self._held: dict[Id, HeldPartition] = {}
        self._cluster = cluster
        self._options = options
        self._name_of = name_of

    @property
    def is_idle(self) -> bool:
        return self.task is None or self.task.done()

    @property
    def waiting(self) -> bool:
        return any(held.final or held.renewals for held in self._held.values())

    @property
    def _renewing(self) -> bool:
        return any(held.renewals for held in self._held.values())

    def is_urgent(self, wanted: Container[Id]) -> bool:
        """Report whether a fetch of these partitions cannot carry all pending acknowledgements.

        Such are renewals, parts of refused requests, and those of other partitions.
        """
        return any(
            held.renewals or held.final.is_torn or (held.final and key not in wanted)
            for key, held in self._held.items()
        )

    def _take_waiting(
        self, only: Container[Id] | None = None, *, renewals: bool = False
    ) -> dict[Id, AcknowledgementSet]:
        now_s = REAL_TIME.now_s()
        return {
            key: pending
            for key, held in self._held.items()
            if (only is None or key in only) and (pending := held.take(now_s, renewals=renewals)) is not None
        }

    # Handing out

    def held(self, partition: TopicPartition, offset: int) -> HeldPartition | None:
        holder = self._held.get(self._ids[partition]) if partition in self._ids else None
        return holder if holder is not None and offset in holder.until_s else None

    def everything_held(self) -> list[tuple[HeldPartition, list[int]]]:
        return [(held, list(held.until_s)) for held in self._held.values() if held.until_s]

    def futures(self) -> "list[asyncio.Future[None]]":
        return [
            word.result for held in self._held.values() for lane in (held.renewals, held.final) for word in lane.words()
        ]

    def take(self, limit: int, now_s: float) -> tuple[TopicPartition, Taken] | None:
        while self.acquired:
            held, acquired = self.acquired[0]
            if acquired.until_s <= now_s:
                self.acquired.popleft()
                logger.warning(
                    "%s-%d: records were not asked for before their lock ended; others get them", *acquired.partition
                )
                continue
            taken = acquired.take(limit, check_crcs=self._options.check_crcs)
            if acquired.is_empty:
                self.acquired.popleft()
            held.settle(taken.settled, acquired.until_s)
            held.hand_out([record.offset for record in taken.records], acquired.until_s)
            if taken.records or taken.problem is not None:
                return acquired.partition, taken
        return None

    # Requests

    async def fetch(self, wanted: Mapping[Id, TopicPartition], limit: int) -> None:
        """Send one ShareFetch, with the pending acknowledgements of its partitions.

        Raise a `BuswayError` if it failed; the session may have ended.
        """
        sent = self._take_waiting(wanted) if self.session.is_open else {}
        request = self.session.fetch(wanted, sent, limit)
        try:
            answer: ShareFetchResponse = await self._send(request, sent)
        finally:
            self.is_fetching = False
        self._note_lock(answer.acquisition_lock_timeout_ms)
        until_s = REAL_TIME.now_s() + self.lock_s
        problem: BuswayError | None = None
        for topic in answer.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                if key in sent:
                    self._on_acknowledged(
                        key, sent.pop(key), data.acknowledge_error_code, data.acknowledge_error_message
                    )
                problem = self._take_in(key, wanted.get(key) or self._name_of(key), data, until_s) or problem
        self._unanswered(sent)
        if problem is not None:
            raise problem

    def _take_in(
        self, key: Id, partition: TopicPartition | None, data: FetchedPartition, until_s: float
    ) -> BuswayError | None:
        code = error_for(data.error_code)
        if code is not ErrorCode.NONE:
            return BrokerError(code, f"share-fetching {partition or key}", data.error_message)
        if partition is None or not data.acquired_records:
            return None
        held = self._held.setdefault(key, HeldPartition(partition))
        self._ids[partition] = key
        held.expire(REAL_TIME.now_s())
        records = memoryview(b"") if data.records is None else data.records
        assert isinstance(records, memoryview)
        acquired = Acquired(partition, records, data.acquired_records, until_s)
        held.delivered(acquired.ranges)
        self.acquired.append((held, acquired))
        return None

    async def acknowledge(self) -> None:
        """Send one ShareAcknowledge: renewals alone, in turns with the others."""
        renewals = self._renewing and not (self._has_renewed and any(held.final for held in self._held.values()))
        if renewals and not await self._can_renew():
            return
        self._has_renewed = renewals
        if pending := self._take_waiting(renewals=renewals):
            await self._send_acknowledgements(pending)

    async def close(self) -> None:
        self._drop_renewals(AcknowledgementFailed("the consumer ends, its records are released"))
        while pending := self._take_waiting():
            await self._send_acknowledgements(pending)
        await self._send_acknowledgements({}, final=True)
        self.end()

    def end(self) -> None:
        self._lose({}, NotRunning("the consumer has ended"))

    async def _send_acknowledgements(self, sent: dict[Id, AcknowledgementSet], *, final: bool = False) -> None:
        request = self.session.acknowledge(sent, final=final)
        answer: ShareAcknowledgeResponse = await self._send(request, sent)
        self._note_lock(answer.acquisition_lock_timeout_ms)
        for topic in answer.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                if key in sent:
                    self._on_acknowledged(key, sent.pop(key), data.error_code, data.error_message)
        self._unanswered(sent)

    async def _can_renew(self) -> bool:
        try:
            connection = await self._cluster.connection(self.node, _PURPOSE)
            if connection.version(ApiKey.SHARE_ACKNOWLEDGE) >= _RENEWS:
                return True
        except BuswayError as problem:
            self._lose({}, problem)
            raise
        self._drop_renewals(
            AcknowledgementFailed(f"broker {self.node} renews no locks; it takes Apache Kafka 4.2 or later")
        )
        return False

    def _drop_renewals(self, problem: AcknowledgementFailed) -> None:
        for held in self._held.values():
            while words := held.renewals.take().words:
                for word in words.values():
                    word.done(problem)

    async def _send(self, request: Any, sent: dict[Id, AcknowledgementSet]) -> Any:
        try:
            connection = await self._cluster.connection(self.node, _PURPOSE)
            answer = await connection.request(request)
        except UnsupportedByBroker as old:
            self._lose(sent, old)
            raise UnsupportedByBroker(f"{old}; {NEEDED}") from None
        except BuswayError as problem:
            self._lose(sent, problem)
            raise
        except BaseException:
            self._lose(sent, AcknowledgementFailed("the consumer was ended"))
            raise
        code = error_for(answer.error_code)
        if code is ErrorCode.NONE:
            self.session.advance_epoch()
            return answer
        refused = BrokerError(code, f"share session with broker {self.node}", answer.error_message)
        self._lose(sent, refused)
        raise refused

    def _note_lock(self, lock_ms: int) -> None:
        if lock_ms > 0:
            self.lock_s = lock_ms / 1000

    def _on_acknowledged(self, key: Id, about: AcknowledgementSet, error_code: int, text: str | None) -> None:
        code = error_for(error_code)
        if code is not ErrorCode.NONE:
            name = self._name_of(key) or key
            problem = AcknowledgementFailed(f"{name[0]}-{name[1]}: {text or code.text} ({code.name})")
            if code in _REFUSES_ONE and (held := self._held.get(key)) is not None:
                held.refused(about, problem)
            else:
                about.done(problem)
            return
        if about.renews and (held := self._held.get(key)) is not None:
            held.renewed(about, REAL_TIME.now_s() + self.lock_s)
        about.done(None)

    def _unanswered(self, sent: Mapping[Id, AcknowledgementSet]) -> None:
        for about in sent.values():
            about.done(AcknowledgementFailed(f"broker {self.node} did not respond to the acknowledgement"))

    def _lose(self, sent: Mapping[Id, AcknowledgementSet], problem: BuswayError) -> None:
        self.session.ended()
        failed = AcknowledgementFailed(f"the session with broker {self.node} is over: {problem}")
        failed.__cause__ = problem
        for about in sent.values():
            about.done(failed)
        for held in self._held.values():
            held.lose(failed)
        self._held.clear()
        self._ids.clear()
        self.acquired.clear()


def is_elsewhere(problem: BrokerError) -> bool:
    """Return whether the error may pass, perhaps after a metadata refresh."""
    return problem.retriable or problem.code in SESSION_OVER or problem.code in _ELSEWHERE
