"""Which class a name means: connectors, converters, transforms, predicates.

What lives here: finding by Kafka's class names, whole or short, and loading modules of users' own. What does not: the classes.
A name in a request never imports anything: what can be named is built in or in a module that the worker's settings name, and all of that is
loaded when the worker starts, as importing keeps everybody else waiting.
"""

import importlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from busway_connect.config import BadSetting
from busway_connect.connector import Configurable, Connector, Source
from busway_connect.converters.interface import Converter
from busway_connect.transforms.interface import Predicate, Transform

logger = logging.getLogger("busway.connect")
T = TypeVar("T", bound=Configurable)
_BUILT_IN: Final = (
    "busway_connect.sql_sink",
    "busway_connect.postgres",
)
"""Modules with connectors; one that is missing what it needs is left out, and says so when it is asked for."""
_ON_REQUEST: Final = {"FileStreamSource": "busway_connect.file_stream", "FileStreamSink": "busway_connect.file_stream"}
"""Connectors that a worker's settings have to name: with these any client of the REST API reads and writes the worker's files, for which
Kafka took them from its class path too (3.1.1)."""
_KAFKA_NAMES: Final = {
    "io.debezium.transforms.ExtractNewRecordState": ("busway_connect.transforms.unwrap", "ExtractNewRecordState"),
    "org.apache.kafka.connect.transforms.RegexRouter": ("busway_connect.transforms.fields", "RegexRouter"),
    "org.apache.kafka.connect.transforms.ReplaceField$Key": ("busway_connect.transforms.fields", "ReplaceKeyField"),
    "org.apache.kafka.connect.transforms.ReplaceField$Value": ("busway_connect.transforms.fields", "ReplaceField"),
    "org.apache.kafka.connect.transforms.InsertField$Key": ("busway_connect.transforms.fields", "InsertKeyField"),
    "org.apache.kafka.connect.transforms.InsertField$Value": ("busway_connect.transforms.fields", "InsertField"),
    "org.apache.kafka.connect.transforms.Filter": ("busway_connect.transforms.predicates", "Filter"),
    **{
        f"org.apache.kafka.connect.transforms.predicates.{name}": ("busway_connect.transforms.predicates", name)
        for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
    },
    "org.apache.kafka.connect.json.JsonConverter": ("busway_connect.converters.json", "JsonConverter"),
    "org.apache.kafka.connect.storage.StringConverter": ("busway_connect.converters.plain", "StringConverter"),
    "org.apache.kafka.connect.converters.ByteArrayConverter": ("busway_connect.converters.plain", "ByteArrayConverter"),
    "io.confluent.connect.avro.AvroConverter": ("busway_connect.converters.avro", "AvroConverter"),
}
"""Predicates, transforms and converters by Kafka's names."""
_KINDS: Final[dict[type[Configurable], str]] = {
    Predicate: "predicate",
    Transform: "transformation",
    Converter: "converter",
    Connector: "connector",
}
_INTERFACES: Final = frozenset(interface.__module__ for interface in (Connector, Converter, Transform))
"""Modules whose classes a plugin imports to make its own of them."""


