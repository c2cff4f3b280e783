"""Kafka Connect's predicates (KIP-585), and `Filter`.

Here: predicates, and a transform under a predicate.
Not here: reading settings (`chain`).
"""

from collections.abc import Mapping
from typing import ClassVar

from busway_connect.connector import Setting, SinkRecord, SourceRecord
from busway_connect.patterns import BadPattern, Pattern, TooLong
from busway_connect.transforms.interface import Predicate, R, Transform, TransformFailed


class TopicNameMatches(Predicate):
    """The topic's whole name matches `pattern`."""

    settings: ClassVar[tuple[Setting, ...]] = (Setting(name="pattern", doc="Of the whole topic name", required=True),)

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        try:
            self._pattern = Pattern(settings["pattern"])
        except BadPattern as problem:
            raise ValueError(f"pattern: {problem}") from None

    def test(self, record: SourceRecord | SinkRecord) -> bool:
        try:
            return self._pattern.fullmatch(record.topic)
        except TooLong as problem:
            raise TransformFailed(f"pattern: {problem}") from None


class HasHeaderKey(Predicate):
    """The record has a header `name`."""

    settings: ClassVar[tuple[Setting, ...]] = (Setting(name="name", doc="Of the header", required=True),)

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._name = settings["name"]

    def test(self, record: SourceRecord | SinkRecord) -> bool:
        return any(name == self._name for name, _ in record.headers)


class RecordIsTombstone(Predicate):
    def test(self, record: SourceRecord | SinkRecord) -> bool:
        return record.value is None


class Filter(Transform):
    """Drops all records, under a predicate those selected."""

    def apply(self, record: R) -> R | None:
        return None


class ConditionalTransform(Transform):
    """A transform for selected records, with `negate` for others. The rest pass unchanged."""

    def __init__(self, transform: Transform, predicate: Predicate, *, negate: bool) -> None:
        super().__init__(transform.config)
        self._transform = transform
        self._predicate = predicate
        self._negate = negate

    @property
    def shown(self) -> str:
        return self._transform.shown

    def apply(self, record: R) -> R | None:
        return record if self._predicate.test(record) == self._negate else self._transform.apply(record)
