"""The wire's types as Python annotations, and the markers that say in which versions a field exists.

What lives here: aliases such as `Int32` and `NullableStr`, entity-typed ones such as `TopicName`, and the markers `since`,
`until`, `nullable_since`, `tag`, `ignorable`. What does not: reading them (`schema`) or turning them into code (`compile`).

A field reads as it is used: `group_instance_id: Annotated[NullableStr, since(3)] = None`. To a type checker it is a
`str | None`; to the compiler it is a nullable string from version 3 on.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, TypeAlias
from uuid import UUID


class Kind(Enum):
    """A primitive of the wire; the value is its name in Kafka's message definitions."""

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
    """What kind of thing a field names; only for readers and for the comparison with Kafka's definitions."""

    name: str


@dataclass(frozen=True, slots=True)
class _AtVersion:
    """A marker with a version."""

    version: int


class Since(_AtVersion):
    """The field exists from this version on."""

    __slots__ = ()


class Until(_AtVersion):
    """The field exists up to and including this version."""

    __slots__ = ()


class NullableSince(_AtVersion):
    """The field may be null from this version on; before, null cannot be written."""

    __slots__ = ()


class NullableUntil(_AtVersion):
    """The field may be null up to and including this version."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Tag:
    """The field is tagged: present only when it differs from its default (KIP-482). `since` is the first such version."""

    number: int
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    """A marker without a number."""

    name: str


ignorable: Final = Flag("ignorable")
"""At a version without the field, a value that is not the default is dropped instead of refused."""

not_flexible: Final = Flag("not_flexible")
"""The field keeps its old encoding in flexible versions too (the client id of the request header)."""

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
"""Record batches: decoded as one memoryview into the request; written from a buffer or a list of them, never joined."""

TopicName: TypeAlias = Annotated[str, Kind.STRING, Entity("topicName")]
GroupId: TypeAlias = Annotated[str, Kind.STRING, Entity("groupId")]
NullableGroupId: TypeAlias = Annotated[str | None, Kind.STRING, Entity("groupId")]
TransactionalId: TypeAlias = Annotated[str, Kind.STRING, Entity("transactionalId")]
NullableTransactionalId: TypeAlias = Annotated[str | None, Kind.STRING, Entity("transactionalId")]
BrokerId: TypeAlias = Annotated[int, Kind.INT32, Entity("brokerId")]
ProducerId: TypeAlias = Annotated[int, Kind.INT64, Entity("producerId")]
