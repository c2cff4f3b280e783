"""A store in memory, for tests and trials.

Here: dictionaries, copied for a writing transaction and replaced when it succeeds.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from busway_registry.domain.schemas import Artifact, Json
from busway_registry.domain.subjects import MAX_ID
from busway_registry.store.interface import (
    GLOBAL,
    WHOLE,
    Deleted,
    IdTaken,
    NoMoreIds,
    Part,
    Setting,
    StoredSchema,
    Transaction,
    Version,
)


@dataclass(slots=True)
class _Tables:
    """A state of the store; also the transaction on it."""

    schemas: dict[int, StoredSchema] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    uses: dict[tuple[str, int], Version] = field(default_factory=dict)
    kept: dict[tuple[Setting, str], Json] = field(default_factory=dict)
    last_id: int = 0

    def copy(self) -> "_Tables":
        return _Tables(dict(self.schemas), dict(self.ids), dict(self.uses), dict(self.kept), self.last_id)

    async def schema(self, schema_id: int) -> StoredSchema | None:
        return self.schemas.get(schema_id)

    async def find_schema(self, fingerprint: str) -> StoredSchema | None:
        return self.schemas[self.ids[fingerprint]] if fingerprint in self.ids else None

    async def schemas_with_guid(self, guid: str) -> list[StoredSchema]:
        return [schema for schema in self.schemas.values() if str(schema.artifact.guid) == guid]

    async def highest_id(self) -> int:
        return max(self.schemas, default=0)

    async def add_schema(self, artifact: Artifact, schema_id: int | None = None) -> StoredSchema:
        if schema_id in self.schemas:
            raise IdTaken(str(schema_id))
        if schema_id is None and self.last_id >= MAX_ID:
            raise NoMoreIds
        stored = StoredSchema(id=schema_id or self.last_id + 1, artifact=artifact)
        assert artifact.fingerprint not in self.ids
        self.schemas[stored.id] = stored
        self.ids[artifact.fingerprint] = stored.id
        self.last_id = max(self.last_id, stored.id)
        return stored

    async def remove_schema(self, schema_id: int) -> None:
        del self.ids[self.schemas.pop(schema_id).artifact.fingerprint]

    async def subjects(self, prefix: str, deleted: Deleted, part: Part = WHOLE) -> list[str]:
        alive: dict[str, bool] = {}
        for version in self.uses.values():
            if version.subject.startswith(prefix):
                alive[version.subject] = alive.get(version.subject, False) or not version.deleted
        return _part([name for name in sorted(alive) if _wanted(deleted, gone=not alive[name])], part)

    async def every_version(
        self, prefix: str, *, deleted: bool, latest_only: bool = False, part: Part = WHOLE
    ) -> list[Version]:
        versions = [
            version
            for version in self._sorted()
            if version.subject.startswith(prefix) and (deleted or not version.deleted)
        ]
        return _part(
            list({version.subject: version for version in versions}.values()) if latest_only else versions, part
        )

    async def version_counts(self) -> Mapping[tuple[str, bool], int]:
        return Counter((self.schemas[use.schema_id].artifact.schema_type, use.deleted) for use in self.uses.values())

    async def versions(self, subject: str) -> list[Version]:
        return [version for version in self._sorted() if version.subject == subject]

    async def version_numbers(self, subject: str, deleted: Deleted, part: Part = WHOLE) -> list[int]:
        versions = await self.versions(subject)
        return _part([version.version for version in versions if _wanted(deleted, gone=version.deleted)], part)

    async def version(self, subject: str, number: int | None, *, deleted: bool) -> Version | None:
        versions = [version for version in await self.versions(subject) if deleted or not version.deleted]
        return next((version for version in reversed(versions) if number in {None, version.version}), None)

    async def versions_of_schema(
        self, schema_id: int, *, deleted: bool = True, subject: str | None = None, part: Part = WHOLE
    ) -> list[Version]:
        versions = [
            version for version in self._sorted() if version.schema_id == schema_id and (deleted or not version.deleted)
        ]
        return _part([version for version in versions if subject in {None, version.subject}], part)

    async def subjects_of_schema(self, schema_id: int, *, deleted: bool, part: Part = WHOLE) -> list[str]:
        versions = await self.versions_of_schema(schema_id, deleted=deleted)
        return _part(list(dict.fromkeys(version.subject for version in versions)), part)

    def _sorted(self) -> list[Version]:
        return [self.uses[key] for key in sorted(self.uses)]

    async def add_version(self, version: Version) -> None:
        key = (version.subject, version.version)
        assert key not in self.uses
        self.uses[key] = version

    async def mark_deleted(self, subject: str, version: int) -> None:
        self.uses[subject, version] = replace(self.uses[subject, version], deleted=True)

    async def remove_version(self, subject: str, version: int) -> None:
        del self.uses[subject, version]

    async def referenced_by(self, subject: str, version: int, *, deleted: bool = True, part: Part = WHOLE) -> list[int]:
        used = {version.schema_id for version in self.uses.values() if not version.deleted}
        schema_ids = sorted(
            schema_id
            for schema_id, stored in self.schemas.items()
            if any(
                (reference.subject, reference.version) == (subject, version) for reference in stored.artifact.references
            )
        )
        return _part([schema_id for schema_id in schema_ids if deleted or schema_id in used], part)

    async def setting(self, kind: Setting, subject: str) -> Json | None:
        return self.kept.get((kind, subject))

    async def settings(self, subject: str) -> Mapping[tuple[Setting, str], Json]:
        return {key: value for key, value in self.kept.items() if key[1] in {GLOBAL, subject}}

    async def put_setting(self, kind: Setting, subject: str, value: Json) -> None:
        self.kept[kind, subject] = dict(value)

    async def remove_setting(self, kind: Setting, subject: str) -> None:
        self.kept.pop((kind, subject), None)


def _wanted(deleted: Deleted, *, gone: bool) -> bool:
    return gone if deleted is Deleted.ALONE else (deleted is Deleted.INCLUDED or not gone)


Item = TypeVar("Item")


def _part(items: list[Item], part: Part) -> list[Item]:
    return items[part.offset : None if part.limit is None else part.offset + part.limit]


class MemoryStore:
    def __init__(self) -> None:
        self._tables = _Tables()
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        yield self._tables

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Transaction]:
        """Yield a copy, which becomes the state if the block succeeds."""
        async with self._turn:
            tables = self._tables.copy()
            yield tables
            self._tables = tables
