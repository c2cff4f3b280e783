"""Values without a registry: strings, numbers, bytes, JSON.

Here: `Serde`, the App's interface.
Not here: Avro (`registered`).
"""

import math
import typing
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from busway.serde.errors import Undecodable, Unencodable
from busway.serde.records import CannotInfer, is_model, is_typed_dict


class SchemaMissing(Exception):
    """The writer's schema is not loaded; await `load` and decode again."""

    def __init__(self, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.load = load


class Serde(Protocol):
    """Conversion between one type's values and bytes. Never called with None, the tombstone."""

    async def prepare(self, topic: str) -> None:
        """Prepare for a topic; called once at start."""

    def encode(self, value: Any) -> bytes:
        """Encode a value; raise `Unencodable` if it is of another type."""

    def decode(self, data: bytes) -> Any:
        """Decode a value; raise `Undecodable`, or `SchemaMissing` if the schema must be loaded first."""


class Raw:
    async def prepare(self, topic: str) -> None:
        """Nothing to do."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise Unencodable(f"{value!r:.80} is {type(value).__name__}; the topic takes bytes")
        return bytes(value)

    def decode(self, data: bytes) -> Any:
        return data


class Text:
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
    """Decimal digits: readable by any tool, with the same murmur2 everywhere."""

    async def prepare(self, topic: str) -> None:
        """Nothing to do."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Unencodable(f"{value!r:.80} is {type(value).__name__}; the topic takes int")
        try:
            return int.__repr__(value).encode()  # an IntEnum's repr differs
        except ValueError as problem:
            raise Unencodable(f"a number of {value.bit_length()} bits has too many digits: {problem}") from None

    def decode(self, data: bytes) -> Any:
        try:
            return int(data)
        except ValueError:
            raise Undecodable(f"{data!r:.80} is not a number") from None


class Json:
    """JSON by msgspec for dataclasses, structs, TypedDicts and plain values. Pydantic models use their own code and
    aliases.

    Encoding decodes its result as a check, so a value that no reader of the type accepts is refused before sending.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        plain = typing.get_origin(kind) or kind
        self._accepts: Any = {Any: object, float: (int, float)}.get(plain, dict if is_typed_dict(plain) else plain)
        self._encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=_dump).encode
        try:
            self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind, dec_hook=_validate).decode
        except (TypeError, NameError, RuntimeError) as problem:
            raise CannotInfer(
                f"{kind!r:.80} cannot be read from JSON: {problem}; use Avro, or pydantic models"
            ) from None
        if is_model(kind):
            self._encode = lambda value: value.model_dump_json(by_alias=True, warnings=False).encode()
            self._decode = kind.model_validate_json

    async def prepare(self, topic: str) -> None:
        """Nothing to do."""

    def encode(self, value: Any) -> bytes:
        if isinstance(self._kind, type) and not isinstance(value, self._accepts):
            raise Unencodable(f"{value!r:.80} is {type(value).__name__}; the topic takes {self._kind.__name__}")
        try:
            data = self._encode(value)
            wrong = _not_finite(value) if b"null" in data else None
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as problem:
            raise Unencodable(f"{value!r:.80} cannot become JSON: {problem}") from None
        if wrong is not None:
            raise Unencodable(f"{value!r:.80} holds {wrong}, which JSON cannot hold; send None, or use Avro")
        try:
            self._decode(data)
        except Exception as problem:  # noqa: BLE001 - the class's own code runs too
            raise Unencodable(f"{value!r:.80} could not be read again: {problem}") from None
        return data

    def decode(self, data: bytes) -> Any:
        try:
            return self._decode(data)
        except Exception as problem:  # noqa: BLE001 - the class's own code runs too, and a body may nest without end
            raise Undecodable(f"not the expected JSON: {problem}") from None


def _dump(value: Any) -> Any:
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} has no JSON")


def _not_finite(value: Any) -> float | None:
    def opened(inner: Any) -> Any:
        return inner.model_dump(by_alias=True, warnings=False) if is_model(type(inner)) else repr(inner)

    waiting = [msgspec.to_builtins(opened(value) if is_model(type(value)) else value, enc_hook=opened)]
    while waiting:
        part = waiting.pop()
        if isinstance(part, float) and not math.isfinite(part):
            return part
        if isinstance(part, dict):
            waiting += [*part, *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += part
    return None


def _validate(kind: Any, value: Any) -> Any:
    if is_model(kind):
        return kind.model_validate(value)
    raise TypeError(f"{kind.__name__} cannot be read from JSON")
