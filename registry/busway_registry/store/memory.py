"""The store that forgets: for tests and for trying things out.

What lives here: plain dictionaries, copied for a writing transaction and swapped in when it ends well.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from busway_registry.domain.schemas import Artifact, Json
from busway_registry.domain.subjects import MAX_ID
from busway_registry.store.interface import GLOBAL, IdTaken, NoMoreIds, Setting, StoredSchema, Transaction, Version


@dataclass(slots=True)
class _Tables:
    """One state of everything; also the transaction on it."""

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
        return [one for one in self.schemas.values() if str(one.artifact.guid) == guid]

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

    async def versions(self, subject: str | None = None) -> list[Version]:
        return [self.uses[key] for key in sorted(self.uses) if subject is None or key[0] == subject]

    async def versions_of_schema(self, schema_id: int) -> list[Version]:
        return [self.uses[key] for key in sorted(self.uses) if self.uses[key].schema_id == schema_id]

    async def add_version(self, version: Version) -> None:
        key = (version.subject, version.version)
        assert key not in self.uses
        self.uses[key] = version

    async def mark_deleted(self, subject: str, version: int) -> None:
        self.uses[subject, version] = replace(self.uses[subject, version], deleted=True)

    async def remove_version(self, subject: str, version: int) -> None:
        del self.uses[subject, version]

    async def referenced_by(self, subject: str, version: int) -> list[int]:
        return sorted(
            schema_id
            for schema_id, stored in self.schemas.items()
            if any((one.subject, one.version) == (subject, version) for one in stored.artifact.references)
        )

    async def setting(self, kind: Setting, subject: str) -> Json | None:
        return self.kept.get((kind, subject))

    async def settings(self, subject: str) -> Mapping[tuple[Setting, str], Json]:
        return {key: value for key, value in self.kept.items() if key[1] in {GLOBAL, subject}}

    async def put_setting(self, kind: Setting, subject: str, value: Json) -> None:
        self.kept[kind, subject] = dict(value)

    async def remove_setting(self, kind: Setting, subject: str) -> None:
        self.kept.pop((kind, subject), None)


class MemoryStore:
    """A store whose content ends with the process."""

    def __init__(self) -> None:
        self._tables = _Tables()
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        """The last state that a writer left."""
        yield self._tables

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Transaction]:
        """A copy that becomes the state when the block ends without an exception."""
        async with self._turn:
            tables = self._tables.copy()
            yield tables
            self._tables = tables
