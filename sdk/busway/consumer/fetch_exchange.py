"""Fetch requests to brokers, each in the broker's fetch session.

Here: request and response, closing the sessions.
Not here: what to fetch, and what becomes of the records (`fetcher`).
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from busway.cluster.client import ClusterClient
from busway.consumer.fetch_plan import fetch_request
from busway.consumer.fetch_session import FINAL_EPOCH, NO_SESSION, FetchSession, SessionRequest
from busway.consumer.subscription import FetchPosition
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.options import ConsumerOptions
from busway.types import TopicPartition
from busway_protocol.messages.fetch import FetchRequest, FetchResponse, NodeEndpoint, PartitionData

NAMES_UNTIL: Final = 12
"""Last Fetch version with topic names. Topic ids prevent reading a new topic of the same name."""
_HURRY_MS: Final = 25
"""Maximum wait of a fetch while another partition of its broker has a full buffer: that one's next fetch is soon
due.
"""
_CLOSE_S: Final = 0.5
"""For closing all sessions; brokers evict those that stay."""

Assigned = Callable[[TopicPartition], FetchPosition | None]


class FetchExchange:
    def __init__(self, cluster: ClusterClient, options: ConsumerOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._sessions: dict[int, FetchSession] = {}

    async def fetch(
        self, node: int, positions: Sequence[FetchPosition], current: Assigned, *, hurry: bool
    ) -> tuple[list[tuple[FetchPosition, PartitionData]], list[NodeEndpoint]]:
        """Fetch from a broker; one call at a time for each.

        Return what came for positions that `current` still has, and the addresses of new leaders.

        Raises:
            BrokerError: the request was refused.
            ConnectionFailed, RequestTimedOut, AuthenticationFailed: no response.
        """
        session = self._sessions.setdefault(node, FetchSession())
        opened = session.request(positions)
        options = self._options
        wait_ms = min(options.fetch_max_wait_ms, _HURRY_MS) if hurry else options.fetch_max_wait_ms
        rack = options.client_rack or ""
        if rack and max(position.leader_until for position in positions) > REAL_TIME.now_s():
            rack = ""  # without it the leader itself responds
        request = self._request(opened, wait_ms, rack)  # before any wait: a seek changes the positions
        try:
            connection = await self._cluster.connection(node, "fetch")
            answer: FetchResponse = await connection.request(request, at_most=None if opened.by_id else NAMES_UNTIL)
        except BaseException:  # also cancelled: the broker may have the request, so its session is not known any more
            session.failed()
            raise
        arrived = []
        for partition, data in session.pairs(answer):
            position = current(partition)
            if position is not None and session.is_current(position):
                arrived.append((position, data))
        return arrived, answer.node_endpoints

    def _request(self, opened: SessionRequest, max_wait_ms: int, rack: str) -> FetchRequest:
        options = self._options
        request = fetch_request(
            opened.positions,
            max_wait_ms=max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            partition_max_bytes=options.max_partition_fetch_bytes,
            read_committed=options.isolation_level == "read_committed",
        )
        request.session_id, request.session_epoch = opened.session_id, opened.epoch
        request.forgotten_topics_data = opened.forgotten
        request.rack_id = rack
        return request

    async def close(self) -> None:
        """Close the sessions at the brokers that respond soon."""
        open_sessions = {node: session.id for node, session in self._sessions.items() if session.id != NO_SESSION}
        self._sessions.clear()
        with contextlib.suppress(TimeoutError):
            async with REAL_TIME.timeout(_CLOSE_S):
                await asyncio.gather(*(self._close(node, session_id) for node, session_id in open_sessions.items()))

    async def _close(self, node: int, session_id: int) -> None:
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], session_id=session_id, session_epoch=FINAL_EPOCH)
        with contextlib.suppress(BuswayError):
            connection = await self._cluster.connection(node)  # not behind a long poll
            await connection.request(request)
