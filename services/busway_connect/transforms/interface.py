"""Interfaces of transforms (SMT) and predicates.

Here: a transform maps a record to a record or None, a predicate selects records.
Not here: implementations, choosing one (`plugins`).
"""

from collections.abc import Mapping
from typing import TypeVar

from busway_connect.connector import Configurable, SinkRecord, SourceRecord

R = TypeVar("R", SourceRecord, SinkRecord)


class TransformFailed(ValueError):
    """The transform does not apply to this record's shape."""


class _Step(Configurable):
    def __init__(self, settings: Mapping[str, str]) -> None:
        for setting in self.settings:
            if setting.required and not settings.get(setting.name):
                raise ValueError(f"{setting.name} is missing")
        self.config = settings


class Predicate(_Step):
    """One of a connector's `predicates`.

    Args:
        settings: after `predicates.NAME.`.

    Raises:
        ValueError: a missing or invalid setting; the text begins with its name.
    """

    def test(self, record: SourceRecord | SinkRecord) -> bool:
        """Return whether it holds; raises `TransformFailed` if undecidable."""
        raise NotImplementedError


class Transform(_Step):
    """One of a connector's `transforms`.

    Args:
        settings: after `transforms.NAME.`.

    Raises:
        ValueError: a missing or invalid setting; the text begins with its name.
    """

    @property
    def shown(self) -> str:
        """Name in headers of dead letters."""
        return type(self).__qualname__

    def apply(self, record: R) -> R | None:
        """Return the transformed record, None to drop it; raises `TransformFailed` for another shape."""
        raise NotImplementedError
