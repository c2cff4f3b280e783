"""Writing the dead letters of one share partition, with retries (KIP-1191).

Here: the backoff.
Not here: writing (`dead_letters`), record states (`state`). Other records are not held up.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from busway_bus.kernel.share_state import SharePartitionKey
from busway_bus.replication.partition import Partition
from busway_bus.share.in_flight import Letter
from busway_protocol.errors import KafkaError

logger = logging.getLogger("busway.share")

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""Bounds of the backoff, which doubles: Kafka's."""


class LetterWriter(Protocol):
    async def write(self, key: SharePartitionKey, source: Partition, letters: Sequence[Letter]) -> list[Letter]:
        """Write the first letters; return those on disk. KafkaError: none is."""
        ...

    def failed(self, group_id: str, problem: KafkaError) -> None:
        """Report why a group's letters are not written."""

    def worked(self, group_id: str) -> None:
        """Report that a group's letters are written again."""


class PartitionDeadLetters:
    """The writer task of one share partition.

    Args:
        buried: called with letters that are on disk.

    Attributes:
        task: None while nothing is due.
        resting: it waits for the next attempt.
    """

    def __init__(
        self,
        writer: LetterWriter,
        key: SharePartitionKey,
        source: Partition,
        *,
        due: Callable[[], list[Letter]],
        buried: Callable[[list[Letter]], None],
        over: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._key = key
        self._source = source
        self._due = due
        self._buried = buried
        self._over = over
        self._stopped = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.resting = False

    def begin(self) -> None:
        if self.task is None and not self._stopped.is_set() and self._due():
            self.task = asyncio.ensure_future(self._work())

    def stop(self) -> None:
        """Start no more writes.

        A running one completes; the next leader repeats its letters.
        """
        self._stopped.set()

    async def _work(self) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            while not self._stopped.is_set() and (letters := self._due()):
                try:
                    written = await self._writer.write(self._key, self._source, letters)
                except Exception as problem:  # noqa: BLE001 - reported and retried
                    self._tell(problem)
                    await self._rest(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                    continue
                pause_s = FIRST_PAUSE_S
                self._writer.worked(self._key.group_id)
                if not self._stopped.is_set():
                    self._buried(written)
                await asyncio.sleep(0)
        finally:
            self.task = None
            self._over()

    def _tell(self, problem: Exception) -> None:
        if isinstance(problem, KafkaError):
            self._writer.failed(self._key.group_id, problem)
            return
        text = "dead letters of share group %s for %s-%d cannot be written, and are tried again: this is a bug"
        logger.exception(text, self._key.group_id, self._source.topic, self._source.index, exc_info=problem)

    async def _rest(self, pause_s: float) -> None:
        self.resting = True
        try:
            async with asyncio.timeout(pause_s):
                await self._stopped.wait()
        except TimeoutError:
            pass
        finally:
            self.resting = False
