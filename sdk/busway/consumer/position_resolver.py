"""Initial positions of partitions: from committed offsets, then from the reset policy.

Not here: retries (`fetcher`).
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from busway.consumer.offset_lookup import EARLIEST, LATEST, OffsetLookup
from busway.consumer.subscription import FetchPosition
from busway.errors import BrokerError, BuswayError, OffsetReset
from busway.options import ConsumerOptions
from busway.types import TopicPartition
from busway_protocol.errors import ErrorCode

logger: logging.Logger = logging.getLogger("busway.consumer")

RESETS: Final = {"earliest": EARLIEST, "latest": LATEST}


class PositionResolver:
    def __init__(
        self,
        look_ups: OffsetLookup,
        options: ConsumerOptions,
        committed: Callable[[Iterable[TopicPartition]], Awaitable[dict[TopicPartition, int]]],
    ) -> None:
        self._look_ups = look_ups
        self._options = options
        self._committed = committed

    async def by_commits(self, chosen: Sequence[FetchPosition]) -> dict[FetchPosition, BuswayError]:
        """Set committed positions, or the policy for `by_policy`; return errors by partition."""
        generations = {assigned: assigned.number for assigned in chosen}
        offsets = await self._committed([assigned.partition for assigned in chosen])
        problems: dict[FetchPosition, BuswayError] = {}
        for assigned, generation in generations.items():
            offset = offsets.get(assigned.partition)
            if assigned.number != generation:
                continue  # outdated after a seek
            if offset is not None and offset >= 0:
                assigned.seek(offset)
            elif self._options.auto_offset_reset == "none":
                problems[assigned] = OffsetReset(
                    f"{assigned.name} has no committed offset and auto_offset_reset is none; seek, or choose one"
                )
            else:
                assigned.reset = self._options.auto_offset_reset
        return problems

    async def by_policy(self, leader: int, chosen: Sequence[FetchPosition]) -> dict[FetchPosition, BuswayError]:
        """Set positions at an end of the logs of one leader; return errors by partition."""
        generations = {assigned: assigned.number for assigned in chosen}
        wanted = {assigned.partition: RESETS[assigned.reset] for assigned in chosen}
        answers, refused = await self._look_ups.on(leader, wanted)
        others = {
            assigned.partition: LATEST if wanted[assigned.partition] == EARLIEST else EARLIEST
            for assigned in chosen
            if assigned.gone is not None
        }
        other_ends = (await self._look_ups.on(leader, others))[0] if others else {}
        problems: dict[FetchPosition, BuswayError] = {}
        for assigned, generation in generations.items():
            answer = answers.get(assigned.partition)
            if answer is None:
                problems[assigned] = refused.get(assigned.partition) or BrokerError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"where {assigned.name} begins or ends"
                )
            if assigned.number != generation or answer is None:
                continue
            other = other_ends.get(assigned.partition)
            self._log_reset(assigned, answer.offset, None if other is None else other.offset)
            assigned.reset_to(answer.offset)
        return problems

    def _log_reset(self, assigned: FetchPosition, offset: int, other: int | None) -> None:
        if assigned.gone is None:
            if self._options.group_id is not None:
                logger.info("%s has no committed offset and is begun at %d (%s)", assigned.name, offset, assigned.reset)
            return
        begin, end = (min(offset, other), max(offset, other)) if other is not None else (offset, offset)
        skipped = max(0, offset - max(assigned.gone, begin))
        logger.warning(
            "offset %d of %s is not in its log, which has %d to %d: retention deleted it, or the log is another one; going on at %d "
            "(auto_offset_reset=%s)%s",
            assigned.gone,
            assigned.name,
            begin,
            end,
            offset,
            assigned.reset,
            f", {skipped} records are skipped" if skipped else "",
        )
