"""Errors of conversion between values and bytes."""


class Undecodable(ValueError):
    """Bytes that cannot be decoded to the wanted type. The text has the reason."""


class Unencodable(ValueError):
    """A value that does not fit its schema. Names the field and the type."""
