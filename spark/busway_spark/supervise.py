"""Streams that go on when an event's schema changes.

What lives here: rebuilding queries, from their checkpoints, when a schema id comes that they were not built with. What does not: the
stop itself, which is part of the plan (`avro`, `stream_topic(on_new_schema="stop")`).

The micro-batch that met the new id has failed, so nothing of it was written; the rebuilt query reads it again, with the
columns of the new version. An id that the registry does not have cannot be waited for: it goes to the rejected records.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from busway import BuswayError
from busway_spark.avro import UNKNOWN_MARK
from busway_spark.errors import explain

MISSING_MAX: Final = 20
"""More ids than these that the registry does not have, and the topic is taken for one of another registry."""
_POLL_S: Final = 1.0
_MARK: Final = re.compile(re.escape(UNKNOWN_MARK) + r"(\d+)")
Start = Callable[[frozenset[int]], Iterable[StreamingQuery]]


class StreamFailed(BuswayError):
    """A query ended with a failure; the text says why in one line."""


def run_stream(start: Start, *, known_ids: Callable[[], Iterable[int]]) -> list[StreamingQuery]:
    """Run queries until all have ended; rebuild them when a new schema comes.

    Args:
        start: builds and starts the queries; is given the ids that the registry does not have, for `stream_topic(missing_ids=…)`.
        known_ids: the ids that the registry has now, `schemas_of(…).ids` say.

    Returns:
        The queries that ended.

    Raises:
        StreamFailed: a query failed for another reason, or there are too many ids that the registry does not have.
    """
    missing: frozenset[int] = frozenset()
    rebuilt_for: set[int] = set()
    while True:
        queries = list(start(missing))
        try:
            _await_all(queries)
        except StreamingQueryException as problem:
            match = _MARK.search(str(problem))
            if match is None:
                raise StreamFailed(explain(problem)) from None
            schema_id = int(match[1])
            # An id for which they were rebuilt already, and that stops them still, is of no version of the subject.
            if schema_id in rebuilt_for or schema_id not in set(known_ids()):
                missing |= {schema_id}
            rebuilt_for.add(schema_id)
            if len(missing) > MISSING_MAX:
                raise StreamFailed(
                    f"more than {MISSING_MAX} schema ids are not in the registry ({explain(problem)}); is the topic written with another?"
                ) from None
        else:
            return queries
        finally:
            for query in queries:
                query.stop()


def _await_all(queries: list[StreamingQuery]) -> None:
    """Return when all have ended.

    Raises:
        StreamingQueryException: one has failed.
    """
    while running := [query for query in queries if query.isActive]:
        for query in queries:
            if (problem := query.exception()) is not None:
                raise problem
        running[0].awaitTermination(_POLL_S)
    for query in queries:
        if (problem := query.exception()) is not None:
            raise problem
