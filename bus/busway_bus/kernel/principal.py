"""Who asks.

What lives here: `Principal`, a name as Kafka's access control writes it. What does not: how it was proved, or what it may do.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    """One name, of a type; shown as `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        """As Kafka writes it in its ACLs."""
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Whoever comes by a listener that asks nobody's name."""

BROKER: Final = Principal("User", "busway")
"""A broker that asks on nobody's behalf."""
