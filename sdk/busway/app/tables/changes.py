"""What is changed in a table whose handlers are exactly_once.

What lives here: `Change`, which puts the rows among all that a call leaves behind, or takes them back; rows that are put outside of
handlers. What does not: rows (`rows`), when
that happens (`busway.app.handling.work`).
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from busway.app.handling.work import Outgoing, Work
from busway.app.tables.copies import Copy
from busway.app.tables.rows import Attempt, Home, NotHere

if TYPE_CHECKING:
    from busway.app.tables.table import Table


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What one call of a handler that is exactly_once has changed in a table.

    Attributes:
        copy: how far the rows are what the topic says.
    """

    table: "Table[Any, Any]"
    attempt: Attempt[Any, Any]
    copy: Copy

    def finish(self, work: Work) -> None:
        """The call has returned."""
        self._end()
        if self.attempt.put:
            for row in self.table._rows_of(self.attempt):
                work.keep(row)
            work.tell(self.copy.left())

    def undo(self) -> None:
        """The call has failed, or what it leaves behind cannot be sent."""
        self._end()
        self.table._undo(self.attempt)

    def _end(self) -> None:
        if not self.attempt.ended:
            self.attempt.ended = True
            self.copy.open -= 1


async def change_outside(
    table: "Table[Any, Any]", sources: Collection[str], key: Any, value: Any, *, home: Home, copy: Copy
) -> None:
    """Set a row outside of handlers where these change it in transactions: in one of those, so that its order is that of memory.

    Raises:
        NotHere: the row's partition has gone.
    """
    worker = table.topic.app.worker
    assigned = None if worker is None else worker.home_of(sources, home.partition)
    if worker is None or worker.transactor is None or assigned is None:
        raise NotHere(f"table {table.topic.name}: partition {home.partition} has gone to another instance")
    serdes = table.topic.app.serdes
    encoded_key, encoded_value = serdes.encode(table.topic, "key", key), serdes.encode(table.topic, "value", value)
    mine = Work((), assigned)
    mine.keep(Outgoing(table.topic.name, home.partition, encoded_key, encoded_value, (home.header(),), None))
    before, was = table._row_in(home.partition, key)
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    mine.tell(copy.left())

    def told(committed: bool) -> None:
        if not done.done():
            done.set_result(committed)

    mine.tell(told)
    table._set_row(key, value, home)
    worker.transactor.add(mine)
    if not await done:
        table._take_back(key, value, before, was or home)
        raise NotHere(
            f"table {table.topic.name}: {key!r} was not committed before partition {home.partition} went to another instance, or was begun "
            "anew; look whether the row is as it should be, and put it again if not"
        )
