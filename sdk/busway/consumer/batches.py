"""Whole record batches of one partition, not decoded.

Here: fetching a range of offsets, checksums, the isolation level.
Not here: decoding records. The Spark source turns these batches into columns without an object per record.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from busway.cluster.client import ClusterClient
from busway.consumer.fetch_exchange import NAMES_UNTIL
from busway.consumer.fetch_plan import fetch_request
from busway.consumer.isolation import take_aborted, visible
from busway.consumer.subscription import FetchPosition
from busway.errors import BrokerError, BuswayError, ConnectionFailed, DamagedData, OffsetReset, RequestTimedOut
from busway.net.retry import RetryTimer
from busway.security.choosing import chosen
from busway.security.options import SecurityOptions
from busway.types import Addresses, TopicPartition
from busway_protocol.errors import ErrorCode, ProtocolError, error_for
from busway_protocol.messages.fetch import FetchResponse, PartitionData
from busway_protocol.records.batch import BatchHeader, iter_batches, verify_crc

FETCH_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of a response; about twice as much is held, since the next is fetched meanwhile."""
_WAIT_MS: Final = 500
Batch = tuple[BatchHeader, memoryview]


async def read_batches(
    bootstrap_servers: Addresses,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    read_committed: bool = True,
    fetch_bytes: int = FETCH_BYTES,
    timeout_s: float = 120.0,
    client_id: str = "busway-batches",
    security: SecurityOptions | None = None,
) -> AsyncGenerator[list[Batch], None]:
    """Yield the batches with records from `start` to `end` (exclusive).

    One list per response. The first and the last batch may hold records outside the range; control batches and, with
    `read_committed`, batches of aborted transactions are left out. Without `security`, the environment's applies.

    Raises:
        OffsetReset: the next offset is no longer in the log.
        DamagedData: a batch is damaged.
        RequestTimedOut: no batch for `timeout_s`: the log ends before `end`, or a transaction is open.
    """
    cluster = ClusterClient(bootstrap_servers, client_id=client_id, security=chosen(security))
    state = FetchPosition(partition, "none", position=start, fetch_position=start)
    reader = _Reader(cluster, state, read_committed=read_committed, fetch_bytes=fetch_bytes, timeout_s=timeout_s)
    try:
        await cluster.ensure_topics([partition.topic])
        if start >= end:
            return
        following = asyncio.ensure_future(reader.fetch())
        try:
            while True:
                data = await following
                batches = reader.cut(data)
                more = state.fetch_position < end
                if more:
                    following = asyncio.ensure_future(reader.fetch())
                    await asyncio.sleep(0)  # send the request before the caller processes this response
                yield [(header, batch) for header, batch in batches if header.base_offset < end]
                if not more:
                    return
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError, BuswayError):
                await following
    finally:
        await cluster.close()


class _Reader:
    def __init__(
        self, cluster: ClusterClient, state: FetchPosition, *, read_committed: bool, fetch_bytes: int, timeout_s: float
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._read_committed = read_committed
        self._fetch_bytes = fetch_bytes
        self._timeout_s = timeout_s
        self._name = f"{state.partition.topic}-{state.partition.partition}"

    async def fetch(self) -> PartitionData:
        timer = RetryTimer(self._cluster.backoff(), self._timeout_s)
        problem: BuswayError | None = None
        while not timer.is_expired:
            try:
                data = await self._ask()
                if data.records:
                    return data
                problem = None
            except (ConnectionFailed, RequestTimedOut, BrokerError) as failed:
                if isinstance(failed, BrokerError) and not failed.retriable:
                    raise
                problem = failed
                await timer.sleep()
                with contextlib.suppress(BuswayError):
                    await self._cluster.refresh()
        raise problem or RequestTimedOut(
            f"nothing came from {self._name} at offset {self._state.fetch_position} for {self._timeout_s:g} s; "
            "a transaction may be open there"
        )

    async def _ask(self) -> PartitionData:
        leader = self._cluster.metadata.leader(*self._state.partition)
        if leader is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, self._name)
        request = fetch_request(
            [self._state],
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            partition_max_bytes=self._fetch_bytes,
            read_committed=self._read_committed,
        )
        connection = await self._cluster.connection(leader)
        answer: FetchResponse = await connection.request(request, at_most=NAMES_UNTIL)
        if answer.error_code:
            raise BrokerError(error_for(answer.error_code), f"fetching {self._name}")
        data: PartitionData = answer.responses[0].partitions[0]
        code = error_for(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetReset(
                f"offset {self._state.fetch_position} of {self._name} is not in the log any more: retention deleted it, "
                "or the topic was recreated"
            )
        if code is not ErrorCode.NONE:
            raise BrokerError(code, f"fetching {self._name}")
        return data

    def cut(self, data: PartitionData) -> list[Batch]:
        state = self._state
        take_aborted(state, data.aborted_transactions or ())
        begin = state.fetch_position
        batches = []
        try:
            assert isinstance(data.records, memoryview)
            for header, batch in iter_batches(data.records):
                verify_crc(batch, header)
                if visible(state, header, batch, read_committed=self._read_committed):
                    batches.append((header, batch))
                state.fetch_position = header.next_offset
        except ProtocolError as problem:
            raise DamagedData(f"{self._name} at offset {state.fetch_position}: {problem}") from None
        if state.fetch_position == begin:
            raise DamagedData(f"{self._name} at offset {begin}: the broker sent no whole batch")
        return batches
