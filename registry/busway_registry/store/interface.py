"""What the registry asks of the place where it keeps things.

What lives here: the rows and the two protocols. Every implementation passes `tests/contracts/test_store.py`.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Protocol, TypeAlias

from busway_registry.domain.schemas import Artifact, Json

Setting: TypeAlias = Literal["config", "mode"]
GLOBAL = ""
"""The subject under which the settings of the whole registry are kept."""


class StoreFailed(Exception):
    """The place where things are kept does not work; the text is its own word for it, without any secret."""


class IdTaken(Exception):
    """The id of a schema belongs to another schema already."""


class NoMoreIds(Exception):
    """The highest id that fits on the wire has been given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """A schema and its id, which never changes and is never given to another."""

    id: int
    artifact: Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A subject's use of a schema; `deleted` softly: it can still be read by those who ask for it."""

    subject: str
    version: int
    schema_id: int
    deleted: bool
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A version of a subject with its schema."""

    version: Version
    schema: StoredSchema


class Deleted(Enum):
    """What a list does with what is softly deleted."""

    LEFT_OUT = "left out"
    INCLUDED = "included"
    ALONE = "alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a list that is wanted; a store reads no more than that."""

    offset: int = 0
    limit: int | None = None


WHOLE: Final = Part()


class Transaction(Protocol):
    """One consistent view; writes of a writing one appear together or not at all."""

    async def schema(self, schema_id: int) -> StoredSchema | None:
        """The schema of that id."""

    async def find_schema(self, fingerprint: str) -> StoredSchema | None:
        """The schema with that identity."""

    async def schemas_with_guid(self, guid: str) -> list[StoredSchema]:
        """Schemas with that GUID."""

    async def highest_id(self) -> int:
        """The largest id in use; 0 for none."""

    async def add_schema(self, artifact: Artifact, schema_id: int | None = None) -> StoredSchema:
        """Keep a schema that is not kept yet, under the next id or the given one.

        Raises:
            IdTaken: the given id is another schema's.
            NoMoreIds: there is no next id.
        """

    async def remove_schema(self, schema_id: int) -> None:
        """Forget a schema that no version uses."""

    async def subjects(self, prefix: str, deleted: Deleted, part: Part = WHOLE) -> list[str]:
        """Names that begin so, sorted; a subject is deleted when all its versions are."""

    async def every_version(
        self, prefix: str, *, deleted: bool, latest_only: bool = False, part: Part = WHOLE
    ) -> list[Version]:
        """Versions of the subjects that begin so, by subject and number; soft-deleted ones too if asked for, or the latest alone."""

    async def versions(self, subject: str) -> list[Version]:
        """All versions of a subject, soft-deleted ones too, by number."""

    async def version_numbers(self, subject: str, deleted: Deleted, part: Part = WHOLE) -> list[int]:
        """Their numbers, ascending."""

    async def version(self, subject: str, number: int | None, *, deleted: bool) -> Version | None:
        """The version of that number, or with None the latest; a soft-deleted one if asked for."""

    async def versions_of_schema(
        self, schema_id: int, *, deleted: bool = True, subject: str | None = None, part: Part = WHOLE
    ) -> list[Version]:
        """Who uses a schema, by subject and number; all subjects or one."""

    async def subjects_of_schema(self, schema_id: int, *, deleted: bool, part: Part = WHOLE) -> list[str]:
        """Names of the subjects that use a schema, sorted."""

    async def add_version(self, version: Version) -> None:
        """Add a version, which must not exist."""

    async def mark_deleted(self, subject: str, version: int) -> None:
        """Delete softly."""

    async def remove_version(self, subject: str, version: int) -> None:
        """Delete for good."""

    async def referenced_by(self, subject: str, version: int, *, deleted: bool = True, part: Part = WHOLE) -> list[int]:
        """Ids of the schemas that refer to that version, ascending; without `deleted` those that a live version uses."""

    async def setting(self, kind: Setting, subject: str) -> Json | None:
        """A subject's settings, or with `GLOBAL` the registry's; None when it has none."""

    async def settings(self, subject: str) -> Mapping[tuple[Setting, str], Json]:
        """All settings that a subject has, and the registry's."""

    async def put_setting(self, kind: Setting, subject: str, value: Json) -> None:
        """Replace them."""

    async def remove_setting(self, kind: Setting, subject: str) -> None:
        """Remove them, if there are any."""


class Store(Protocol):
    """Where schemas are kept; whatever goes wrong there, in a transaction too, is a `StoreFailed`."""

    async def open(self) -> None:
        """Get ready; creates what is missing, and brings what an earlier release left to today's shape."""

    async def close(self) -> None:
        """Let go."""

    def read(self) -> AbstractAsyncContextManager[Transaction]:
        """A view that does not change."""

    def write(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction; writing ones take turns, so what was read stays true until it ends."""
