"""The principal of a request.

Here: `Principal`, a name as in Kafka's access control.
Not here: authentication, authorization.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    """A name, of a type; shown as `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A client of a listener without authentication."""

BROKER: Final = Principal("User", "busway")
"""A broker that acts for no client."""
