"""Topics of a subscription, including those created later.

Not here: assignment (`group`).
"""

import contextlib
import logging
import re
from collections.abc import Iterable
from typing import Final

from busway.cluster.client import ClusterClient
from busway.consumer.fetcher import Fetcher
from busway.consumer.group import GroupMember
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.types import TopicPartition

logger: logging.Logger = logging.getLogger("busway.consumer")

_MADE_WITHIN_S: Final = 0.3
"""Time for brokers to create a requested topic; a warning after it names the missing ones."""


class Topics:
    """A subscription, refreshed every `max_age_s`. Without a `group`, the fetcher reads all partitions."""

    def __init__(self, cluster: ClusterClient, fetcher: Fetcher, *, max_age_s: float) -> None:
        self._cluster = cluster
        self._fetcher = fetcher
        self.group: GroupMember | None = None
        self._max_age_s = max_age_s
        self._names: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._subscribed = False

    async def subscribe(
        self,
        names: Iterable[str] = (),
        pattern: re.Pattern[str] | None = None,
        server_pattern: str | None = None,
    ) -> None:
        """Subscribe to names, or to a pattern matched here or by the coordinator.

        Raise `BrokerError` if a topic is not available, `ValueError` if no group can match `server_pattern`.
        """
        if server_pattern is not None:
            if self.group is None:
                raise ValueError(
                    "server_pattern is matched by a group's coordinator, and this consumer has no group_id"
                )
            self.group.subscribe((), server_pattern)
        self._names, self._pattern = frozenset(names), pattern
        if server_pattern is not None:
            self._subscribed = True
            return
        if pattern is not None:
            await self._cluster.refresh(every_topic=True)
            self._names = self._matched(pattern)
        await self._ensure(self._names)
        if self.group is not None:
            self.group.subscribe(self._names)
        else:
            self._fetcher.assign(self._partitions())
        self._subscribed = True

    async def _ensure(self, names: frozenset[str]) -> None:
        with contextlib.suppress(BuswayError):
            await self._cluster.ensure_topics(names, timeout_s=_MADE_WITHIN_S)
            return
        missing = ", ".join(sorted(names - self._cluster.metadata.topics.keys()))
        logger.warning(
            "waiting for %s, which the brokers do not have, or cannot be asked for: create what is missing", missing
        )
        await self._cluster.ensure_topics(names)

    def forget(self) -> None:
        self._subscribed = False

    async def watch(self) -> None:
        while True:
            await REAL_TIME.sleep(self._max_age_s)
            if self._subscribed:
                with contextlib.suppress(BuswayError):  # tried again at the next refresh
                    await self._refresh()

    async def _refresh(self) -> None:
        await self._cluster.refresh(every_topic=self._pattern is not None)
        if self._pattern is not None and (matched := self._matched(self._pattern)) != self._names:
            logger.info("%s now matches %s", self._pattern.pattern, ", ".join(sorted(matched)) or "nothing")
            self._cluster.topics -= self._names - matched  # requested again, they would be auto-created
            self._names = matched
            await self._cluster.ensure_topics(matched)
            if self.group is not None:
                self.group.subscribe(matched)
        if self.group is not None:
            self.group.metadata_changed()
            return
        assigned = self._fetcher.assigned
        kept = [partition for partition in assigned if partition.topic in self._names]
        new = [partition for partition in self._partitions() if partition not in assigned]
        if new or len(kept) < len(assigned):
            logger.info(
                "found new partitions: %s",
                ", ".join(f"{topic}-{partition_index}" for topic, partition_index in new) or "none",
            )
            self._fetcher.assign([*kept, *new], reset="earliest")

    def _matched(self, pattern: re.Pattern[str]) -> frozenset[str]:
        topics = self._cluster.metadata.topics
        return frozenset(name for name, topic in topics.items() if not topic.internal and pattern.fullmatch(name))

    def _partitions(self) -> list[TopicPartition]:
        counts = self._cluster.metadata.counts()
        return [
            TopicPartition(topic, partition_index)
            for topic in sorted(self._names)
            for partition_index in range(counts.get(topic, 0))
        ]
