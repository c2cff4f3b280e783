"""Avro values with a schema in a registry."""

from typing import Any, Final
from urllib.parse import quote

from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.serde.avro import AvroCodec
from busway.serde.errors import Undecodable, Unencodable
from busway.serde.framing import FRAME_BYTES, NotFramed, frame, unframe
from busway.serde.naming import Part, SubjectNaming, topic_name
from busway.serde.plain import SchemaMissing
from busway.serde.registry import RegistryClient, RegistryRefused, id_in

_NO_SUCH_SCHEMA: Final = 40403
_UNKNOWN_S: Final = 5.0
"""Pause before a missing id is requested again. Otherwise a topic full of them would load the registry."""
_UNKNOWN_MAX: Final = 1000


class RegisteredAvro:
    """Framed Avro of one type for one topic. Without `register`, the schema must be registered already."""

    def __init__(
        self,
        registry: RegistryClient,
        kind: Any,
        *,
        part: Part = "value",
        naming: SubjectNaming = topic_name,
        register: bool = True,
    ) -> None:
        self._registry = registry
        self._codec: AvroCodec[Any] = AvroCodec(kind)
        self._part: Part = part
        self._naming = naming
        self.registers = register
        self._prefix: bytes | None = None
        self._unknown: dict[int, float] = {}
        self._known: dict[bytes, int] = {}

    @property
    def name(self) -> str:
        """Full name of the record, or name of the type."""
        return self._codec.name

    @property
    def schema_text(self) -> str:
        return self._codec.schema_text

    def subject(self, topic: str) -> str:
        return self._naming(topic, self._part, self._codec.name)

    async def prepare(self, topic: str) -> None:
        schema_id = await self._id(self.subject(topic))
        self._codec.add_writer(schema_id, self._codec.schema_text)
        self._prefix = frame(schema_id)

    async def _id(self, subject: str) -> int:
        if self.registers:
            return await self._registry.register(subject, self._codec.schema_text)
        answer = await self._registry.request(
            "POST", f"/subjects/{quote(subject, safe='')}", {"schema": self._codec.schema_text}
        )
        return id_in(self._registry.url, answer)

    def encode(self, value: Any) -> bytes:
        if self._prefix is None:
            raise Unencodable(f"the schema of {self._codec.name} is not registered yet; start the app first")
        return self._codec.encode(value, self._prefix)

    def decode(self, data: bytes) -> Any:
        """Return the value, written with any schema version.

        Raise `Undecodable`, or `SchemaMissing` if the schema is not loaded yet. Loading raises Undecodable for an id
        that the registry lacks, and BuswayError while it does not answer.
        """
        schema_id = self._known.get(data[:FRAME_BYTES])
        if schema_id is None:
            schema_id = self._id_of(data)
        return self._codec.decode(data, schema_id, FRAME_BYTES)

    def _id_of(self, data: bytes) -> int:
        try:
            schema_id = unframe(data)
        except NotFramed as problem:
            raise Undecodable(str(problem)) from None
        if not self._codec.knows(schema_id):
            raise SchemaMissing(lambda: self._load(schema_id))
        self._known[data[:FRAME_BYTES]] = schema_id
        return schema_id

    async def _load(self, schema_id: int) -> None:
        self._codec.add_writer(schema_id, await self._text(schema_id))

    async def _text(self, schema_id: int) -> str:
        unknown = Undecodable(f"schema id {schema_id} is not in the registry at {self._registry.url}")
        clock = REAL_TIME.monotonic_s
        if clock() < self._unknown.get(schema_id, 0.0):
            raise unknown
        try:
            return await self._registry.schema(schema_id)
        except RegistryRefused as problem:
            if problem.code != _NO_SUCH_SCHEMA:
                raise BuswayError(f"schema {schema_id} cannot be had: {problem}") from None
        if len(self._unknown) >= _UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown[schema_id] = clock() + _UNKNOWN_S
        raise unknown