class NoSuchPlugin(ValueError):
    """No class of that name is known here; names those that are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """A class as the REST API lists it."""

    class_name: str
    kind: str
    version: str


class Plugins:
    """The classes that a worker knows.

    Args:
        modules: of users' own, with subclasses of `Source`, `Sink`, `Transform`, `Predicate` and `Converter`.

    Raises:
        BadSetting: a module cannot be imported, or has none of these.
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._connectors: list[type[Connector]] = []
        self._others: dict[str, type[Configurable]] = {}
        self.unavailable: dict[str, str] = {}
        """Built-in modules that cannot be loaded, and why."""
        for name in _BUILT_IN:
            try:
                self._add(name)
            except ImportError as problem:
                self.unavailable[name] = str(problem)
        for known, (module, attribute) in _KAFKA_NAMES.items():
            self._others[known] = getattr(importlib.import_module(module), attribute)
        for name in modules:
            try:
                added = self._add(name)
            except (Exception, SystemExit) as problem:
                logger.debug("plugin.modules: %s", name, exc_info=problem)
                raise BadSetting(
                    f"plugin.modules: {name} cannot be imported: {type(problem).__name__}: {problem}; mend the module, or take it out"
                ) from None
            if not added:
                raise BadSetting(
                    f"plugin.modules: {name} has no Source, Sink, Transform, Predicate or Converter of busway_connect in it; a class with"
                    " a name that begins with _ does not count"
                )

    def _add(self, module_name: str) -> int:
        """Take the classes of a module; how many it has."""
        module = importlib.import_module(module_name)
        classes = [
            value
            for attribute, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, Configurable)
            and not attribute.startswith("_")
            and value.__module__ not in _INTERFACES
            and (f"{value.__module__}.".startswith(f"{module_name}.") or "class_names" in vars(value))
        ]
        for plugin in classes:
            if issubclass(plugin, Connector):
                if plugin not in self._connectors:
                    self._connectors.append(plugin)
            else:
                self._others[f"{plugin.__module__}.{plugin.__qualname__}"] = plugin
        return len(classes)

    def connector(self, name: str) -> type[Connector]:
        """The connector of that class name: whole, without its package, or without `Connector` at its end.

        Raises:
            NoSuchPlugin: there is none.
        """
        for plugin in self._connectors:
            for known in plugin.names():
                simple = known.rpartition(".")[2]
                if name in {known, simple, simple.removesuffix("Connector")}:
                    return plugin
        known = ", ".join(plugin.names()[0] for plugin in self._connectors)
        asked = _ON_REQUEST.get(name.rpartition(".")[2].removesuffix("Connector"))
        raise NoSuchPlugin(
            f"Failed to find any class that implements Connector and which name matches {name}, available connectors are: {known}"
            + (f"; the worker has it with plugin.modules={asked}" if asked is not None else "")
            + "".join(f"; {module} cannot be loaded: {why}" for module, why in self.unavailable.items())
        )

    def converter(self, name: str) -> type[Converter]:
        """The converter of that class name.

        Raises:
            NoSuchPlugin: there is none.
        """
        return self._find(name, Converter)

    def transform(self, name: str) -> type[Transform]:
        """The transform of that class name.

        Raises:
            NoSuchPlugin: there is none.
        """
        return self._find(name, Transform)

    def predicate(self, name: str) -> type[Predicate]:
        """The predicate of that class name.

        Raises:
            NoSuchPlugin: there is none.
        """
        return self._find(name, Predicate)

    def _find(self, name: str, base: type[T]) -> type[T]:
        of_kind = {known: plugin for known, plugin in self._others.items() if issubclass(plugin, base)}
        for known, plugin in of_kind.items():
            if name in {known, known.rpartition(".")[2]}:
                return plugin
        raise NoSuchPlugin(
            f"Class {name} could not be found; the {_KINDS[base]}s are {', '.join(of_kind)}, and those in the worker's plugin.modules"
        )

    def connectors(self) -> list[PluginInfo]:
        """Every connector, sinks first as Kafka Connect lists them."""
        infos = [
            PluginInfo(class_name=plugin.names()[0], kind=kind_of(plugin), version=plugin.version)
            for plugin in self._connectors
        ]
        return sorted(infos, key=lambda info: (info.kind, info.class_name))

    def others(self) -> list[PluginInfo]:
        """Predicates, transforms and converters."""
        return [
            PluginInfo(class_name=name, kind=shown, version="")
            for base, shown in _KINDS.items()
            for name, plugin in self._others.items()
            if issubclass(plugin, base)
        ]


def kind_of(connector: type[Connector]) -> str:
    """`source` or `sink`."""
    return "source" if issubclass(connector, Source) else "sink"
