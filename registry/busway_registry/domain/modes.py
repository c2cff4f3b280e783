"""What a subject, or the whole registry, lets its clients do.

What lives here: the modes and what each permits. What does not: where they are kept (`store`).
"""

from enum import StrEnum

from busway_registry.domain.errors import invalid_mode


class Mode(StrEnum):
    """Confluent's modes that are served."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """Set for the whole registry it beats what subjects say."""
    IMPORT = "IMPORT"
    """Schemas are registered under ids that the client gives; compatibility is not checked."""

    @property
    def writable(self) -> bool:
        """Whether anything may change."""
        return self in {Mode.READWRITE, Mode.IMPORT}


def parse_mode(text: object) -> Mode:
    """The mode of that name, in any case.

    Raises:
        RegistryError: 42204; there is none.
    """
    try:
        return Mode(str(text).upper())
    except ValueError:
        raise invalid_mode() from None
