"""Classes of connectors, converters, transforms and predicates by name.

Here: Kafka's class names, full or short, and users' modules.

A name in a request never imports anything: classes are built in or in modules of the worker's settings. All are loaded
at start, as imports block the event loop.
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
"""Modules with connectors. One with missing dependencies is reported when requested."""
_ON_REQUEST: Final = {"FileStreamSource": "busway_connect.file_stream", "FileStreamSink": "busway_connect.file_stream"}
"""Connectors that only a worker's settings can enable, as they give REST clients access to the worker's files. Kafka
removed them from its class path, too (3.1.1).
"""
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
_KINDS: Final[dict[type[Configurable], str]] = {
    Predicate: "predicate",
    Transform: "transformation",
    Converter: "converter",
    Connector: "connector",
}
_INTERFACES: Final = frozenset(interface.__module__ for interface in (Connector, Converter, Transform))
"""Modules of base classes, which plugins import."""


class NoSuchPlugin(ValueError):
    """No class of that name; the text has the known ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    class_name: str
    kind: str
    version: str


class Plugins:
    """The worker's plugin classes.

    Args:
        modules: of users, with subclasses of the interfaces.

    Raises:
        BadSetting: a module cannot be imported or has none of these.
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._connectors: list[type[Connector]] = []
        self._others: dict[str, type[Configurable]] = {}
        self.unavailable: dict[str, str] = {}
        """Built-in modules that failed to load, and why."""
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
        """Return a connector by full or short class name, `Connector` optional; raises `NoSuchPlugin`."""
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
        """Return a converter; raises `NoSuchPlugin`."""
        return self._find(name, Converter)

    def transform(self, name: str) -> type[Transform]:
        """Return a transform; raises `NoSuchPlugin`."""
        return self._find(name, Transform)

    def predicate(self, name: str) -> type[Predicate]:
        """Return a predicate; raises `NoSuchPlugin`."""
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
        """List connectors, sinks first like Kafka Connect."""
        infos = [
            PluginInfo(class_name=plugin.names()[0], kind=kind_of(plugin), version=plugin.version)
            for plugin in self._connectors
        ]
        return sorted(infos, key=lambda info: (info.kind, info.class_name))

    def others(self) -> list[PluginInfo]:
        return [
            PluginInfo(class_name=name, kind=shown, version="")
            for base, shown in _KINDS.items()
            for name, plugin in self._others.items()
            if issubclass(plugin, base)
        ]


def kind_of(connector: type[Connector]) -> str:
    return "source" if issubclass(connector, Source) else "sink"
