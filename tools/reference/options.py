"""Options of clients, and settings of registry and Connect workers, from their classes."""

import inspect
from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from busway import App, RegistrySecurity, SecurityOptions
from busway.options import ConsumerOptions, ProducerOptions, ShareConsumerOptions
from busway_connect.config import WorkerConfig
from busway_registry.config import RegistryConfig
from tools.reference.tables import MADE, attributes, code, table

_HEAD: Final = ("option", "type", "default", "meaning")


def _type(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _type(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return ", ".join(code(repr(word) if isinstance(word, str) else word) for word in get_args(hint))
    if "Callable" in repr(hint):
        return "function"
    names = [part for part in get_args(hint) if part is not type(None)]
    if get_origin(hint) is not None and names and type(None) in get_args(hint):
        return _type(names[0])
    if get_origin(hint) is tuple:
        return "texts"
    if get_origin(hint) is not None:
        return "mapping"
    return {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}.get(
        getattr(hint, "__name__", ""), str(getattr(hint, "__name__", hint))
    )


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(code(member) for member in value)
    return "" if value is None or value == "" else code(repr(value) if not isinstance(value, str) else value)


def _options(kind: type, *, left_out: Iterable[str] = ()) -> str:
    hints, texts = get_type_hints(kind, include_extras=True), attributes(kind)
    rows = []
    for field in fields(kind):
        if field.name in left_out:
            continue
        default = field.default if field.default is not MISSING else None
        required = field.default is MISSING and field.default_factory is MISSING
        shown = "required" if required else _shown(default)
        rows.append((code(field.name), _type(hints[field.name]), shown, texts.get(field.name, "")))
    return table(_HEAD, rows)


def _app() -> str:
    texts = attributes(App, "Args")
    rows = []
    for name, parameter in inspect.signature(App.__init__).parameters.items():
        if name == "self":
            continue
        default = parameter.default
        shown = "required" if default is parameter.empty else "" if callable(default) else _shown(default)
        rows.append((code(name), shown, texts.get(name, "")))
    return table(("argument", "default", "meaning"), rows)


def clients() -> str:
    """Return the page of client options."""
    parts = (
        "# Options of clients and apps",
        f"{MADE} Names are Kafka's client settings in snake case. An unknown option is refused, with the closest name that exists; so is a value of "
        "another type or out of range.",
        "## App",
        _app(),
        "`producer` and `consumer` take the options below, except `transactional_id`, `group_id`, `auto_offset_reset` and `enable_auto_commit`, which are "
        "the app's own. `linger_ms` is 0 in an app.",
        "## Producer",
        _options(ProducerOptions),
        "## Consumer",
        _options(ConsumerOptions),
        "## ShareConsumer",
        _options(ShareConsumerOptions),
        "## Security of connections to brokers",
        "Options of `Producer`, `Consumer`, `ShareConsumer` and `Admin`, and of `SecurityOptions` for an app; see [Security](../SECURITY.md).",
        _options(SecurityOptions),
        "## Security of connections to a registry",
        _options(RegistrySecurity),
    )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def registry() -> str:
    """Return the page of the registry's settings."""
    return (
        f"# Registry settings\n\n{MADE} Each is an option of `busway registry`, with `-` for `_` (`compatibility_level` is `--compatibility`; "
        "`mutable_mode` has none), and an argument of `RegistryConfig`. Compatibility levels and modes of subjects are set over its [REST API](rest.md).\n\n"
    ) + _options(RegistryConfig)


def connect() -> str:
    """Return the page of a worker's settings."""
    return (
        f"# Settings of a Connect worker\n\n{MADE} In the worker's properties file and in `--override` they have Kafka Connect's names: `.` for `_`. "
        "`converters`, `clients` and `providers` stand for all settings with their prefixes; `host` and `port` are `--host` and `--port`. Settings of connectors: "
        "[Connectors](../CONNECT.md); `GET /connector-plugins/NAME/config` lists those of one.\n\n"
    ) + _options(WorkerConfig)
