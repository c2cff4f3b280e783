"""The dead letters of one share partition, written one batch after the other, and tried again until they are (KIP-1191).

What lives here: when they are written, and the waits between attempts. What does not: writing them (`dead_letters`), the states of the
records (`state`). The partition's other records go on meanwhile.
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
"""Between attempts, each twice as long as the one before: Kafka's."""


class LetterWriter(Protocol):
    """Who writes dead letters."""

    async def write(self, key: SharePartitionKey, source: Partition, letters: Sequence[Letter]) -> list[Letter]:
        """Write the first ones of them; those that are on disk.

        Raises:
            KafkaError: none is.
        """
        ...

    def failed(self, group_id: str, problem: KafkaError) -> None:
        """Say why they are not written."""

    def worked(self, group_id: str) -> None:
        """They are."""


class Burying:
    """One share partition's.

    Args:
        due: the letters that are to be written.
        buried: these are on disk.
        over: nothing is to be done any more for now.

    Attributes:
        task: at work; None where nothing is due.
        resting: whether it waits for the next attempt.
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
        """Some may be due."""
        if self.task is None and not self._stopped.is_set() and self._due():
            self.task = asyncio.ensure_future(self._work())

    def stop(self) -> None:
        """Write none any more; what is being written is, and whoever leads the partition next writes it once more."""
        self._stopped.set()

    async def _work(self) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            while not self._stopped.is_set() and (letters := self._due()):
                try:
                    written = await self._writer.write(self._key, self._source, letters)
                except Exception as problem:  # noqa: BLE001 - it is told, and tried again
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
        """Say what went wrong: the next attempt comes in any case, and what is a bug here is told with where it is."""
        if isinstance(problem, KafkaError):
            self._writer.failed(self._key.group_id, problem)
            return
        text = "dead letters of share group %s for %s-%d cannot be written, and are tried again: this is a bug"
        logger.exception(text, self._key.group_id, self._source.topic, self._source.number, exc_info=problem)

    async def _rest(self, pause_s: float) -> None:
        self.resting = True
        try:
            async with asyncio.timeout(pause_s):
                await self._stopped.wait()
        except TimeoutError:
            pass
        finally:
            self.resting = False
