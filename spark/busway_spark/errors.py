"""Spark's errors in one line.

Here: finding the useful sentence in Spark's exceptions with JVM stacks.
Not here: handling.
"""

import re
from typing import Final

from pyspark.errors import PySparkException

_ROOTS: Final = (
    # Busway's, raised in a Python worker: class and text end the worker's traceback.
    re.compile(r"^busway(?:_spark|_protocol)?\.[\w.]+: (?P<text>.+)$", re.MULTILINE),
    # A setting refused by a Kafka client.
    re.compile(r"org\.apache\.kafka\.common\.config\.ConfigException: (?P<text>.+)$", re.MULTILINE),
    re.compile(r"\[USER_RAISED_EXCEPTION\] (?P<text>.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE),
)
_KNOWN: Final = (
    (
        re.compile(r"KafkaDataLoss|KAFKA_DATA_LOSS|[Ss]ome data may have been lost|OffsetOutOfRange", re.DOTALL),
        "records were deleted before they were read, or the topic was recreated; begin with a new checkpoint",
    ),
    (
        re.compile(r"UnknownTopicOrPartition|This server does not host this topic"),
        "the topic is not there any more",
    ),
    (
        re.compile(r"Timed out waiting for a node assignment|Failed to get metadata|TimeoutException"),
        "the broker does not answer; is it running?",
    ),
    (re.compile(r"NoRouteToHost|Connection refused|UnknownHost"), "a server does not answer; is it running?"),
    (
        re.compile(r"Failed to find (?:the )?data source: kafka|DATA_SOURCE_NOT_FOUND.*kafka", re.DOTALL),
        "the session is without Spark's Kafka artifacts: use busway_spark.session.session()",
    ),
    (
        re.compile(r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH|Concurrent update to the log|CONCURRENT_STREAM_LOG_UPDATE"),
        "another query writes to the same checkpoint; give each query a checkpoint of its own",
    ),
)
_LONGEST: Final = 400


def explain(problem: BaseException) -> str:
    text = str(problem)
    for pattern in _ROOTS:
        matches = pattern.findall(text)
        if matches:
            return str(matches[-1]).rpartition(";")[2] if matches[-1].startswith("busway-") else str(matches[-1])
    for pattern, sentence in _KNOWN:
        if found_known := pattern.search(text):
            return f"{sentence} ({_line_of(text, found_known.start())})"
    if isinstance(problem, PySparkException):
        first = next((line for line in text.splitlines() if line.strip()), type(problem).__name__)
        return first[:_LONGEST]
    return f"{type(problem).__name__}: {text.splitlines()[0] if text else ''}"[:_LONGEST]


def _line_of(text: str, position: int) -> str:
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[begin : len(text) if end < 0 else end].strip()[:_LONGEST]
