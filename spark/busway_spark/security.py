"""Security of Busway's client in jobs, from Spark's `kafka.*` options, a properties file or the environment.

Here: `kafka.security.protocol`, `kafka.sasl.*` and `kafka.ssl.*` as options of Busway's client.
Not here: the options (`busway.security`), Spark's own Kafka source, which reads them itself. No Spark is imported.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from busway import SecurityOptions
from busway.security.choosing import chosen
from busway.security.properties import CONFIG_VARIABLE, BadProperties, is_security, options_of, parsed

PREFIX: Final = "kafka."


def is_security_option(name: str) -> bool:
    """Whether an option of Spark's Kafka source is about security."""
    return name.startswith(PREFIX) and is_security(name.removeprefix(PREFIX))


def client_security(options: Mapping[str, str]) -> SecurityOptions:
    """Return the security among a source's options; without it that of the environment, or plain text.

    Raises:
        BadProperties: the options do not fit together, or are of a kind that Busway's client lacks.
    """
    given = {name.removeprefix(PREFIX): text for name, text in options.items() if is_security_option(name)}
    try:
        return chosen(options_of(given))
    except BadProperties:
        raise
    except ValueError as problem:
        raise BadProperties(f"options kafka.*: {problem}") from None


def checking_security(options: Mapping[str, str]) -> SecurityOptions | None:
    """Return the security for checks before Spark's own source connects; None if only Java's client can use the options."""
    try:
        return client_security(options)
    except BadProperties:
        return None


def options_of_file(path: str | None) -> dict[str, str]:
    """Read the security of a Java client's properties file as `kafka.*` options; without a path of the environment's file.

    Raises:
        BadProperties: the file cannot be read.
    """
    where = path or os.environ.get(CONFIG_VARIABLE)
    if not where:
        return {}
    try:
        text = Path(where).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise BadProperties(f"{where}: cannot be read, {reason}; give the path of a properties file") from None
    return {PREFIX + name: value for name, value in parsed(text).items() if is_security(name)}
