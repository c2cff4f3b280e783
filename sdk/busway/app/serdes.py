"""Typed keys and values of an app's topics ↔ bytes.

Here: one serde for each part of each topic.
Not here: the serdes (`busway.serde`), sending (`sending`).
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from busway.app.model.topic import BadDeclaration, ConsumerRecord, Topic
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.net.retry import Backoff
from busway.serde.errors import Undecodable
from busway.serde.naming import Part, SubjectNaming
from busway.serde.plain import Integer, Json, Raw, SchemaMissing, Serde, Text
from busway.serde.records import CannotInfer
from busway.types import Record

if TYPE_CHECKING:
    from busway.serde.registry import RegistryClient

logger: logging.Logger = logging.getLogger("busway.app")

PARTS: tuple[Part, Part] = ("key", "value")
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0
"""Backoff while the registry is unavailable: doubles from the first wait to the longest, without an end."""


class Serdes:
    """Conversion of an app's records to typed values and back.

    `app` is for messages. Without `register`, schemas must exist.
    """

    def __init__(self, *, app: str, registry_url: str | None, register: bool, naming: SubjectNaming) -> None:
        self._app = app
        self._registry_url = registry_url
        self._register = register
        self._naming = naming
        self._registry: RegistryClient | None = None
        self._serdes: dict[tuple[str, Part], Serde] = {}

    async def close(self) -> None:
        if self._registry is not None:
            await self._registry.close()

    async def prepare(self, topics: Iterable[Topic[Any, Any]]) -> None:
        """Create the serdes of these topics and register their schemas.

        Raises:
            BadDeclaration: a topic in Avro without a registry.
            RegistryUnreachable, RegistryRefused: a schema cannot be registered.
            CannotInfer: a type has no schema.
        """
        for topic in topics:
            for part in PARTS:
                try:
                    serde = self.make(topic, part)
                except CannotInfer as problem:
                    raise CannotInfer(f"the {part} of topic {topic.name}: {problem}") from None
                if not topic.read_only:
                    await serde.prepare(topic.name)
                self._serdes[topic.name, part] = serde

    def make(self, topic: Topic[Any, Any], part: Part) -> Serde:
        """Create the serde of a topic's keys or values; nothing is requested or registered.

        Raises:
            BadDeclaration: a topic in Avro without a registry.
            CannotInfer: a type has no schema.
        """
        kind: Any = topic.key if part == "key" else topic.value
        form = topic.format if part == "value" else topic.key_format or _key_format(kind)
        if form == "json":
            return Json(kind)
        if form == "text":
            return Text()
        if form != "avro":
            return Integer() if form == "integer" else Raw()
        # Lazy: fastavro is slow to import.
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
        return (topic.name, "value") in self._serdes

    def encode(self, topic: Topic[Any, Any], part: Part, value: Any) -> bytes | None:
        """Encode a key or value; None stays None.

        Raises:
            Unencodable: the value is of another type.
            BadDeclaration: the topic is read_only.
        """
        self._check_writable(topic)
        return None if value is None else self._serdes[topic.name, part].encode(value)

    def _check_writable(self, topic: Topic[Any, Any]) -> None:
        if topic.read_only:
            raise BadDeclaration(
                f"topic {topic.name} is read_only in app {self._app}: its schemas belong to another service; declare it without read_only to send to it"
            )

    def encoder(self, topic: Topic[Any, Any], part: Part) -> Callable[[Any], bytes]:
        """Return the encoder of keys or values that are not None; `BadDeclaration` if read_only."""
        self._check_writable(topic)
        return self._serdes[topic.name, part].encode

    async def decode(self, record: Record) -> ConsumerRecord[Any, Any]:
        """Decode a record; fetch its schema first if needed, waiting while the registry is unavailable.

        Raises:
            Undecodable: the bytes are of another type.
        """
        while True:
            try:
                return self.read(record)
            except SchemaMissing as missing:
                await load_patiently(missing, record)

    def read(self, record: Record) -> ConsumerRecord[Any, Any]:
        """Decode with the schemas in memory; `SchemaMissing` if one must be fetched first, else as `decode`."""
        topic, partition, offset, timestamp_ms, _, key, value, headers, _, _ = record
        part: Part = "key"
        try:
            if key is not None:
                key = self._serdes[topic, part].decode(key)
            part = "value"
            if value is not None:
                value = self._serdes[topic, part].decode(value)
        except SchemaMissing as missing:
            load = missing.load
            raise SchemaMissing(lambda: self._load(topic, part, load)) from None
        except Exception as problem:  # noqa: BLE001 - a class's own code runs too; its record is for the dead letters
            raise self._not_held(topic, part, problem) from None
        return ConsumerRecord(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            key=key,
            value=value,
            headers=headers,
        )

    @staticmethod
    def _not_held(topic: str, part: Part, problem: Exception) -> Undecodable:
        what = problem if isinstance(problem, Undecodable) else f"{type(problem).__name__}: {problem}"
        return Undecodable(f"the {part} is not what topic {topic} holds: {what}")

    async def _load(self, topic: str, part: Part, load: Callable[[], Awaitable[None]]) -> None:
        try:
            await load()
        except Undecodable as problem:
            raise self._not_held(topic, part, problem) from None


async def load_patiently(
    missing: SchemaMissing, record: Record, rest: Callable[[float], Awaitable[None]] = REAL_TIME.sleep
) -> None:
    """Fetch the schema of a record, retrying while the registry is unavailable.

    Raises:
        Undecodable: the registry has no such schema.
    """
    backoff = Backoff(initial=_FIRST_WAIT_S, limit=_LONGEST_WAIT_S)
    while True:
        try:
            return await missing.load()
        except BuswayError as problem:
            logger.warning("%s-%d waits at offset %d: %s", *record[:3], problem)
        await rest(backoff.next())


def _key_format(kind: Any) -> str:
    return {str: "text", int: "integer", bytes: "raw"}.get(kind, "avro")
