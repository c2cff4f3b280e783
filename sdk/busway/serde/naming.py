"""Subject names of a topic's schemas.

Here: Confluent's three strategies. Default: `topic_name`.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

Part: TypeAlias = Literal["key", "value"]
SubjectNaming: TypeAlias = Callable[[str, Part, str], str]
"""(topic, part, full name of the record) → subject."""


def topic_name(topic: str, part: Part, record: str) -> str:
    """`orders-value`: one schema for a topic (TopicNameStrategy)."""
    return f"{topic}-{part}"


def record_name(topic: str, part: Part, record: str) -> str:
    """`shop.Order`: one schema for a type, wherever it is used (RecordNameStrategy)."""
    return record


def topic_record_name(topic: str, part: Part, record: str) -> str:
    """`orders-shop.Order`: several types in one topic (TopicRecordNameStrategy)."""
    return f"{topic}-{record}"
