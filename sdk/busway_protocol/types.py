"""Wire types as Python annotations, and markers for the versions of fields.

Here: aliases such as `Int32`, entity types such as `TopicName`, markers such as `since`.
Not here: reading them (`schema`), generating code (`compile`).

`group_instance_id: Annotated[NullableStr, since(3)] = None` is a `str | None` to a type checker, and a
nullable string from version 3 on to the compiler.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, TypeAlias
from uuid import UUID


class Kind(Enum):
    """A primitive type, named as in Kafka's message definitions."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"


@dataclass(frozen=True, slots=True)
class Entity:
    """The entity that a field refers to, as in Kafka's definitions."""

    name: str


@dataclass(frozen=True, slots=True)
class _AtVersion:
    version: int


class Since(_AtVersion):
    __slots__ = ()


class Until(_AtVersion):
    __slots__ = ()


class NullableSince(_AtVersion):
    __slots__ = ()


class NullableUntil(_AtVersion):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Tag:
    """Tagged field: present only if it differs from its default (KIP-482), from version `since` on."""

    number: int
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    name: str


ignorable: Final = Flag("ignorable")
"""In versions without the field, a non-default value is dropped instead of refused."""

not_flexible: Final = Flag("not_flexible")
"""The field keeps its old encoding in flexible versions (the client id of the request header)."""

since = Since
until = Until
nullable_since = NullableSince
nullable_until = NullableUntil
tag = Tag

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID: Final = UUID(int=0)

Bool: TypeAlias = Annotated[bool, Kind.BOOL]
Int8: TypeAlias = Annotated[int, Kind.INT8]
Int16: TypeAlias = Annotated[int, Kind.INT16]
UInt16: TypeAlias = Annotated[int, Kind.UINT16]
Int32: TypeAlias = Annotated[int, Kind.INT32]
UInt32: TypeAlias = Annotated[int, Kind.UINT32]
Int64: TypeAlias = Annotated[int, Kind.INT64]
Float64: TypeAlias = Annotated[float, Kind.FLOAT64]
Uuid: TypeAlias = Annotated[UUID, Kind.UUID]
Str: TypeAlias = Annotated[str, Kind.STRING]
NullableStr: TypeAlias = Annotated[str | None, Kind.STRING]
Bytes: TypeAlias = Annotated[bytes, Kind.BYTES]
NullableBytes: TypeAlias = Annotated[bytes | None, Kind.BYTES]
Records: TypeAlias = Annotated[Buffer | list[Buffer] | None, Kind.RECORDS]
"""Record batches: decoded as one memoryview; written from a buffer or a list of them, never joined."""

TopicName: TypeAlias = Annotated[str, Kind.STRING, Entity("topicName")]
GroupId: TypeAlias = Annotated[str, Kind.STRING, Entity("groupId")]
NullableGroupId: TypeAlias = Annotated[str | None, Kind.STRING, Entity("groupId")]
TransactionalId: TypeAlias = Annotated[str, Kind.STRING, Entity("transactionalId")]
NullableTransactionalId: TypeAlias = Annotated[str | None, Kind.STRING, Entity("transactionalId")]
BrokerId: TypeAlias = Annotated[int, Kind.INT32, Entity("brokerId")]
ProducerId: TypeAlias = Annotated[int, Kind.INT64, Entity("producerId")]
