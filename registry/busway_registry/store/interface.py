"""The store's interface.

Here: rows and two protocols. Every implementation passes `tests/contracts/test_store.py`.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Protocol, TypeAlias

from busway_registry.domain.schemas import Artifact, Json

Setting: TypeAlias = Literal["config", "mode"]
GLOBAL = ""
"""The subject of the registry's own settings."""


class StoreFailed(Exception):
    """The store failed; the text has no secrets."""


class IdTaken(Exception):
    """Another schema has the id already."""


class NoMoreIds(Exception):
    """The highest id of the wire format is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """A schema and its id, which never changes and is never reused."""

    id: int
    artifact: Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A subject's use of a schema; `deleted` is soft: still readable on request."""

    subject: str
    version: int
    schema_id: int
    deleted: bool
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A version with its schema."""

    version: Version
    schema: StoredSchema


class Deleted(Enum):
    """Treatment of soft-deleted entries in a list."""

    LEFT_OUT = "left out"
    INCLUDED = "included"
    ALONE = "alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Part of a list; stores read no more than that."""

    offset: int = 0
    limit: int | None = None


WHOLE: Final = Part()


class Transaction(Protocol):
    """A consistent view; writes are atomic."""

    async def schema(self, schema_id: int) -> StoredSchema | None:
        """Return a schema by id."""

    async def find_schema(self, fingerprint: str) -> StoredSchema | None:
        """Return a schema by fingerprint."""

    async def schemas_with_guid(self, guid: str) -> list[StoredSchema]:
        """Return schemas by GUID."""

    async def highest_id(self) -> int:
        """Return the largest id in use; 0 for none."""

    async def add_schema(self, artifact: Artifact, schema_id: int | None = None) -> StoredSchema:
        """Add a new schema under the next or the given id.

        Raises:
            IdTaken: another schema has the given id.
            NoMoreIds: no next id.
        """

    async def remove_schema(self, schema_id: int) -> None:
        """Remove a schema without versions."""

    async def subjects(self, prefix: str, deleted: Deleted, part: Part = WHOLE) -> list[str]:
        """Return sorted names with that prefix. A subject is deleted when all its versions are."""

    async def every_version(
        self, prefix: str, *, deleted: bool, latest_only: bool = False, part: Part = WHOLE
    ) -> list[Version]:
        """Return versions of subjects with that prefix, by subject and number; with `deleted` soft-deleted ones too."""

    async def version_counts(self) -> Mapping[tuple[str, bool], int]:
        """Return numbers of versions by schema type and whether soft-deleted."""

    async def versions(self, subject: str) -> list[Version]:
        """Return all versions of a subject by number, soft-deleted ones too."""

    async def version_numbers(self, subject: str, deleted: Deleted, part: Part = WHOLE) -> list[int]:
        """Return version numbers, ascending."""

    async def version(self, subject: str, number: int | None, *, deleted: bool) -> Version | None:
        """Return a version, with None the latest; with `deleted` soft-deleted ones too."""

    async def versions_of_schema(
        self, schema_id: int, *, deleted: bool = True, subject: str | None = None, part: Part = WHOLE
    ) -> list[Version]:
        """Return a schema's versions, by subject and number; of all subjects or one."""

    async def subjects_of_schema(self, schema_id: int, *, deleted: bool, part: Part = WHOLE) -> list[str]:
        """Return a schema's subjects, sorted."""

    async def add_version(self, version: Version) -> None:
        """Add a version, which must not exist."""

    async def mark_deleted(self, subject: str, version: int) -> None:
        """Delete softly."""

    async def remove_version(self, subject: str, version: int) -> None:
        """Delete permanently."""

    async def referenced_by(self, subject: str, version: int, *, deleted: bool = True, part: Part = WHOLE) -> list[int]:
        """Return ids of schemas that refer to a version, ascending; without `deleted` only those with a live version."""

    async def setting(self, kind: Setting, subject: str) -> Json | None:
        """Return a subject's setting, with `GLOBAL` the registry's; None without one."""

    async def settings(self, subject: str) -> Mapping[tuple[Setting, str], Json]:
        """Return all settings of a subject and the registry."""

    async def put_setting(self, kind: Setting, subject: str, value: Json) -> None:
        """Replace a setting."""

    async def remove_setting(self, kind: Setting, subject: str) -> None:
        """Remove a setting, if present."""


class Store(Protocol):
    """Storage of schemas; every failure, also in a transaction, is a `StoreFailed`."""

    async def open(self) -> None:
        """Prepare; creates missing tables, and migrates those of earlier releases."""

    async def close(self) -> None:
        """Close."""

    def read(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a consistent view."""

    def write(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a writing transaction. These are serialised, so values read stay valid until its end."""
