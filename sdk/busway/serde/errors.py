"""What can go wrong between values and bytes.

What lives here: the two exceptions that all formats share, without any format's library.
"""


class Undecodable(ValueError):
    """Bytes cannot be read as a value of the wanted type; says why."""


class Unencodable(ValueError):
    """A value does not fit its schema; names the field and the type."""
