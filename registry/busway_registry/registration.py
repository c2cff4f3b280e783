"""Use cases that validate a schema: register, look up, check.

Here: reading the basis, validating against it between transactions, as that may take long, and writing if unchanged.
Not here: rules (`domain`), their execution (`validation`), other use cases (`service`).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from busway_registry.domain import errors
from busway_registry.domain.compatibility.check import Earlier
from busway_registry.domain.compatibility.levels import Level
from busway_registry.domain.inheritance import inheriting, numbered
from busway_registry.domain.modes import Mode
from busway_registry.domain.schemas import Artifact, SchemaRequest
from busway_registry.domain.subjects import LATEST, MAX_ID
from busway_registry.resolve import reference_texts, with_numbers
from busway_registry.settings import Rules, Settings, read_only
from busway_registry.store.interface import IdTaken, NoMoreIds, Registered, Store, StoredSchema, Transaction, Version
from busway_registry.validation.validator import SchemaValidator, ValidationRequest

_MOST_ATTEMPTS: Final = 20
"""Limit of attempts while other writers change the subject."""
_AT_ONCE: Final = 8
"""Earlier versions in memory for comparison: at most 8 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """The store's state that a validation is based on; valid while the store's is equal."""

    rules: Rules
    versions: tuple[Version, ...]
    request: SchemaRequest
    texts: tuple[str, ...]
    latest: Registered | None
    latest_texts: tuple[str, ...] = ()

    @property
    def live(self) -> list[Version]:
        return [version for version in self.versions if not version.deleted]


