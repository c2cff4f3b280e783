"""The seven compatibility levels: which earlier versions count, and who has to read whom.

What lives here: the direction and the reach of each level. What does not: what makes two schemas incompatible (`avro`).
"""

from enum import StrEnum

from busway_registry.domain.errors import invalid_compatibility


class Level(StrEnum):
    """Confluent's levels; plain ones look at the latest version, transitive ones at all live versions."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        """Whether all live versions count."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def new_reads_old(self) -> bool:
        """Whether the new schema must read what earlier ones wrote."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        """Whether earlier schemas must read what the new one writes."""
        return self.value.startswith(("FORWARD", "FULL"))


def parse_level(text: object) -> Level:
    """The level of that name, in any case.

    Raises:
        RegistryError: 42203; there is none.
    """
    if not isinstance(text, str) or text.upper() not in Level.__members__:
        raise invalid_compatibility()
    return Level[text.upper()]
