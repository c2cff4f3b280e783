"""Which class a name means: connectors, converters, transforms.

What lives here: finding by Kafka's class names, whole or short, and loading modules of users' own. What does not: the classes.
A name in a request never imports anything: what can be named is built in or in a module that the worker's settings name.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from busway_connect.config import BadSetting
from busway_connect.connector import Connector, Sink, Source
from busway_connect.converters.interface import Converter
from busway_connect.transforms.interface import Transform
from busway_connect.transforms.predicates import Predicate

T = TypeVar("T")
_BUILT_IN: Final = (
    "busway_connect.sql_sink",
    "busway_connect.postgres",
)
"""Modules with connectors; one that is missing what it needs is left out, and says so when it is asked for."""
_ON_REQUEST: Final = {"FileStreamSource": "busway_connect.file_stream", "FileStreamSink": "busway_connect.file_stream"}
"""Connectors that a worker's settings have to name: with these whoever reaches the REST API reads and writes the worker's files, for which
Kafka took them from its class path too (3.1.1)."""
_CONVERTERS: Final = {
    "org.apache.kafka.connect.json.JsonConverter": ("busway_connect.converters.json", "JsonConverter"),
    "org.apache.kafka.connect.storage.StringConverter": ("busway_connect.converters.plain", "StringConverter"),
    "org.apache.kafka.connect.converters.ByteArrayConverter": ("busway_connect.converters.plain", "ByteArrayConverter"),
    "io.confluent.connect.avro.AvroConverter": ("busway_connect.converters.avro", "AvroConverter"),
}
_TRANSFORMS: Final = {
    "io.debezium.transforms.ExtractNewRecordState": ("busway_connect.transforms.unwrap", "ExtractNewRecordState"),
    "org.apache.kafka.connect.transforms.RegexRouter": ("busway_connect.transforms.fields", "RegexRouter"),
    "org.apache.kafka.connect.transforms.ReplaceField$Key": ("busway_connect.transforms.fields", "ReplaceKeyField"),
    "org.apache.kafka.connect.transforms.ReplaceField$Value": ("busway_connect.transforms.fields", "ReplaceField"),
    "org.apache.kafka.connect.transforms.InsertField$Key": ("busway_connect.transforms.fields", "InsertKeyField"),
    "org.apache.kafka.connect.transforms.InsertField$Value": ("busway_connect.transforms.fields", "InsertField"),
    "org.apache.kafka.connect.transforms.Filter": ("busway_connect.transforms.predicates", "Filter"),
}
_PREDICATES: Final = {
    f"org.apache.kafka.connect.transforms.predicates.{name}": ("busway_connect.transforms.predicates", name)
    for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
}


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
        modules: of users' own, which define subclasses of `Source` and `Sink`.

    Raises:
        BadSetting: a module cannot be imported.
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._connectors: list[type[Connector]] = []
        self.unavailable: dict[str, str] = {}
        """Built-in modules that cannot be loaded, and why."""
        for name in _BUILT_IN:
            try:
                self._add(name)
            except ImportError as problem:
                self.unavailable[name] = str(problem)
        for name in modules:
            try:
                self._add(name)
            except ImportError as problem:
                raise BadSetting(f"plugin.modules: {name} cannot be imported: {problem}") from None

    def _add(self, module_name: str) -> None:
        module = importlib.import_module(module_name)
        found = [
            one
            for one in vars(module).values()
            if isinstance(one, type) and issubclass(one, Connector) and one not in {Connector, Source, Sink}
        ]
        self._connectors += [one for one in found if one.class_names and one not in self._connectors]

    def connector(self, name: str) -> type[Connector]:
        """The connector of that class name: whole, without its package, or without `Connector` at its end.

        Raises:
            NoSuchPlugin: there is none.
        """
        for one in self._connectors:
            for known in one.class_names:
                simple = known.rpartition(".")[2]
                if name in {known, simple, simple.removesuffix("Connector")}:
                    return one
        known = ", ".join(one.class_names[0] for one in self._connectors)
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
        return self._load(_CONVERTERS, name, "converter", Converter)

    def transform(self, name: str) -> type[Transform]:
        """The transform of that class name.

        Raises:
            NoSuchPlugin: there is none.
        """
        return self._load(_TRANSFORMS, name, "transformation", Transform)

    def predicate(self, name: str) -> type[Predicate]:
        """The predicate of that class name.

        Raises:
            NoSuchPlugin: there is none.
        """
        return self._load(_PREDICATES, name, "predicate", Predicate)

    def _load(self, table: Mapping[str, tuple[str, str]], name: str, kind: str, base: type[T]) -> type[T]:
        for known, (module, attribute) in table.items():
            if name in {known, known.rpartition(".")[2]}:
                found = getattr(importlib.import_module(module), attribute)
                assert issubclass(found, base)
                return cast("type[T]", found)
        raise NoSuchPlugin(f"Class {name} could not be found; the {kind}s are {', '.join(table)}")

    def connectors(self) -> list[PluginInfo]:
        """Every connector, sinks first as Kafka Connect lists them."""
        found = [
            PluginInfo(class_name=one.class_names[0], kind=kind_of(one), version=one.version)
            for one in self._connectors
        ]
        return sorted(found, key=lambda one: (one.kind, one.class_name))

    def others(self) -> list[PluginInfo]:
        """Transforms, predicates and converters."""
        return [
            *(PluginInfo(class_name=name, kind="predicate", version="") for name in _PREDICATES),
            *(PluginInfo(class_name=name, kind="transformation", version="") for name in _TRANSFORMS),
            *(PluginInfo(class_name=name, kind="converter", version="") for name in _CONVERTERS),
        ]


def kind_of(connector: type[Connector]) -> str:
    """`source` or `sink`."""
    return "source" if issubclass(connector, Source) else "sink"
