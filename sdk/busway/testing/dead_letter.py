"""A dead letter as tests see it.

What lives here: reading one. What does not: writing them (`busway.app.handling.failures`).
"""

from dataclasses import dataclass

from busway.types import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that was put aside.

    Attributes:
        key, value: bytes, as they came.
        error: class and text of the exception.
        attempts: calls of the handler.
        headers: all of them; see `busway.app.handling.failures.dead_letter_headers`.
    """

    key: bytes | None
    value: bytes | None
    error: str
    attempts: int
    headers: tuple[tuple[str, bytes | None], ...]


def dead_letter_of(record: Record) -> DeadLetter:
    """What a record of a dead-letter topic says."""
    headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
    kind = headers["kafka_dlt-exception-fqcn"].rpartition(".")[2]
    return DeadLetter(
        key=record.key,
        value=record.value,
        error=f"{kind}: {headers['kafka_dlt-exception-message']}",
        attempts=int(headers["busway_dlt-attempts"]),
        headers=record.headers,
    )
