"""What the registry does: register, look up, check, delete.

What lives here: the use cases, each one transaction on a `Store`. What does not: HTTP (`http`), SQL (`store`), the rules themselves
(`domain`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from busway_registry.domain import errors
from busway_registry.domain.compatibility.breaches import TooMuchWork
from busway_registry.domain.compatibility.check import Earlier, explain
from busway_registry.domain.compatibility.levels import Level
from busway_registry.domain.modes import Mode
from busway_registry.domain.schemas import Artifact, SchemaRequest, build
from busway_registry.domain.subjects import LATEST, MAX_ID
from busway_registry.resolve import reference_texts, with_numbers
from busway_registry.settings import Settings, read_only
from busway_registry.store.interface import IdTaken, NoMoreIds, Store, StoredSchema, Transaction, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A version of a subject with its schema."""

    version: Version
    schema: StoredSchema


class Registry:
    """The registry's use cases.

    Args:
        store: where schemas are kept.
        settings: levels and modes.
        now_ms: the clock, milliseconds since 1970.
        max_schema_chars: how long a schema may be.
    """

    def __init__(
        self, store: Store, settings: Settings, now_ms: Callable[[], int], max_schema_chars: int = 1_000_000
    ) -> None:
        self._store = store
        self.settings = settings
        self._now_ms = now_ms
        self._max_chars = max_schema_chars

    # Register and look up

    async def register(
        self, subject: str, request: SchemaRequest, *, normalize: bool = False, force: bool = False
    ) -> Registered:
        """The version of the subject that holds this schema; a new one unless it is there.

        Raises:
            RegistryError: 409 incompatible; 42201 not valid; 42205 read-only, or an id where none may be given; 42209 too large.
        """
        if len(request.text) > self._max_chars:
            raise errors.schema_too_large(len(request.text), self._max_chars)
        async with self._store.write() as tx:
            mode = await self.settings.mode(tx, subject)
            _check_writable(subject, mode, request)
            normalize = mode is not Mode.IMPORT and (normalize or await self.settings.normalizes(tx, subject))
            artifact, texts = await _build(tx, request, normalize=normalize)
            known = await tx.find_schema(artifact.fingerprint)
            if known is not None and request.id is not None and request.id != known.id:
                raise errors.id_mismatch(request.id)
            versions = await tx.versions(subject)
            live = [one for one in versions if not one.deleted]
            for one in live:
                if (
                    known is not None
                    and one.schema_id == known.id
                    and request.version in {None, 0, LATEST, one.version}
                ):
                    return Registered(version=one, schema=known)
            if mode is not Mode.IMPORT and not force:
                level = await self.settings.level(tx, subject)
                found = _explain(artifact, texts, await self._earlier(tx, live), level)
                if found:
                    raise errors.incompatible(subject, ", ".join(found))
            number = _next_version(request, versions, mode)
            stored = await self._keep(tx, artifact, known, request.id)
            await self._purge_replaced(tx, stored, versions)
            version = Version(
                subject=subject, version=number, schema_id=stored.id, deleted=False, timestamp_ms=self._now_ms()
            )
            await tx.add_version(version)
            return Registered(version=version, schema=stored)

    async def look_up(
        self, subject: str, request: SchemaRequest, *, normalize: bool = False, deleted: bool = False
    ) -> Registered:
        """The version of the subject that holds this schema.

        Raises:
            RegistryError: 40401 no subject; 40403 no such schema in it; 42201 not valid.
        """
        async with self._store.read() as tx:
            normalize = normalize or await self.settings.normalizes(tx, subject)
            artifact, _ = await _build(tx, request, normalize=normalize)
            versions = await self._versions(tx, subject, deleted=deleted)
            known = await tx.find_schema(artifact.fingerprint)
            for one in reversed(versions):
                if known is not None and one.schema_id == known.id:
                    return Registered(version=one, schema=known)
            raise errors.schema_not_found()

    async def check(
        self, subject: str, request: SchemaRequest, version: int | None, *, normalize: bool = False
    ) -> list[str]:
        """What speaks against the schema at the subject's level; empty when it is compatible.

        Args:
            subject: whose versions it is compared with; one that does not exist is compatible with everything.
            request: the schema.
            version: the one version to compare with, `LATEST`, or None for all that the level names.
            normalize: write the schema in normal form first.

        Raises:
            RegistryError: 40402 no such version; 42201 not valid.
        """
        async with self._store.read() as tx:
            live = [one for one in await tx.versions(subject) if not one.deleted]
            if version == LATEST:
                live = live[-1:]
            elif version is not None:
                live = [one for one in live if one.version == version]
                if not live:
                    raise errors.version_not_found(version)
            normalize = normalize or await self.settings.normalizes(tx, subject)
            artifact, texts = await _build(tx, request, normalize=normalize)
            return _explain(artifact, texts, await self._earlier(tx, live), await self.settings.level(tx, subject))

    # Schemas

    async def schema(self, schema_id: int) -> StoredSchema:
        """The schema of that id.

        Raises:
            RegistryError: 40403; there is none.
        """
        async with self._store.read() as tx:
            found = await tx.schema(schema_id)
            if found is None:
                raise errors.schema_not_found(schema_id)
            return found

    async def schemas_with_guid(self, guid: str) -> list[StoredSchema]:
        """Schemas with that GUID; at most one for now."""
        async with self._store.read() as tx:
            return await tx.schemas_with_guid(guid)

    async def highest_id(self) -> int:
        """The largest id in use."""
        async with self._store.read() as tx:
            return await tx.highest_id()

    async def uses(self, schema_id: int, *, deleted: bool = False) -> list[Version]:
        """Who uses a schema.

        Raises:
            RegistryError: 40403; there is no such schema.
        """
        async with self._store.read() as tx:
            if await tx.schema(schema_id) is None:
                raise errors.schema_not_found()
            return [one for one in await tx.versions_of_schema(schema_id) if deleted or not one.deleted]

    async def all_versions(self, prefix: str, *, deleted: bool, latest_only: bool, part: slice) -> list[Registered]:
        """A part of the versions of the subjects with that prefix, by subject and number."""
        async with self._store.read() as tx:
            versions = [
                one for one in await tx.versions() if one.subject.startswith(prefix) and (deleted or not one.deleted)
            ]
            if latest_only:
                versions = list({one.subject: one for one in versions}.values())
            return [await self._registered(tx, one) for one in versions[part]]

    # Subjects and versions

    async def subjects(self, prefix: str = "", *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Names, sorted; without those that only have soft-deleted versions, unless they are asked for."""
        async with self._store.read() as tx:
            alive: dict[str, bool] = {}
            for one in await tx.versions():
                alive[one.subject] = alive.get(one.subject, False) or not one.deleted
        return sorted(
            name
            for name, live in alive.items()
            if name.startswith(prefix) and ((not live) if deleted_only else (live or deleted))
        )

    async def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        """Version numbers, ascending.

        Raises:
            RegistryError: 40401; the subject has none of that kind.
        """
        async with self._store.read() as tx:
            found = [
                one
                for one in await tx.versions(subject)
                if (one.deleted if deleted_only else (deleted or not one.deleted))
            ]
            if not found:
                raise errors.subject_not_found(subject)
            return [one.version for one in found]

    async def version(self, subject: str, number: int, *, deleted: bool = False) -> Registered:
        """A version, or with `LATEST` the newest.

        Raises:
            RegistryError: 40401 no subject; 40402 no such version.
        """
        async with self._store.read() as tx:
            return await self._registered(tx, await self._version(tx, subject, number, deleted=deleted))

    async def referenced_by(self, subject: str, number: int, *, deleted: bool = False) -> list[int]:
        """Ids of the schemas that refer to a version.

        Raises:
            RegistryError: 40401 no subject; 40402 no such version.
        """
        async with self._store.read() as tx:
            version = await self._version(tx, subject, number, deleted=deleted)
            found = await tx.referenced_by(subject, version.version)
            if deleted:
                return found
            return [one for one in found if any(not use.deleted for use in await tx.versions_of_schema(one))]

    async def delete_version(self, subject: str, number: int, *, permanent: bool = False) -> int:
        """Delete a version softly, or one that is so already for good; its number.

        Raises:
            RegistryError: 40401, 40402 not there; 40406 soft-deleted already; 40407 not soft-deleted first; 42205 read-only;
                42206 referenced.
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
        """Delete all versions softly, or for good; their numbers. For good, the subject's settings go too.

        Raises:
            RegistryError: 40401 not there; 40404 soft-deleted already; 40405 not soft-deleted first; 42205 read-only;
                42206 referenced.
        """
        async with self._store.write() as tx:
            await self._check_subject_writable(tx, subject)
            versions = await tx.versions(subject)
            if not versions:
                raise errors.subject_not_found(subject)
            live = [one for one in versions if not one.deleted]
            if permanent and live:
                raise errors.subject_not_soft_deleted(subject)
            if not permanent and not live:
                raise errors.subject_soft_deleted(subject)
            going = versions if permanent else live
            await self._check_unreferenced(tx, going)
            for one in going:
                await self._delete(tx, one, permanent=permanent)
            if permanent:
                await tx.remove_setting("config", subject)
                await tx.remove_setting("mode", subject)
            return [one.version for one in going]

    # Parts of the above

    async def _earlier(self, tx: Transaction, versions: Sequence[Version]) -> list[Earlier]:
        found = []
        for one in reversed(versions):
            artifact = (await self._registered(tx, one)).schema.artifact
            texts = await reference_texts(tx, artifact.references)
            found.append(Earlier(version=one.version, artifact=artifact, reference_texts=texts))
        return found

    async def _keep(
        self, tx: Transaction, artifact: Artifact, known: StoredSchema | None, wanted: int | None
    ) -> StoredSchema:
        if known is not None:
            return known
        try:
            return await tx.add_schema(artifact, wanted)
        except IdTaken:
            raise errors.not_permitted(f"Overwrite new schema with id {wanted} is not permitted.") from None
        except NoMoreIds:
            raise errors.not_permitted(
                f"The id {MAX_ID} has been given out; there are no more ids on the wire"
            ) from None

    async def _purge_replaced(self, tx: Transaction, stored: StoredSchema, versions: Sequence[Version]) -> None:
        """A soft-deleted version that held the schema goes for good when the schema comes back, unless it is referred to."""
        for one in versions:
            if one.deleted and one.schema_id == stored.id and not await tx.referenced_by(one.subject, one.version):
                await tx.remove_version(one.subject, one.version)

    async def _delete(self, tx: Transaction, version: Version, *, permanent: bool) -> None:
        if not permanent:
            await tx.mark_deleted(version.subject, version.version)
            return
        await tx.remove_version(version.subject, version.version)
        if not await tx.versions_of_schema(version.schema_id):
            await tx.remove_schema(version.schema_id)

    async def _check_unreferenced(self, tx: Transaction, going: Sequence[Version]) -> None:
        leaving = {(one.subject, one.version) for one in going}
        for version in going:
            for schema_id in await tx.referenced_by(version.subject, version.version):
                uses = await tx.versions_of_schema(schema_id)
                if any(not use.deleted and (use.subject, use.version) not in leaving for use in uses):
                    raise errors.reference_exists(version.subject, version.version)

    async def _check_subject_writable(self, tx: Transaction, subject: str) -> None:
        if not (await self.settings.mode(tx, subject)).writable:
            raise read_only(subject)

    async def _versions(self, tx: Transaction, subject: str, *, deleted: bool) -> list[Version]:
        found = [one for one in await tx.versions(subject) if deleted or not one.deleted]
        if not found:
            raise errors.subject_not_found(subject)
        return found

    async def _version(self, tx: Transaction, subject: str, number: int, *, deleted: bool) -> Version:
        versions = await self._versions(tx, subject, deleted=deleted)
        if number == LATEST:
            return versions[-1]
        for one in versions:
            if one.version == number:
                return one
        raise errors.version_not_found(number)

    async def _registered(self, tx: Transaction, version: Version) -> Registered:
        schema = await tx.schema(version.schema_id)
        assert schema is not None, f"version {version} has no schema"
        return Registered(version=version, schema=schema)


async def _build(tx: Transaction, request: SchemaRequest, *, normalize: bool) -> tuple[Artifact, list[str]]:
    """The schema of a request, and the texts that it refers to."""
    request = await with_numbers(tx, request)
    texts = await reference_texts(tx, request.references)
    return build(request, texts, normalize=normalize), texts


def _explain(artifact: Artifact, texts: Sequence[str], earlier: Sequence[Earlier], level: Level) -> list[str]:
    try:
        return explain(artifact, texts, earlier, level)
    except TooMuchWork as problem:
        raise errors.invalid_schema(str(problem)) from None


def _check_writable(subject: str, mode: Mode, request: SchemaRequest) -> None:
    if not mode.writable:
        raise read_only(subject)
    if mode is Mode.IMPORT and request.id is None:
        raise errors.not_permitted(f"Subject {subject} is in import mode; a schema needs its id")
    if mode is not Mode.IMPORT and request.id is not None:
        raise errors.not_permitted(f"Subject {subject} is not in import mode; leave the id out")


def _next_version(request: SchemaRequest, versions: Sequence[Version], mode: Mode) -> int:
    following = max((one.version for one in versions), default=0) + 1
    wanted = request.version
    if wanted in {None, 0, LATEST}:
        return following
    assert wanted is not None
    if mode is Mode.IMPORT:
        if any(one.version == wanted for one in versions):
            raise errors.not_permitted(f"Overwrite version {wanted} is not permitted.")
        return wanted
    if wanted != following:
        raise errors.invalid_schema(
            f"Version is not one more than previous version: {wanted} was given, {following} is next"
        )
    return wanted
