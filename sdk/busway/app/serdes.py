"""Typed keys and values of an app's topics ↔ bytes.

What lives here: one serde for each part of each topic, and what a record looks like to a handler. What does not: the serdes
(`busway.serde`), sending (`bus`).
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from busway.app.declaring.routes import BadDeclaration, ConsumerRecord, Topic
from busway.serde.errors import Undecodable
from busway.serde.naming import Part, SubjectNaming
from busway.serde.plain import Integer, Json, Raw, SchemaMissing, Serde, Text
from busway.types import Record

if TYPE_CHECKING:
    from busway.serde.registry import RegistryClient

PARTS: tuple[Part, Part] = ("key", "value")


class Serdes:
    """What turns the records of an app into values.

    Args:
        app: its name, for messages.
        registry_url: where schemas are; None if there is none.
        register: register schemas; else they must be there.
        naming: under which subject.
    """

    def __init__(self, *, app: str, registry_url: str | None, register: bool, naming: SubjectNaming) -> None:
        self._app = app
        self._registry_url = registry_url
        self._register = register
        self._naming = naming
        self._registry: RegistryClient | None = None
        self._serdes: dict[tuple[str, Part], Serde] = {}

    async def close(self) -> None:
        """Disconnect from the registry."""
        if self._registry is not None:
            await self._registry.close()

    async def prepare(self, topics: Iterable[Topic[Any, Any]]) -> None:
        """Make what these topics need, and register their schemas.

        Raises:
            BadDeclaration: a topic in Avro without a registry.
            RegistryUnreachable, RegistryRefused: a schema cannot be registered.
            CannotInfer: a type has no schema.
        """
        for topic in topics:
            for part in PARTS:
                serde = self._make(topic, part)
                if not topic.read_only:
                    await serde.prepare(topic.name)
                self._serdes[topic.name, part] = serde

    def _make(self, topic: Topic[Any, Any], part: Part) -> Serde:
        kind: Any = topic.key if part == "key" else topic.value
        form = topic.format if part == "value" else topic.key_format or _key_format(kind)
        if form == "json":
            return Json(kind)
        if form == "text":
            return Text()
        if form != "avro":
            return Integer() if form == "integer" else Raw()
        # fastavro takes its time to load.
        from busway.serde.registered import RegisteredAvro
        from busway.serde.registry import RegistryClient

        if self._registry is None:
            if self._registry_url is None:
                raise BadDeclaration(
                    f"topic {topic.name} is in Avro and app {self._app} has no schema_registry; "
                    "give App(…, schema_registry='http://localhost:8081'), or use format='json'"
                )
            self._registry = RegistryClient(self._registry_url)
        return RegisteredAvro(self._registry, kind, part=part, naming=self._naming, register=self._register)

    def knows(self, topic: Topic[Any, Any]) -> bool:
        """Whether the topic was prepared."""
        return (topic.name, "value") in self._serdes

    def encode(self, topic: Topic[Any, Any], part: Part, value: Any) -> bytes | None:
        """The bytes of a part; None stays None.

        Raises:
            Unencodable: the value is of another type.
            BadDeclaration: the topic is read_only.
        """
        if topic.read_only:
            raise BadDeclaration(
                f"topic {topic.name} is read_only in app {self._app}: its schemas are somebody else's; declare it without to send to it"
            )
        return None if value is None else self._serdes[topic.name, part].encode(value)

    async def decode(self, record: Record) -> ConsumerRecord[Any, Any]:
        """The record as a handler sees it, with a schema that has to be fetched first.

        Raises:
            Undecodable: its bytes are something else.
            BuswayError: the registry cannot be asked right now.
        """
        while True:
            try:
                return self.read(record)
            except SchemaMissing as missing:
                await missing.load()

    def read(self, record: Record) -> ConsumerRecord[Any, Any]:
        """The record as a handler sees it.

        Raises:
            Undecodable: its bytes are something else.
            SchemaMissing: the registry must be asked first.
        """
        return ConsumerRecord(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            key=None if record.key is None else self._part(record.topic, "key", record.key),
            value=None if record.value is None else self._part(record.topic, "value", record.value),
            headers=record.headers,
        )

    def _part(self, topic: str, part: Part, data: bytes) -> Any:
        try:
            return self._serdes[topic, part].decode(data)
        except SchemaMissing as missing:
            load = missing.load
            raise SchemaMissing(lambda: self._load(topic, part, load)) from None
        except Exception as problem:  # noqa: BLE001 - a class's own code runs too; its record is for the dead letters
            raise self._not_held(topic, part, problem) from None

    @staticmethod
    def _not_held(topic: str, part: Part, problem: Exception) -> Undecodable:
        what = problem if isinstance(problem, Undecodable) else f"{type(problem).__name__}: {problem}"
        return Undecodable(f"the {part} is not what topic {topic} holds: {what}")

    async def _load(self, topic: str, part: Part, load: Callable[[], Awaitable[None]]) -> None:
        try:
            await load()
        except Undecodable as problem:
            raise self._not_held(topic, part, problem) from None


def _key_format(kind: Any) -> str:
    return {str: "text", int: "integer", bytes: "raw"}.get(kind, "avro")
