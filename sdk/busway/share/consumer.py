"""The public share consumer.

Not here: fetching (`fetcher`), membership (`membership`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

from busway.cluster.client import ClusterClient, MetadataRecovery
from busway.errors import AcknowledgementFailed, NotRunning
from busway.net.clock import REAL_TIME
from busway.options import ShareConsumerOptions, options_from
from busway.security.choosing import taken
from busway.share.acquired import ACCEPT, REJECT, RELEASE, RENEW
from busway.share.fetcher import ShareFetcher
from busway.share.membership import ShareMember
from busway.types import Addresses, Record, TopicPartition

logger: logging.Logger = logging.getLogger("busway.share")

Acknowledge: TypeAlias = Literal["accept", "release", "reject", "renew"]
_KINDS: Final[dict[str, int]] = {"accept": ACCEPT, "release": RELEASE, "reject": REJECT, "renew": RENEW}
_REFUSED_MAX: Final = 20
_CLOSE_S: Final = 5.0
"""Timeout of the last acknowledgements, seconds. Lost ones are delivered again."""


class ShareConsumer:
    """Member of a share group; each record goes to one member, which acknowledges it.

    What is not acknowledged within the broker's lock time (30 s by default), or is released, goes to another member,
    until it was delivered as often as the broker allows (5 times by default). Records have no order.

    Args:
        bootstrap_servers: `host:port`, several with commas or as a list.
        options: the fields of `ShareConsumerOptions` and of `SecurityOptions`, or `security`, such an object.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: Addresses = "localhost:9092",
        group_id: str,
        client_id: str = "busway",
        **options: Any,
    ) -> None:
        if not topics:
            raise ValueError("a share consumer takes the records of at least one topic: name it")
        security, options = taken(options)
        self.options: ShareConsumerOptions = options_from(ShareConsumerOptions, {"group_id": group_id, **options})
        self._wanted = frozenset(topics)
        self._cluster = ClusterClient(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_s=self.options.request_timeout_ms / 1000,
            security=security,
            recovery=MetadataRecovery.of(self.options),
        )
        self._member = ShareMember(
            self._cluster,
            group_id,
            self._wanted,
            rack=self.options.client_rack,
            reader_s=self.options.max_poll_interval_ms / 1000,
            changed=self._changed,
        )
        self._fetcher = ShareFetcher(self._cluster, self.options, self._member)
        self._tasks: list[asyncio.Task[None]] = []
        self._unconfirmed: set[asyncio.Future[None]] = set()
        self._refused: deque[str] = deque(maxlen=_REFUSED_MAX)

    def _changed(self) -> None:
        self._fetcher.wake()

    # Lifecycle

    async def start(self) -> None:
        """Connect and join the group.

        Raises:
            ConnectionFailed: no broker is reachable.
            AuthenticationFailed: the brokers refuse this client, or their certificates are refused.
            BrokerError: a topic is not available.
            NotRunning: it is already running.
        """
        if self._tasks:
            raise NotRunning("the share consumer is running already")
        await self._cluster.start()
        try:
            await self._cluster.ensure_topics(self._wanted)
        except BaseException:
            await self._cluster.close()
            raise
        self._member.reader.polled()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._fetcher.run(), name="busway-share-fetcher"),
            loop.create_task(self._member.run(), name="busway-share-member"),
        ]

    async def stop(self) -> None:
        """Send acknowledgements, release held records, leave the group, disconnect."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            await self._cluster.close()
            return
        try:
            async with REAL_TIME.timeout(_CLOSE_S):
                await self._fetcher.close()
        except TimeoutError:
            logger.warning(
                "share group %s: not all acknowledgements were sent in time; their records are delivered again",
                self._member.group,
            )
        finally:
            await _end(tasks)
        try:
            await self._member.leave()
        finally:
            await self._cluster.close()

    def cut(self) -> None:
        """Drop the connections permanently, as if the process were killed; `abort` also ends the tasks."""
        self._cluster.abort()

    async def abort(self) -> None:
        """Stop as if the process were killed: no acknowledgements, the group is not left."""
        tasks, self._tasks = self._tasks, []
        self.cut()
        await _end(tasks)

    async def __aenter__(self) -> "ShareConsumer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # State

    def member_id(self) -> str:
        """Return the member id."""
        return self._member.member_id

    @property
    def has_joined(self) -> bool:
        """Whether this member is in the group and has an assignment, even an empty one."""
        return self._member.joined and self._member.epoch > 0

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """Lock time of a record, ms; None before a leader's first response."""
        return round(self._fetcher.lock_s * 1000) or None

    # Reading

    async def getmany(
        self, *, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Return up to `max_records` records by partition (default max_poll_records).

        Waits up to `timeout_ms` for the first. Implicit acknowledgement accepts what the last call handed out.

        Raises:
            DamagedData: records are unreadable; they were rejected, or released if their offsets are unknown.
            BrokerError, UnsupportedByBroker: the group or a partition is refused.
            NotRunning: the consumer was not started.
            ValueError: `max_records` is below 1.
        """
        self._check()
        if self.options.acknowledgement_mode == "implicit":
            self._fetcher.acknowledge_all(ACCEPT)
            self._confirm(self._fetcher.unreported())
        limit = self.options.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records: {limit} is below 1")
        deadline = REAL_TIME.now_s() + timeout_ms / 1000
        while True:
            self._check()
            if records := self._fetcher.ready(limit):
                return records
            left = deadline - REAL_TIME.now_s()
            if left <= 0:
                return {}
            await self._fetcher.arrival(left, limit)

    async def getone(self) -> Record:
        """Wait for the next record. Errors as in `getmany`."""
        while True:
            polled = await self.getmany(timeout_ms=60_000, max_records=1)
            for records in polled.values():
                return records[0]

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            yield await self.getone()

    def _check(self) -> None:
        if not self._tasks:
            raise NotRunning("the share consumer is not running; use `async with ShareConsumer(...)` or await start()")
        self._member.reader.polled()
        if self._member.problem is not None:
            raise self._member.problem.with_traceback(None)  # the traceback grows with every raise

    # Acknowledgements

    def acknowledge(self, record: Record, kind: Acknowledge = "accept") -> "asyncio.Future[None]":
        """Acknowledge a record with the next request to its leader.

        accept: it is done. release: deliver it again. reject: never deliver it again. renew: extend its lock.

        Returns:
            A future: None when the leader has taken it; `AcknowledgementFailed` if not: the record is delivered again.

        Raises:
            AcknowledgementFailed: the record is not held any more.
            ValueError: the kind is unknown, or acknowledgement is implicit.
        """
        if kind not in _KINDS:
            raise ValueError(f"acknowledge takes {', '.join(_KINDS)}, not {kind!r}")
        if self.options.acknowledgement_mode == "implicit":
            raise ValueError("acknowledgement is implicit: the next getmany, or commit, accepts what was handed out")
        result = self._fetcher.acknowledge(TopicPartition(record.topic, record.partition), record.offset, _KINDS[kind])
        self._confirm([result])
        return _seen(asyncio.shield(result))

    def _confirm(self, futures: "Iterable[asyncio.Future[None]]") -> None:
        for future in futures:
            if future not in self._unconfirmed:
                self._unconfirmed.add(future)
                future.add_done_callback(self._confirmed)

    def _confirmed(self, future: "asyncio.Future[None]") -> None:
        self._unconfirmed.discard(future)
        if future.cancelled() or (problem := future.exception()) is None:
            return
        if (reason := str(problem)) not in self._refused:
            self._refused.append(reason)

    async def commit(self) -> None:
        """Wait until the leaders have all acknowledgements; implicit ones accept what was handed out.

        Raises:
            AcknowledgementFailed: some failed since the last call; those records are delivered again.
        """
        self._check()
        if self.options.acknowledgement_mode == "implicit":
            self._fetcher.acknowledge_all(ACCEPT)
        self._confirm(self._fetcher.unreported())
        if waiting := set(self._unconfirmed):
            await asyncio.wait(waiting)
            await asyncio.sleep(0)  # run the callbacks of the futures that are done
        refused = list(self._refused)
        self._refused.clear()
        if refused:
            raise AcknowledgementFailed("; ".join(refused))


def _seen(future: "asyncio.Future[None]") -> "asyncio.Future[None]":
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


async def _end(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
