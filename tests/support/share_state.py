"""Where share partitions are kept while there is no share coordinator: in memory, as slow and as faulty as a test wants.

Here: a `SharePersister`.
Not here: what a share coordinator does with requests that are wrong.
"""

import asyncio
from dataclasses import replace

from busway_bus.kernel.share_state import SharePartitionKey, ShareState, StateBatch
from busway_protocol.errors import KafkaError


class MemoryPersister:
    """Keeps what it is given.

    Attributes:
        problems: what the next calls fail on, one each; None for none.
        pace: writes wait for it.
        asked: set when a write has come.
        writes: what was written.
    """

    def __init__(self) -> None:
        self.kept: dict[SharePartitionKey, ShareState] = {}
        self.problems: list[KafkaError | None] = []
        self.pace = asyncio.Event()
        self.pace.set()
        self.asked = asyncio.Event()
        self.writes: list[ShareState] = []

    def _fail(self) -> None:
        problem = self.problems.pop(0) if self.problems else None
        if problem is not None:
            raise problem

    async def initialize(self, key: SharePartitionKey, *, state_epoch: int, start_offset: int) -> None:
        """Begin again."""
        self.kept[key] = ShareState(state_epoch=state_epoch, start_offset=start_offset)

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> ShareState:
        """What is kept; a partition that was never begun is undecided."""
        await asyncio.sleep(0)
        self._fail()
        return self.kept.setdefault(key, ShareState(state_epoch=1, start_offset=-1))

    async def write(self, key: SharePartitionKey, change: ShareState) -> None:
        """Merge."""
        self.asked.set()
        await self.pace.wait()
        self._fail()
        self.writes.append(change)
        before = self.kept[key]
        start = max(before.start_offset, change.start_offset)
        records: dict[int, tuple[int, int]] = {}
        for batch in (*before.batches, *change.batches):
            for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
                records[offset] = (batch.delivery_state, batch.delivery_count)
        batches: list[StateBatch] = []
        for offset, (state, count) in sorted(records.items()):
            last = batches[-1] if batches else None
            if last is not None and (last.last_offset + 1, last.delivery_state, last.delivery_count) == (
                offset,
                state,
                count,
            ):
                batches[-1] = last._replace(last_offset=offset)
            else:
                batches.append(
                    StateBatch(first_offset=offset, last_offset=offset, delivery_state=state, delivery_count=count)
                )
        self.kept[key] = replace(before, start_offset=start, batches=tuple(batches))

    async def summary(self, key: SharePartitionKey) -> ShareState:
        """What is kept, without batches."""
        return replace(self.kept[key], batches=())

    async def delete(self, key: SharePartitionKey) -> None:
        """Forget it."""
        self.kept.pop(key, None)
