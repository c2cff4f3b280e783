"""What a transform (SMT) is: a record in, a record out, or none; and a predicate, which says for which records.

What lives here: the interfaces and their errors. What does not: transforms and predicates; which one is meant (`plugins`).
"""

from collections.abc import Mapping
from typing import TypeVar

from busway_connect.connector import Configurable, SinkRecord, SourceRecord

R = TypeVar("R", SourceRecord, SinkRecord)


class TransformFailed(ValueError):
    """A record is not what the transform works on."""


class _Step(Configurable):
    def __init__(self, settings: Mapping[str, str]) -> None:
        for setting in self.settings:
            if setting.required and not settings.get(setting.name):
                raise ValueError(f"{setting.name} is missing")
        self.config = settings


class Predicate(_Step):
    """One of a connector's `predicates`; says of a record yes or no.

    Args:
        settings: what follows `predicates.NAME.` in the configuration.

    Raises:
        ValueError: a setting is missing or cannot be; the text begins with its name.
    """

    def test(self, record: SourceRecord | SinkRecord) -> bool:
        """Whether it is so.

        Raises:
            TransformFailed: it cannot be said of this record.
        """
        raise NotImplementedError


class Transform(_Step):
    """One of a connector's `transforms`.

    Args:
        settings: what follows `transforms.NAME.` in the configuration.

    Raises:
        ValueError: a setting is missing or cannot be; the text begins with its name.
    """

    @property
    def shown(self) -> str:
        """Its name in the headers of dead letters."""
        return type(self).__qualname__

    def apply(self, record: R) -> R | None:
        """The record as it goes on; None takes it out.

        Raises:
            TransformFailed: the record is not what the transform works on.
        """
        raise NotImplementedError
