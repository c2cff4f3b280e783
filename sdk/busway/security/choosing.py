"""Choice of a client's security: its arguments, else the environment, else plain text.

Not here: the options (`options`), what the environment may say (`properties`).
"""

import os
from collections.abc import Mapping
from typing import Any

from busway.security.options import NAMES, PLAINTEXT, SecurityOptions, split
from busway.security.properties import options_from_environment


def chosen(security: SecurityOptions | None = None) -> SecurityOptions:
    """Return the given options; without them those of the environment, or plain text.

    Raises:
        BadProperties: the environment, or the file that it names, cannot be used.
    """
    return security or options_from_environment(os.environ) or PLAINTEXT


def taken(options: Mapping[str, Any]) -> tuple[SecurityOptions, dict[str, Any]]:
    """Take a client's security out of its keyword arguments; return it and the other arguments.

    It is given by the names of its options, or as an object under the name `security`.

    Raises:
        TypeError: it is given both ways, or as for `options.split`.
        ValueError: options do not fit together, or as for `chosen`.
    """
    others = dict(options)
    security = others.pop("security", None)
    if security is not None and not isinstance(security, SecurityOptions):
        raise TypeError(f"security: a value of the type {type(security).__name__} is not SecurityOptions")
    if security is not None and (doubled := [name for name in others if name in NAMES]):
        raise TypeError(f"{', '.join(doubled)}: security is given as an object too; give it in one of the two ways")
    named, others = split(others)
    return chosen(security or named), others
