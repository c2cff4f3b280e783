"""Streams that survive schema changes of events.

Here: rebuilding queries from their checkpoints when an unknown schema id arrives.
Not here: the stop itself, in the plan (`avro`, `stream_topic(on_new_schema="stop")`).

The micro-batch with the new id failed, so nothing of it was written; the rebuilt query reads it again, with the new
version's columns. An id that the registry lacks goes to the rejected records.
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
"""With more ids missing in the registry, the topic is assumed to belong to another registry."""
_POLL_S: Final = 1.0
_MARK: Final = re.compile(re.escape(UNKNOWN_MARK) + r"(\d+)")
Start = Callable[[frozenset[int]], Iterable[StreamingQuery]]


class StreamFailed(BuswayError):
    """A query failed; the text has the reason in one line."""


def run_stream(start: Start, *, known_ids: Callable[[], Iterable[int]]) -> list[StreamingQuery]:
    """Run queries until all have ended, and return them; rebuild them for new schemas.

    Args:
        start: builds and starts the queries; gets the ids that the registry lacks, for `stream_topic(missing_ids=…)`.
        known_ids: returns the registry's current ids, such as `schemas_of(…).ids`.

    Raises:
        StreamFailed: a query failed for another reason, or too many ids are missing in the registry.
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
            # An id that still stops them after a rebuild is not a version of the subject.
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
    while running := [query for query in queries if query.isActive]:
        for query in queries:
            if (problem := query.exception()) is not None:
                raise problem
        running[0].awaitTermination(_POLL_S)
    for query in queries:
        if (problem := query.exception()) is not None:
            raise problem
