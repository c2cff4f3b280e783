"""Refusing unsupported settings by name.

Here: all names of a connector's settings.
Not here: supported names (`Configurable`), transforms (`transforms.chain`), clients (`overrides`).

Kafka Connect ignores unknown settings. Here an unsupported setting of Kafka's class may be the one that masks a column,
so the connector must not run; settings without effect are in `Configurable.inert`.
"""

from collections.abc import Collection
from typing import Final

from busway_connect.connector import Config, Connector, Source
from busway_connect.overrides import PREFIXES as OVERRIDES
from busway_connect.plugins import NoSuchPlugin, Plugins

CONVERTERS: Final = ("key.converter", "value.converter")
_ELSEWHERE: Final = ("transforms.", "predicates.", *OVERRIDES)
_CREATION: Final = "topic.creation."


def unserved(plugins: Plugins, connector: type[Connector], config: Config, common: Collection[str]) -> dict[str, str]:
    wrong = {}
    for name, text in config.items():
        if name in common or name.startswith(_ELSEWHERE):
            continue
        if name.startswith(tuple(f"{converter}." for converter in CONVERTERS)):
            why = unserved_of_converter(plugins, config, name, text)
        elif name.startswith(_CREATION):
            why = None if issubclass(connector, Source) else "only a source makes topics; take it out"
        else:
            why = connector.unserved(name, text)
        if why is not None:
            wrong[name] = why
    return wrong


def unserved_of_converter(plugins: Plugins, config: Config, name: str, text: str) -> str | None:
    """Return why a setting under `key.converter` or `value.converter` is refused; None if accepted."""
    if name in CONVERTERS:
        return None
    converter = next((candidate for candidate in CONVERTERS if name.startswith(f"{candidate}.")), None)
    if converter is None:
        return f"it is none of {', '.join(CONVERTERS)}, and belongs to none; take it out"
    if converter not in config:
        return f"it belongs to {converter}, and without that the worker's goes by the worker's settings; set {converter} too"
    try:
        return plugins.converter(config[converter]).unserved(name.removeprefix(f"{converter}."), text)
    except NoSuchPlugin:
        return None  # reported for the converter


def inert_settings(plugins: Plugins, connector: type[Connector], config: Config) -> dict[str, str]:
    inert = {name: connector.inert[name] for name in config if name in connector.inert}
    for converter in CONVERTERS:
        if converter in config:
            kind = plugins.converter(config[converter])
            for name, why in kind.inert.items():
                if f"{converter}.{name}" in config and not kind.serves(name):
                    inert[f"{converter}.{name}"] = why
    return inert
