"""What a transform (SMT) is: a record in, a record out, or none.

What lives here: the interface and its errors. What does not: the transforms; which one is meant (`plugins`).
"""

from collections.abc import Mapping
from typing import TypeVar

from busway_connect.connector import Configurable, SinkRecord, SourceRecord

R = TypeVar("R", SourceRecord, SinkRecord)


class TransformFailed(ValueError):
    """A record is not what the transform works on."""


class Transform(Configurable):
    """One of a connector's `transforms`.

    Args:
        settings: what follows `transforms.NAME.` in the configuration.

    Raises:
        ValueError: a setting is missing or cannot be; the text begins with its name.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.config = settings

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
