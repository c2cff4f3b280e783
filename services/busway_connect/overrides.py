"""Client settings: a connector's `producer.override.*` and `consumer.override.*` (KIP-458), the worker's `producer.*`
and `consumer.*` as defaults.

Here: supported names and checks; others are refused. Security (`security.protocol`, `sasl.*`, `ssl.*`) of each client, by
default the worker's own.
Not here: clients.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from busway.options import ConsumerOptions, ProducerOptions
from busway.security.options import SecurityOptions
from busway.security.properties import is_security, options_of
from busway_connect.connector import Config

_PRODUCER: Final = "producer.override."
_CONSUMER: Final = "consumer.override."
_ADMIN: Final = "admin.override."
PREFIXES: Final = (_PRODUCER, _CONSUMER, _ADMIN)
LOOK_EVERY: Final = "metadata.max.age.ms"
"""Interval in milliseconds of looking for topics that match `topics.regex`."""
_LOOK_EVERY_MS: Final = 30_000
_NUMBER_MAX: Final = 2**31


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) < _NUMBER_MAX):
        raise ValueError("Value must be at least 1, and a whole number")
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


_OF_PRODUCER: Final[dict[str, Callable[[str], Any]]] = {
    "batch.size": _whole,
    "buffer.memory": _whole,
    "compression.type": str,
    "linger.ms": float,
    "max.request.size": _whole,
    "request.timeout.ms": _whole,
    "transaction.timeout.ms": _whole,
}
_OF_CONSUMER: Final[dict[str, Callable[[str], Any]]] = {
    "auto.offset.reset": str,
    "check.crcs": _flag,
    "fetch.max.bytes": _whole,
    "fetch.max.wait.ms": _whole,
    "fetch.min.bytes": _whole,
    "heartbeat.interval.ms": _whole,
    "isolation.level": str,
    "max.partition.fetch.bytes": _whole,
    "max.poll.interval.ms": _whole,
    "max.poll.records": _whole,
    LOOK_EVERY: _whole,
    "request.timeout.ms": _whole,
    "session.timeout.ms": _whole,
}
_SECURITY_NAMES: Final = ("security.protocol", "sasl.*", "ssl.*")
_TABLES: Final = {_PRODUCER: _OF_PRODUCER, _CONSUMER: _OF_CONSUMER, _ADMIN: {}}


def _given(config: Config, prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text.strip() for name, text in config.items() if name.startswith(prefix)}


def _options(given: Mapping[str, str], table: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    return {name.replace(".", "_"): read(given[name]) for name, read in table.items() if name in given}


def _security(config: Config, prefix: str) -> SecurityOptions | None:
    return options_of({name: text for name, text in _given(config, prefix).items() if is_security(name)})


def producer_security(config: Config) -> SecurityOptions | None:
    """Return the security of a connector's producers; None is that of the environment, or none."""
    return _security(config, _PRODUCER)


def producer_options(config: Config) -> dict[str, Any]:
    """Return options for `Producer`; raises ValueError if one is invalid."""
    return {**_tuning_of_producer(config), "security": _security(config, _PRODUCER)}


def admin_options(config: Config) -> dict[str, Any]:
    """Return options for `Admin`; raises ValueError if one is invalid."""
    return {"security": _security(config, _ADMIN)}


def consumer_options(config: Config, session_timeout_ms: int = ConsumerOptions().session_timeout_ms) -> dict[str, Any]:
    """Return options for a sink's `Consumer` (from the beginning, no auto commit); raises ValueError if one is
    invalid.
    """
    return {**_tuning_of_consumer(config, session_timeout_ms), "security": _security(config, _CONSUMER)}


def _tuning_of_producer(config: Config) -> dict[str, Any]:
    return _options(_given(config, _PRODUCER), _OF_PRODUCER)


def _tuning_of_consumer(config: Config, session_timeout_ms: int) -> dict[str, Any]:
    given = {name: text for name, text in _given(config, _CONSUMER).items() if name != LOOK_EVERY}
    options = {
        "auto_offset_reset": "earliest",
        "session_timeout_ms": session_timeout_ms,
        **_options(given, _OF_CONSUMER),
    }
    # Kafka's usual third: two lost heartbeats are tolerated.
    usual = min(ConsumerOptions().heartbeat_interval_ms, max(1, options["session_timeout_ms"] // 3))
    options.setdefault("heartbeat_interval_ms", usual)
    return options


def look_every_s(config: Config) -> float:
    return float(config.get(f"{_CONSUMER}{LOOK_EVERY}", _LOOK_EVERY_MS)) / 1000


def override_problems(config: Config, *, source: bool) -> dict[str, str]:
    """Return what is wrong, by name. Security is checked by `security_problems`, with the worker's."""
    wrong = {}
    for prefix, table in _TABLES.items():
        names: list[str] = [] if source and prefix == _CONSUMER else sorted(table)
        for name, text in _given(config, prefix).items():
            if is_security(name) and (names or prefix == _ADMIN):
                continue
            if name not in names:
                served = ", ".join([*names, *(_SECURITY_NAMES if names or prefix == _ADMIN else ())]) or "none"
                wrong[prefix + name] = f"it is not served; what is: {served}; take it out"
                continue
            try:
                override = {f"{prefix}{name}": text}
                if prefix == _PRODUCER:
                    ProducerOptions(**_tuning_of_producer(override))
                else:  # session and heartbeat depend on each other
                    session_timeout_ms = ConsumerOptions().session_timeout_ms
                    ConsumerOptions(**_tuning_of_consumer(_session(config) | override, session_timeout_ms))
            except ValueError as problem:
                wrong[prefix + name] = str(problem)
    return wrong


def security_problems(config: Config, *, alone: bool = False) -> dict[str, str]:
    """Return what is wrong with the security of each kind of client, by the name of a setting that has it.

    Args:
        alone: without the worker's, so that only kinds with a `security.protocol` can be judged.
    """
    wrong = {}
    for prefix in PREFIXES:
        if alone and f"{prefix}security.protocol" not in config:
            continue
        try:
            _security(config, prefix)
        except ValueError as problem:
            wrong[next(name for name in config if name.startswith(prefix) and is_security(name[len(prefix) :]))] = str(
                problem
            )
    return wrong


def with_defaults(defaults: Config, config: Config) -> dict[str, str]:
    """Return a connector's settings with the worker's for clients below them.

    A level that sets `security.protocol` replaces the security below it; otherwise its properties are added to it.
    """
    below = {
        name: text
        for name, text in defaults.items()
        if not any(
            name.startswith(prefix)
            and is_security(name.removeprefix(prefix))
            and f"{prefix}security.protocol" in config
            for prefix in PREFIXES
        )
    }
    return {**below, **config}


def _session(config: Config) -> dict[str, str]:
    return {name: config[name] for name in (f"{_CONSUMER}session.timeout.ms",) if name in config}


def inherited(properties: Mapping[str, str], security: Mapping[str, str]) -> dict[str, str]:
    """Return the worker's `producer.*`, `consumer.*` and `admin.*` as overrides, above its own security."""
    prefixes = {prefix.removesuffix("override."): prefix for prefix in PREFIXES}
    own = {prefix + name: text for prefix in PREFIXES for name, text in security.items()}
    return with_defaults(
        own,
        {
            prefix + name.removeprefix(short): text
            for name, text in properties.items()
            for short, prefix in prefixes.items()
            if name.startswith(short)
        },
    )
