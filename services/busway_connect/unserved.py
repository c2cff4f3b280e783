"""Settings that are not served: each is refused by its name.

What lives here: going through all names of a connector's settings. What does not: which names a class serves (`connector.Configurable`),
those of transforms and predicates (`transforms.chain`) and of clients (`overrides`), which are judged where they are read.

Kafka Connect passes over what it does not know. Here a setting that its own class serves and this one does not may be the one that masks
a column, so that a connector with it must not run; what is known to change nothing is in `Configurable.inert`.
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
    """Why a setting is refused, by its name.

    Args:
        common: the settings that every connector of its kind has.
    """
    wrong = {}
    for name, text in config.items():
        if name in common or name.startswith(_ELSEWHERE):
            continue
        if name.startswith(tuple(f"{one}." for one in CONVERTERS)):
            why = unserved_of_converter(plugins, config, name, text)
        elif name.startswith(_CREATION):
            why = None if issubclass(connector, Source) else "only a source makes topics; take it out"
        else:
            why = connector.unserved(name, text)
        if why is not None:
            wrong[name] = why
    return wrong


def unserved_of_converter(plugins: Plugins, config: Config, name: str, text: str) -> str | None:
    """Why a setting that begins with `key.converter` or `value.converter` is refused; None if it is not."""
    if name in CONVERTERS:
        return None
    converter = next((one for one in CONVERTERS if name.startswith(f"{one}.")), None)
    if converter is None:
        return f"it is none of {', '.join(CONVERTERS)}, and belongs to none; take it out"
    if converter not in config:
        return f"it belongs to {converter}, and without that the worker's goes by the worker's settings; set {converter} too"
    try:
        return plugins.converter(config[converter]).unserved(name.removeprefix(f"{converter}."), text)
    except NoSuchPlugin:
        return None  # the converter itself is refused


def inert_settings(plugins: Plugins, connector: type[Connector], config: Config) -> dict[str, str]:
    """The settings that are taken and mean nothing here, by name, each with why that changes nothing."""
    found = {name: connector.inert[name] for name in config if name in connector.inert}
    for converter in CONVERTERS:
        if converter in config:
            kind = plugins.converter(config[converter])
            for name, why in kind.inert.items():
                if f"{converter}.{name}" in config and not kind.serves(name):
                    found[f"{converter}.{name}"] = why
    return found
