"""Modes of a subject or the registry.

Here: the modes and what each permits.
"""

from enum import StrEnum

from busway_registry.domain.errors import invalid_mode


class Mode(StrEnum):
    """Confluent's modes as far as supported."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """Set for the registry it overrides all subjects."""
    IMPORT = "IMPORT"
    """The client gives ids; compatibility is not checked."""

    @property
    def writable(self) -> bool:
        return self in {Mode.READWRITE, Mode.IMPORT}


def parse_mode(text: object) -> Mode:
    """Return the mode of a name in any case; raises 42204, no such mode."""
    try:
        return Mode(str(text).upper())
    except ValueError:
        raise invalid_mode() from None
