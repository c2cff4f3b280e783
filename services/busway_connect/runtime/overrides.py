"""`producer.override.*` and `consumer.override.*`: what a connector may change of its clients (KIP-458).

What lives here: the names that are served, with their checks. What does not: the clients. Other names are refused.
"""

from collections.abc import Callable
from typing import Any, Final

from busway.options import ProducerOptions
from busway_connect.connector import Config

_PRODUCER: Final = "producer.override."
_CONSUMER: Final = "consumer.override."
PREFIXES: Final = (_PRODUCER, _CONSUMER, "admin.override.")
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


def override_problems(config: Config, *, source: bool) -> dict[str, str]:
    """What is wrong, by setting; a source has no consumer."""
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
    served = {
        PREFIXES[0]: [f"{_PRODUCER}{one}" for one in _OF_PRODUCER],
        PREFIXES[1]: [] if source else [f"{_CONSUMER}{one}" for one in _OF_CONSUMER],
        PREFIXES[2]: [],
    }
    for prefix, names in served.items():
        for name in config:
            if name.startswith(prefix) and name not in names:
                wrong[name] = f"it is not served; what is: {', '.join(names) or 'none'}; take it out"
    return wrong
