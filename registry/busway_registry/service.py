"""The registry's use cases: register, look up, check, read, delete.

Here: those that read and delete, each in one transaction of a `Store`.
Not here: those that validate (`registration`), HTTP (`http`), SQL (`store`), rules (`domain`).
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from busway_registry.domain import errors
from busway_registry.domain.schemas import SchemaRequest
from busway_registry.domain.subjects import LATEST
from busway_registry.registration import Registrar
from busway_registry.settings import Settings, read_only
from busway_registry.store.interface import (
    WHOLE,
    Deleted,
    Part,
    Registered,
    Store,
    StoredSchema,
    Transaction,
    Version,
)
from busway_registry.validation.validator import SchemaValidator

_AT_ONCE: Final = 8
"""Schemas of a list in memory during sending: at most 8 MB."""


class Registry:
    def __init__(
        self,
        store: Store,
        settings: Settings,
        judge: SchemaValidator,
        now_ms: Callable[[], int],
        max_schema_chars: int = 1_000_000,
    ) -> None:
        self._store = store
        self.settings = settings
        self._registrar = Registrar(store, settings, judge, now_ms, max_schema_chars)

    async def check_store(self) -> None:
        """Read the database once.

        Raises:
            StoreFailed: it cannot be read.
        """
        async with self._store.read() as transaction:
            await transaction.highest_id()

    async def version_counts(self) -> Mapping[tuple[str, bool], int]:
        """Return numbers of versions by schema type and whether soft-deleted; raises `StoreFailed`."""
        async with self._store.read() as transaction:
            return await transaction.version_counts()

    # Schemas

    async def register(
        self, subject: str, request: SchemaRequest, *, normalize: bool = False, force: bool = False
    ) -> Registered:
        return await self._registrar.register(subject, request, normalize=normalize, force=force)

    async def look_up(
        self, subject: str, request: SchemaRequest, *, normalize: bool = False, deleted: bool = False
    ) -> Registered:
        return await self._registrar.look_up(subject, request, normalize=normalize, deleted=deleted)

    async def check(
        self, subject: str, request: SchemaRequest, version: int | None, *, normalize: bool = False
    ) -> list[str]:
        return await self._registrar.check(subject, request, version, normalize=normalize)

    async def schema(self, schema_id: int) -> StoredSchema:
        """Return a schema by id; raises 40403, none."""
        async with self._store.read() as tx:
            schema = await tx.schema(schema_id)
            if schema is None:
                raise errors.schema_not_found(schema_id)
            return schema

    async def schemas_with_guid(self, guid: str) -> list[StoredSchema]:
        """Return schemas by GUID; currently at most one."""
        async with self._store.read() as tx:
            return await tx.schemas_with_guid(guid)

    async def highest_id(self) -> int:
        async with self._store.read() as tx:
            return await tx.highest_id()

    async def uses(
        self, schema_id: int, *, deleted: bool = False, subject: str | None = None, part: Part = WHOLE
    ) -> list[Version]:
        """Return a schema's versions, of all subjects or one; raises 40403, no such schema."""
        async with self._store.read() as tx:
            await self._check_there(tx, schema_id)
            return await tx.versions_of_schema(schema_id, deleted=deleted, subject=subject, part=part)

    async def subjects_of(self, schema_id: int, *, deleted: bool = False, part: Part = WHOLE) -> list[str]:
        """Return names of a schema's subjects; raises 40403, no such schema."""
        async with self._store.read() as tx:
            await self._check_there(tx, schema_id)
            return await tx.subjects_of_schema(schema_id, deleted=deleted, part=part)

    async def all_versions(
        self, prefix: str, *, deleted: bool, latest_only: bool, part: Part = WHOLE
    ) -> AsyncIterator[Registered]:
        """Yield a part of a prefix's versions, by subject and number. `_AT_ONCE` are in memory."""
        async with self._store.read() as tx:
            versions = await tx.every_version(prefix, deleted=deleted, latest_only=latest_only, part=part)
        return self._with_schemas(versions)

    async def _with_schemas(self, versions: Sequence[Version]) -> AsyncIterator[Registered]:
        for start in range(0, len(versions), _AT_ONCE):
            async with self._store.read() as tx:
                schemas = [
                    (version, await tx.schema(version.schema_id)) for version in versions[start : start + _AT_ONCE]
                ]
            for version, schema in schemas:
                if schema is not None:  # else deleted permanently meanwhile
                    yield Registered(version=version, schema=schema)

    # Subjects and versions

    async def subjects(self, prefix: str = "", deleted: Deleted = Deleted.LEFT_OUT, part: Part = WHOLE) -> list[str]:
        """Return names, sorted; by default without subjects that have only soft-deleted versions."""
        async with self._store.read() as tx:
            return await tx.subjects(prefix, deleted, part)

    async def versions(self, subject: str, deleted: Deleted = Deleted.LEFT_OUT, part: Part = WHOLE) -> list[int]:
        """Return version numbers, ascending; raises 40401, the subject has none of that kind."""
        async with self._store.read() as tx:
            numbers = await tx.version_numbers(subject, deleted, part)
            if not numbers and not (part.offset and await tx.version_numbers(subject, deleted, Part(limit=1))):
                raise errors.subject_not_found(subject)
            return numbers

    async def version(self, subject: str, number: int, *, deleted: bool = False) -> Registered:
        """Return a version, with `LATEST` the newest; raises 40401 no subject, 40402 no such version."""
        async with self._store.read() as tx:
            return await self._registered(tx, await self._version(tx, subject, number, deleted=deleted))

    async def latest_with_metadata(
        self, subject: str, properties: Mapping[str, str], *, deleted: bool = False
    ) -> Registered:
        """Return the newest version whose metadata has all these properties.

        Raises:
            RegistryError: 40401 no subject; 40403 no such version.
        """
        async with self._store.read() as tx:
            versions = [version for version in await tx.versions(subject) if deleted or not version.deleted]
            if not versions:
                raise errors.subject_not_found(subject)
            for version in reversed(versions):
                registered = await self._registered(tx, version)
                metadata = registered.schema.artifact.metadata
                if metadata is not None and properties.items() <= metadata.get("properties", {}).items():
                    return registered
            raise errors.schema_not_found()

    async def referenced_by(self, subject: str, number: int, *, deleted: bool = False, part: Part = WHOLE) -> list[int]:
        """Return ids of schemas that refer to a version; raises 40401 no subject, 40402 no such version."""
        async with self._store.read() as tx:
            version = await self._version(tx, subject, number, deleted=deleted)
            return await tx.referenced_by(subject, version.version, deleted=deleted, part=part)

    async def delete_version(self, subject: str, number: int, *, permanent: bool = False) -> int:
        """Delete a version softly, or a soft-deleted one permanently; return its number.

        Raises:
            RegistryError: 40401, 40402 not found; 40406 soft-deleted already; 40407 not soft-deleted first; 42205
                read-only; 42206 referenced.
        """
        async with self._store.write() as tx:
            await self._check_subject_writable(tx, subject)
            version = await self._version(tx, subject, number, deleted=permanent or number != LATEST)
            if permanent and not version.deleted:
                raise errors.version_not_soft_deleted(subject, version.version)
            if not permanent and version.deleted:
                raise errors.version_soft_deleted(subject, version.version)
            await self._check_unreferenced(tx, [version])
            await self._delete(tx, version, permanent=permanent)
            return version.version

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions softly, or permanently together with the subject's settings. Return their numbers.

        Raises:
            RegistryError: 40401 not found; 40404 soft-deleted already; 40405 not soft-deleted first; 42205 read-only;
                42206 referenced.
        """
        async with self._store.write() as tx:
            await self._check_subject_writable(tx, subject)
            versions = await tx.versions(subject)
            if not versions:
                raise errors.subject_not_found(subject)
            live = [version for version in versions if not version.deleted]
            if permanent and live:
                raise errors.subject_not_soft_deleted(subject)
            if not permanent and not live:
                raise errors.subject_soft_deleted(subject)
            going = versions if permanent else live
            await self._check_unreferenced(tx, going)
            for version in going:
                await self._delete(tx, version, permanent=permanent)
            if permanent:
                await tx.remove_setting("config", subject)
                await tx.remove_setting("mode", subject)
            return [version.version for version in going]

    # Shared steps

    async def _delete(self, tx: Transaction, version: Version, *, permanent: bool) -> None:
        if not permanent:
            await tx.mark_deleted(version.subject, version.version)
            return
        await tx.remove_version(version.subject, version.version)
        if not await tx.versions_of_schema(version.schema_id, part=Part(limit=1)):
            await tx.remove_schema(version.schema_id)

    async def _check_unreferenced(self, tx: Transaction, going: Sequence[Version]) -> None:
        leaving = {(version.subject, version.version) for version in going}
        for version in going:
            for schema_id in await tx.referenced_by(version.subject, version.version):
                uses = await tx.versions_of_schema(schema_id)
                if any(not use.deleted and (use.subject, use.version) not in leaving for use in uses):
                    raise errors.reference_exists(version.subject, version.version)

    async def _check_subject_writable(self, tx: Transaction, subject: str) -> None:
        if not (await self.settings.mode(tx, subject)).writable:
            raise read_only(subject)

    async def _check_there(self, tx: Transaction, schema_id: int) -> None:
        if await tx.schema(schema_id) is None:
            raise errors.schema_not_found()

    async def _version(self, tx: Transaction, subject: str, number: int, *, deleted: bool) -> Version:
        version = await tx.version(subject, None if number == LATEST else number, deleted=deleted)
        if version is not None:
            return version
        if await tx.version(subject, None, deleted=deleted) is None:
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(number)

    async def _registered(self, tx: Transaction, version: Version) -> Registered:
        schema = await tx.schema(version.schema_id)
        assert schema is not None, f"version {version} has no schema"
        return Registered(version=version, schema=schema)
