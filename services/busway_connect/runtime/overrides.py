"""`producer.override.*` and `consumer.override.*`: what a connector may change of its clients (KIP-458).

What lives here: the names that are served, with their checks. What does not: the clients. Other names mean nothing here, as most of
Kafka's client settings have no counterpart; the worker says so in its log.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from busway.options import ProducerOptions
from busway_connect.connector import Config

log = logging.getLogger("busway.connect")
_PRODUCER: Final = "producer.override."
_CONSUMER: Final = "consumer.override."
_OF_PRODUCER: Final[dict[str, Callable[[str], Any]]] = {
    "batch.size": int,
    "buffer.memory": int,
    "compression.type": str,
    "linger.ms": float,
    "max.request.size": int,
}
_OF_CONSUMER: Final = {"max.poll.records": 500, "metadata.max.age.ms": 30_000}
"""With the defaults; the age says how often topics are looked for that match `topics.regex`."""


def producer_options(config: Config) -> dict[str, Any]:
    """For `Producer`.

    Raises:
        ValueError: one cannot be.
    """
    given = {name.removeprefix(_PRODUCER): text.strip() for name, text in config.items() if name.startswith(_PRODUCER)}
    return {name.replace(".", "_"): read(given[name]) for name, read in _OF_PRODUCER.items() if name in given}


def consumer_option(config: Config, name: str) -> int:
    """The override of that name, or the default."""
    return int(config.get(f"{_CONSUMER}{name}", _OF_CONSUMER[name]))


def override_problems(config: Config) -> dict[str, str]:
    """What is wrong, by setting."""
    wrong = {}
    for name in _OF_PRODUCER:
        full = f"{_PRODUCER}{name}"
        try:
            if full in config:
                ProducerOptions(**producer_options({full: config[full]}))
        except ValueError as problem:
            wrong[full] = str(problem)
    for name in _OF_CONSUMER:
        text = config.get(f"{_CONSUMER}{name}", "1").strip()
        if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) < 2**31):
            wrong[f"{_CONSUMER}{name}"] = "Value must be at least 1"
    return wrong


def tell_unserved(connector: str, config: Config) -> None:
    """Log the overrides that mean nothing here."""
    served = {*(f"{_PRODUCER}{one}" for one in _OF_PRODUCER), *(f"{_CONSUMER}{one}" for one in _OF_CONSUMER)}
    for name in config:
        if name.startswith((_PRODUCER, _CONSUMER, "admin.override.")) and name not in served:
            log.warning("connector %s: the setting %s means nothing here and is passed over", connector, name)
