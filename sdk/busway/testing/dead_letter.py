"""Dead letters in tests.

Here: reading.
Not here: writing (`busway.app.model.retry`).
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from busway.app.model.topic import Topic
from busway.app.serdes import Serdes
from busway.serde.errors import Undecodable
from busway.types import Record

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(Generic[K, V]):
    """A record of a dead-letter topic.

    Attributes:
        key, value: decoded; None where absent, and both None for an undecodable record.
        raw_key, raw_value: the original bytes.
        error: class and text of the exception.
        attempts: calls of the handler.
        headers: all of them; see `busway.app.model.retry.dead_letter_headers`.
    """

    key: K | None
    value: V | None
    raw_key: bytes | None
    raw_value: bytes | None
    error: str
    attempts: int
    headers: tuple[tuple[str, bytes | None], ...]


async def dead_letter_of(record: Record, topic: Topic[K, V], serdes: Serdes) -> DeadLetter[K, V]:
    key: Any = None
    value: Any = None
    try:
        typed = await serdes.decode(record._replace(topic=topic.name))
        key, value = typed.key, typed.value
    except Undecodable:
        pass
    headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
    kind = headers["kafka_dlt-exception-fqcn"].rpartition(".")[2]
    return DeadLetter(
        key=key,
        value=value,
        raw_key=record.key,
        raw_value=record.value,
        error=f"{kind}: {headers['kafka_dlt-exception-message']}",
        attempts=int(headers["busway_dlt-attempts"]),
        headers=record.headers,
    )
