"""Errors of conversion between values and bytes.

Here: the two exceptions of all formats, free of any format's library.
"""


class Undecodable(ValueError):
    """Bytes cannot be decoded to the wanted type. The text has the reason."""


class Unencodable(ValueError):
    """A value does not fit its schema. Names the field and the type."""
