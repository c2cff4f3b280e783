"""Changes of a table by exactly_once handlers.

Here: `Change`, rows put outside of handlers.
Not here: rows (`rows`), calling it (`busway.app.handling.handler_output`).
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from busway.app.handling.handler_output import HandlerOutput
from busway.app.model.topic import OpenOutput, Topic
from busway.app.tables.copies import Copy
from busway.app.tables.rows import Attempt, HeldRows, NotHere, RowOrigin
from busway.types import ProducerRecord


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Changes of a table by one exactly_once call.

    `copy` is the state of the rows beside the topic; `outgoing` returns records of rows not yet queued.
    """

    rows: HeldRows[Any, Any]
    attempt: Attempt[Any, Any]
    copy: Copy
    outgoing: Callable[[Attempt[Any, Any]], Iterable[ProducerRecord]]

    def finish(self, output: HandlerOutput) -> None:
        self._end()
        if self.attempt.put:
            for row in self.outgoing(self.attempt):
                output.keep(row)
            output.on_settled(self.copy.left())

    def undo(self) -> None:
        """Undo its rows, after the call failed or its output cannot be sent."""
        self._end()
        self.rows._undo(self.attempt)

    def _end(self) -> None:
        if not self.attempt.ended:
            self.attempt.ended = True
            self.copy.open -= 1


async def change_outside(
    rows: HeldRows[Any, Any],
    topic: Topic[Any, Any],
    output: OpenOutput | None,
    key: Any,
    value: Any,
    *,
    origin: RowOrigin,
    copy: Copy,
) -> None:
    """Set a row outside of exactly_once handlers, in one of their transactions.

    So the log keeps the order of memory.

    Args:
        output: None if the row's partition is not assigned.

    Raises:
        NotHere: the row's partition was revoked.
    """
    if output is None:
        raise NotHere(f"table {topic.name}: partition {origin.partition} has gone to another instance")
    serdes = topic.app.serdes
    encoded_key, encoded_value = serdes.encode(topic, "key", key), serdes.encode(topic, "value", value)
    output.keep(ProducerRecord(topic.name, origin.partition, encoded_key, encoded_value, (origin.header(),), None))
    before, was = rows._row_in(origin.partition, key)
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    output.on_settled(copy.left())

    def settled(committed: bool) -> None:
        if not done.done():
            done.set_result(committed)

    output.on_settled(settled)
    rows._set_row(key, value, origin)
    output.commit()
    if not await done:
        rows._take_back(key, value, before, was or origin)
        raise NotHere(
            f"table {topic.name}: {key!r} was not committed before partition {origin.partition} went to another instance, or was "
            "restarted; check the row, and put it again if it is not as expected"
        )