class Registrar:
    def __init__(
        self, store: Store, settings: Settings, judge: SchemaValidator, now_ms: Callable[[], int], max_schema_chars: int
    ) -> None:
        self._store = store
        self._settings = settings
        self._judge = judge
        self._now_ms = now_ms
        self._max_chars = max_schema_chars
        self._subject_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def register(
        self, subject: str, request: SchemaRequest, *, normalize: bool = False, force: bool = False
    ) -> Registered:
        """Return the subject's version with this schema, registering it if necessary.

        Raises:
            RegistryError: 409 incompatible; 42201 invalid; 42205 read-only, or an id where none may be given; 42209 too
                large; 50002 validation takes too long, or the subject keeps changing.
        """
        if len(request.text) > self._max_chars:
            raise errors.schema_too_large(len(request.text), self._max_chars)
        judging = self._judge.request()
        registered = await self._attempt(judging, subject, request, normalize=normalize, force=force)
        if registered is not None:
            return registered
        # Another writer was faster. Losers are serialised per subject, so that they do not starve one another.
        async with self._subject_locks.setdefault(subject, asyncio.Lock()):
            for _ in range(_MOST_ATTEMPTS):
                registered = await self._attempt(judging, subject, request, normalize=normalize, force=force)
                if registered is not None:
                    return registered
        raise errors.timed_out(f"Subject {subject} changes faster than the schema can be compared; try again")

    async def _attempt(
        self, judging: ValidationRequest, subject: str, request: SchemaRequest, *, normalize: bool, force: bool
    ) -> Registered | None:
        """Return the version; None if the subject changed during validation."""
        async with self._store.read() as tx:
            basis = await self._basis(tx, subject, request)
        mode = basis.rules.mode
        _check_writable(subject, mode, request)
        normalize = mode is not Mode.IMPORT and (normalize or basis.rules.normalizes)
        artifact = await judging.build(basis.request, basis.texts, normalize=normalize)
        if basis.latest is not None:
            if (registered := await self._there(basis, artifact)) is not None:
                return registered
            if mode is not Mode.IMPORT:
                as_sent, artifact = artifact, inheriting(artifact, basis.latest.schema.artifact)
                if artifact != as_sent and (registered := await self._there(basis, artifact)) is not None:
                    return registered
        if mode is not Mode.IMPORT:
            artifact = numbered(artifact, max((version.version for version in basis.versions), default=0) + 1)
        if mode is not Mode.IMPORT and not force:
            breaches = await self._compare(judging, artifact, basis, basis.live)
            if breaches is None:
                return None
            if breaches:
                raise errors.incompatible(subject, ", ".join(breaches))
        async with self._store.write() as tx:
            if await self._basis(tx, subject, request, basis) != basis:
                return None
            return await self._write(tx, subject, basis, artifact)

    async def _there(self, basis: _Basis, artifact: Artifact) -> Registered | None:
        """Return the version that holds it already. A fast path, as most clients register the latest at each start."""
        latest = basis.latest
        assert latest is not None
        if latest.schema.artifact == artifact:
            return _held(basis.request, latest.schema, [latest.version])
        if len(basis.live) == 1:
            return None
        async with self._store.read() as tx:
            return _held(basis.request, await tx.find_schema(artifact.fingerprint), basis.live)

    async def _write(self, tx: Transaction, subject: str, basis: _Basis, artifact: Artifact) -> Registered:
        request, versions = basis.request, basis.versions
        known = await tx.find_schema(artifact.fingerprint)
        if (registered := _held(request, known, versions)) is not None:
            return registered
        number = _next_version(request, versions, basis.rules.mode)
        stored = await _keep(tx, artifact, known, request.id)
        await _purge_replaced(tx, stored, versions)
        version = Version(
            subject=subject, version=number, schema_id=stored.id, deleted=False, timestamp_ms=self._now_ms()
        )
        await tx.add_version(version)
        return Registered(version=version, schema=stored)

    async def look_up(
        self, subject: str, request: SchemaRequest, *, normalize: bool = False, deleted: bool = False
    ) -> Registered:
        """Return the subject's version with this schema.

        Raises:
            RegistryError: 40401 no subject; 40403 no such schema in it; 42201 invalid; 50002 validation takes too long.
        """
        judging = self._judge.request()
        async with self._store.read() as tx:
            basis = await self._basis(tx, subject, request)
        artifact = await judging.build(basis.request, basis.texts, normalize=normalize or basis.rules.normalizes)
        async with self._store.read() as tx:
            versions = [version for version in await tx.versions(subject) if deleted or not version.deleted]
            if not versions:
                raise errors.subject_not_found(subject)
            wanted = [artifact]
            if (
                basis.latest is not None
                and (inherited := inheriting(artifact, basis.latest.schema.artifact)) != artifact
            ):
                wanted.append(inherited)
            for each in wanted:
                known = await tx.find_schema(each.fingerprint)
                for version in reversed(versions):
                    if known is not None and version.schema_id == known.id:
                        return Registered(version=version, schema=known)
            raise errors.schema_not_found()

    async def check(
        self, subject: str, request: SchemaRequest, version: int | None, *, normalize: bool = False
    ) -> list[str]:
        """Return the schema's breaches at the subject's level; empty if compatible.

        Args:
            subject: a missing one is compatible with everything.
            version: to compare with, `LATEST`, or None for all that the level names.

        Raises:
            RegistryError: 40402 no such version; 42201 invalid; 42209 too large; 50002 validation takes too long.
        """
        if len(request.text) > self._max_chars:
            raise errors.schema_too_large(len(request.text), self._max_chars)
        judging = self._judge.request()
        for _ in range(_MOST_ATTEMPTS):
            async with self._store.read() as tx:
                basis = await self._basis(tx, subject, request)
            live = basis.live
            if version == LATEST:
                live = live[-1:]
            elif version is not None:
                live = [candidate for candidate in live if candidate.version == version]
                if not live:
                    raise errors.version_not_found(version)
            artifact = await judging.build(basis.request, basis.texts, normalize=normalize or basis.rules.normalizes)
            messages = await self._compare(judging, artifact, basis, live)
            if messages is not None:
                return messages
        raise errors.timed_out(f"Subject {subject} changes faster than the schema can be compared; try again")

    async def _basis(
        self, tx: Transaction, subject: str, request: SchemaRequest, before: _Basis | None = None
    ) -> _Basis:
        """Read the basis; the latest schema is taken from `before` while the versions are equal."""
        rules = await self._settings.rules(tx, subject)
        versions = tuple(await tx.versions(subject))
        if request.references:
            request = await with_numbers(tx, request)
        texts = tuple(await reference_texts(tx, request.references))
        live = [version for version in versions if not version.deleted]
        latest: Registered | None = None
        latest_texts: tuple[str, ...] = ()
        if before is not None and before.versions == versions:
            latest, latest_texts = before.latest, before.latest_texts
        elif live:
            schema = await tx.schema(live[-1].schema_id)
            assert schema is not None, f"version {live[-1]} has no schema"
            latest = Registered(version=live[-1], schema=schema)
            latest_texts = tuple(await reference_texts(tx, schema.artifact.references))
        return _Basis(
            rules=rules, versions=versions, request=request, texts=texts, latest=latest, latest_texts=latest_texts
        )

    async def _compare(
        self, judging: ValidationRequest, artifact: Artifact, basis: _Basis, live: Sequence[Version]
    ) -> list[str] | None:
        """Return the breaches; None if a version to compare with was deleted meanwhile."""
        level = basis.rules.level
        wanted = live[::-1] if level.transitive else live[-1:]
        if level is Level.NONE:
            return []
        for start in range(0, len(wanted), _AT_ONCE):
            earlier = await self._earlier(wanted[start : start + _AT_ONCE], basis)
            if earlier is None:
                return None
            if messages := await judging.explain(artifact, basis.texts, earlier, level):
                return messages
        return []

    async def _earlier(self, versions: Sequence[Version], basis: _Basis) -> list[Earlier] | None:
        latest = basis.latest
        if latest is not None and list(versions) == [latest.version]:
            return [_as_earlier(latest.version, latest.schema, basis.latest_texts)]
        earlier = []
        async with self._store.read() as tx:
            for version in versions:
                schema = await tx.schema(version.schema_id)
                if schema is None:
                    return None
                earlier.append(_as_earlier(version, schema, await reference_texts(tx, schema.artifact.references)))
        return earlier


