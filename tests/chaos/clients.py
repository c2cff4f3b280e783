"""All clients of a run together.

Here: topics, writers by name, starting and ending them.
Not here: what they do (`sdk_clients`, `librdkafka_clients`, `foreign_clients`).
"""

import asyncio
import random
import threading
from collections.abc import Awaitable, Sequence
from typing import Final

from tests.chaos import foreign_clients, librdkafka_clients, sdk_clients
from tests.chaos.ledger import Ledger

PARTITIONS: Final = 3
PLAIN: Final = "plain"
TRANSACTIONAL: Final = "transactions"
TOPICS: Final = {PLAIN: PARTITIONS, TRANSACTIONAL: PARTITIONS}
PYTHON_WRITERS: Final = ("sdk", "librdkafka", "sdk-transactions", "librdkafka-transactions")
"""The writers in this process; the others have a process each (`foreign_clients`)."""


def writers_with(foreign: Sequence[str]) -> tuple[str, ...]:
    """Return all writers of a run with these programs."""
    return (*PYTHON_WRITERS, *(writer for program in foreign for writer in foreign_clients.WRITERS[program]))


class Clients:
    """All clients of a run, from `start` to `stop`.

    Args:
        foreign: programs of `foreign_clients` besides the clients of this process.
    """

    def __init__(self, servers: str, ledger: Ledger, seed: int, foreign: Sequence[str]) -> None:
        self._servers, self._ledger, self._seed = servers, ledger, seed
        self._foreign = foreign
        self._drawn = [random.Random(f"{seed} {writer}") for writer in PYTHON_WRITERS]
        self._over, self._threads_over = asyncio.Event(), threading.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        servers, ledger, over, threads_over = self._servers, self._ledger, self._over, self._threads_over
        of_sdk: list[Awaitable[None]] = [
            sdk_clients.write(servers, PLAIN, PARTITIONS, PYTHON_WRITERS[0], ledger, over),
            sdk_clients.write_in_transactions(
                servers, TRANSACTIONAL, PARTITIONS, PYTHON_WRITERS[2], ledger, over, self._drawn[2]
            ),
            sdk_clients.read(servers, TOPICS, ledger, over),
        ]
        of_librdkafka: list[Awaitable[None]] = [
            asyncio.to_thread(
                librdkafka_clients.write, servers, PLAIN, PARTITIONS, PYTHON_WRITERS[1], ledger, threads_over
            ),
            asyncio.to_thread(
                librdkafka_clients.write_in_transactions,
                servers,
                TRANSACTIONAL,
                PARTITIONS,
                PYTHON_WRITERS[3],
                ledger,
                threads_over,
                self._drawn[3],
            ),
            asyncio.to_thread(librdkafka_clients.read, servers, TOPICS, ledger, threads_over),
        ]
        of_programs: list[Awaitable[None]] = [
            foreign_clients.write(program, servers, (PLAIN, TRANSACTIONAL), PARTITIONS, ledger, self._seed, over)
            for program in self._foreign
        ]
        self._tasks = [asyncio.ensure_future(client) for client in (*of_sdk, *of_librdkafka, *of_programs)]

    def check(self) -> None:
        """Raise what ended a client."""
        for task in self._tasks:
            if task.done():
                task.result()
                raise AssertionError(f"{task} ended before the run")

    async def stop(self) -> None:
        """End all clients once their last operations have an outcome."""
        self._over.set()
        self._threads_over.set()
        await asyncio.gather(*self._tasks)
