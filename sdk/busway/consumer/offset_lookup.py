"""Offsets by timestamp, and of both ends of a log.

Not here: what the offsets are for (`fetcher`).
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final

from busway.cluster.client import ClusterClient
from busway.errors import BrokerError, BuswayError
from busway.net.retry import RetryTimer
from busway.options import ConsumerOptions
from busway.types import OffsetAndTimestamp, TopicPartition
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST: Final = -2
LATEST: Final = -1

Found = dict[TopicPartition, OffsetAndTimestamp | None]


class OffsetLookup:
    def __init__(self, cluster: ClusterClient, options: ConsumerOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._committed = options.isolation_level == "read_committed"

    async def until_answered(self, wanted: Mapping[TopicPartition, int], *, open_too: bool = False) -> Found:
        """Return offsets by timestamp (-1 end, -2 beginning), None without one.

        Retries until the request timeout, for instance while a leader is elected; then raises the last error. With
        `open_too`, the end is behind open transactions, also at read_committed.
        """
        timer = RetryTimer(self._cluster.backoff(), self._options.request_timeout_ms / 1000)
        while True:
            try:
                return await self._once(wanted, self._committed and not open_too)
            except BuswayError as problem:
                if isinstance(problem, BrokerError) and not problem.retriable:
                    raise
                await timer.sleep_or_raise(problem)
            with contextlib.suppress(BuswayError):
                await self._cluster.refresh()

    async def ends(
        self, partitions: Iterable[TopicPartition], which: int, *, open_too: bool = False
    ) -> dict[TopicPartition, int]:
        offsets = await self.until_answered(dict.fromkeys(partitions, which), open_too=open_too)
        return {partition: answer.offset for partition, answer in offsets.items() if answer is not None}

    async def _once(self, wanted: Mapping[TopicPartition, int], committed: bool) -> Found:
        await self._cluster.ensure_topics({partition.topic for partition in wanted})
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in wanted.items():
            leader = self._cluster.metadata.leader(*partition)
            if leader is None:
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition.topic}-{partition.partition}")
            by_leader.setdefault(leader, {})[partition] = timestamp
        result: Found = {}
        for leader, chosen in by_leader.items():
            offsets, problems = await self.on(leader, chosen, committed=committed)
            for problem in problems.values():
                raise problem
            result.update(offsets)
        return result

    async def on(
        self, leader: int, wanted: Mapping[TopicPartition, int], *, committed: bool | None = None
    ) -> tuple[Found, dict[TopicPartition, BrokerError]]:
        topics: dict[str, ListOffsetsTopic] = {}
        for partition, timestamp in wanted.items():
            topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
            topic.partitions.append(ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp))
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self._committed if committed is None else committed),
            topics=list(topics.values()),
        )
        answer: ListOffsetsResponse = await self._cluster.ask_node(leader, request)
        result: Found = {}
        problems: dict[TopicPartition, BrokerError] = {}
        for topic_answer in answer.topics:
            for response in topic_answer.partitions:
                partition = TopicPartition(topic_answer.name, response.partition_index)
                code = error_for(response.error_code)
                if code is not ErrorCode.NONE:
                    problems[partition] = BrokerError(code, f"{partition.topic}-{partition.partition}")
                else:
                    result[partition] = (
                        OffsetAndTimestamp(response.offset, response.timestamp) if response.offset >= 0 else None
                    )
        return result, problems