def _as_earlier(version: Version, schema: StoredSchema, texts: Sequence[str]) -> Earlier:
    return Earlier(version=version.version, artifact=schema.artifact, reference_texts=texts)


def _held(request: SchemaRequest, known: StoredSchema | None, versions: Sequence[Version]) -> Registered | None:
    """Return the live version with the schema, if the request's number fits."""
    if known is None:
        return None
    if request.id is not None and request.id != known.id:
        raise errors.id_mismatch(request.id)
    for version in versions:
        if (
            not version.deleted
            and version.schema_id == known.id
            and request.version in {None, 0, LATEST, version.version}
        ):
            return Registered(version=version, schema=known)
    return None


async def _keep(tx: Transaction, artifact: Artifact, known: StoredSchema | None, wanted: int | None) -> StoredSchema:
    if known is not None:
        return known
    try:
        return await tx.add_schema(artifact, wanted)
    except IdTaken:
        raise errors.not_permitted(f"Overwrite new schema with id {wanted} is not permitted.") from None
    except NoMoreIds:
        raise errors.not_permitted(f"The id {MAX_ID} has been given out; there are no more ids on the wire") from None


async def _purge_replaced(tx: Transaction, stored: StoredSchema, versions: Sequence[Version]) -> None:
    """Remove soft-deleted versions of a schema that is registered again, unless referenced."""
    for version in versions:
        if (
            version.deleted
            and version.schema_id == stored.id
            and not await tx.referenced_by(version.subject, version.version)
        ):
            await tx.remove_version(version.subject, version.version)


def _check_writable(subject: str, mode: Mode, request: SchemaRequest) -> None:
    if not mode.writable:
        raise read_only(subject)
    if mode is Mode.IMPORT and request.id is None:
        raise errors.not_permitted(f"Subject {subject} is in import mode; a schema needs its id")
    if mode is not Mode.IMPORT and request.id is not None:
        raise errors.not_permitted(f"Subject {subject} is not in import mode; leave the id out")


def _next_version(request: SchemaRequest, versions: Sequence[Version], mode: Mode) -> int:
    following = max((version.version for version in versions), default=0) + 1
    wanted = request.version
    if wanted in {None, 0, LATEST}:
        return following
    assert wanted is not None
    if mode is Mode.IMPORT:
        if any(version.version == wanted for version in versions):
            raise errors.not_permitted(f"Overwrite version {wanted} is not permitted.")
        return wanted
    if wanted != following:
        raise errors.invalid_schema(
            f"Version is not one more than previous version: {wanted} was given, {following} is next"
        )
    return wanted
