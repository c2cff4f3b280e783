"""The seven compatibility levels.

Here: direction and reach of each.
Not here: incompatibility of two schemas (`avro`).
"""

from enum import StrEnum

from busway_registry.domain.errors import invalid_compatibility


class Level(StrEnum):
    """Confluent's levels; transitive ones check all live versions, others the latest."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def new_reads_old(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))


def parse_level(text: object) -> Level:
    """Return the level of a name in any case; raises 42203, no such level."""
    if not isinstance(text, str) or text.upper() not in Level.__members__:
        raise invalid_compatibility()
    return Level[text.upper()]
