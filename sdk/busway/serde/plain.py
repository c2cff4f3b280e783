"""Values without a registry: strings, numbers and bytes as keys, JSON.

What lives here: `Serde` as the App sees it, and those that need nothing from outside. What does not: Avro (`registered`).
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from busway.serde.avro import Undecodable, Unencodable


class SchemaMissing(Exception):
    """A value can be read once the schema that wrote it is here: wait for `load`, then read it again."""

    def __init__(self, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.load = load


class Serde(Protocol):
    """Turns values of one type into bytes and back; None, a tombstone, never gets here."""

    async def prepare(self, topic: str) -> None:
        """Get ready for a topic; called once at start."""

    def encode(self, value: Any) -> bytes:
        """The bytes.

        Raises:
            Unencodable: the value is of another type.
        """

    def decode(self, data: bytes) -> Any:
        """The value.

        Raises:
            Undecodable: the bytes are something else.
            SchemaMissing: the registry must be asked first.
        """


class Raw:
    """Bytes as they are."""

    async def prepare(self, topic: str) -> None:
        """Nothing to do."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise Unencodable(f"{value!r:.80} is {type(value).__name__}; the topic takes bytes")
        return bytes(value)

    def decode(self, data: bytes) -> Any:
        return data


class Text:
    """UTF-8."""

    async def prepare(self, topic: str) -> None:
        """Nothing to do."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise Unencodable(f"{value!r:.80} is {type(value).__name__}; the topic takes str")
        try:
            return value.encode()
        except UnicodeEncodeError as problem:
            raise Unencodable(f"not UTF-8: {problem}") from None

    def decode(self, data: bytes) -> Any:
        try:
            return data.decode()
        except UnicodeDecodeError as problem:
            raise Undecodable(f"not UTF-8: {problem}") from None


class Integer:
    """A number as its digits, so that any tool can read it and its murmur2 is the same everywhere."""

    async def prepare(self, topic: str) -> None:
        """Nothing to do."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Unencodable(f"{value!r:.80} is {type(value).__name__}; the topic takes int")
        return str(value).encode()

    def decode(self, data: bytes) -> Any:
        try:
            return int(data)
        except ValueError:
            raise Undecodable(f"{data!r:.80} is not a number") from None


class Json:
    """JSON by msgspec: dataclasses, structs, plain values.

    Args:
        kind: the type that values are read as.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    async def prepare(self, topic: str) -> None:
        """Nothing to do."""

    def encode(self, value: Any) -> bytes:
        kind = (int, float) if self._kind is float else self._kind
        if isinstance(self._kind, type) and not isinstance(value, kind):
            raise Unencodable(f"{value!r:.80} is {type(value).__name__}; the topic takes {self._kind.__name__}")
        try:
            return self._encoder.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as problem:
            raise Unencodable(f"{value!r:.80} cannot become JSON: {problem}") from None

    def decode(self, data: bytes) -> Any:
        try:
            return self._decoder.decode(data)
        except Exception as problem:  # noqa: BLE001 - the class's own code runs too, and a body may nest without end
            raise Undecodable(f"not the expected JSON: {problem}") from None
