"""Compatibility levels and modes of subjects and the registry.

Here: reading, setting and inheriting them.
Not here: use (`service`, `registration`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from busway_registry.domain.compatibility.levels import Level, parse_level
from busway_registry.domain.errors import (
    RegistryError,
    no_subject_compatibility,
    no_subject_mode,
    not_permitted,
    subject_not_found,
)
from busway_registry.domain.modes import Mode, parse_mode
from busway_registry.domain.schemas import Json
from busway_registry.store.interface import GLOBAL, Part, Store, Transaction

_KNOWN: Final = ("compatibility", "normalize")
_NOT_SERVED: Final = (
    "alias",
    "aliasForDeks",
    "compatibilityGroup",
    "compatibilityPolicy",
    "defaultMetadata",
    "defaultRuleSet",
    "overrideMetadata",
    "overrideRuleSet",
    "validateFields",
    "validateNewSchemas",
    "validateRules",
)
SETTINGS: Final = (*_KNOWN, *_NOT_SERVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Effective settings of a subject: its own, then the registry's, then defaults."""

    mode: Mode
    config: Json

    @property
    def level(self) -> Level:
        return Level(self.config["compatibilityLevel"])

    @property
    def normalizes(self) -> bool:
        return bool(self.config.get("normalize"))


class Settings:
    def __init__(self, store: Store, default_level: Level = Level.BACKWARD, *, mutable_mode: bool = True) -> None:
        self._store = store
        self._default = default_level
        self._mutable_mode = mutable_mode

    async def rules(self, tx: Transaction, subject: str) -> "Rules":
        settings = await tx.settings(subject)
        config = {
            "compatibilityLevel": self._default.value,
            **settings.get(("config", GLOBAL), {}),
            **settings.get(("config", subject), {}),
        }
        everywhere = Mode(settings.get(("mode", GLOBAL), {}).get("mode", Mode.READWRITE))
        own = settings.get(("mode", subject))
        mode = everywhere if own is None or everywhere is Mode.READONLY_OVERRIDE else Mode(own["mode"])
        return Rules(mode=mode, config=config)

    async def mode(self, tx: Transaction, subject: str) -> Mode:
        return (await self.rules(tx, subject)).mode

    async def get_config(self, subject: str = GLOBAL, *, default_to_global: bool = False) -> Json:
        """Return a subject's own settings, or the effective ones; raises 40408, it has none."""
        async with self._store.read() as tx:
            if subject == GLOBAL or default_to_global:
                return (await self.rules(tx, subject)).config
            own = await tx.setting("config", subject)
            if own is None:
                raise no_subject_compatibility(subject)
            if "compatibilityLevel" not in own:
                return {"compatibilityLevel": (await self.rules(tx, subject)).level.value, **own}
            return own

    async def put_config(self, subject: str, body: Mapping[str, Any]) -> Json:
        """Change the fields in the body, null clears one; return the fields changed.

        Raises:
            RegistryError: 42203 no such level; 42205 read-only, or an unsupported setting.
        """
        unserved = [name for name in _NOT_SERVED if body.get(name) is not None]
        if unserved:
            raise not_permitted(f"The setting {unserved[0]} is not served; leave it out")
        change: dict[str, Any] = {}
        if "compatibility" in body:
            level = body["compatibility"]
            change["compatibilityLevel"] = None if level is None else parse_level(level).value
        if "normalize" in body:
            change["normalize"] = _truth(body["normalize"])
        async with self._store.write() as tx:
            if not (await self.mode(tx, subject)).writable:
                raise not_permitted(_read_only(subject))
            current = {**(await tx.setting("config", subject) or {}), **change}
            await tx.put_setting(
                "config", subject, {name: value for name, value in current.items() if value is not None}
            )
        echo = {**change, "compatibility": change.get("compatibilityLevel")}
        return {name: echo[name] for name in _KNOWN if echo.get(name) is not None}

    async def delete_config(self, subject: str = GLOBAL) -> Json:
        """Remove the settings; return the old ones. Raises 40401, the subject had none."""
        async with self._store.write() as tx:
            if not (await self.mode(tx, subject)).writable:
                raise not_permitted(_read_only(subject))
            own = await tx.setting("config", subject)
            if own is None and subject != GLOBAL:
                raise subject_not_found(subject)
            await tx.remove_setting("config", subject)
            return own or {"compatibilityLevel": self._default.value}

    async def get_mode(self, subject: str = GLOBAL, *, default_to_global: bool = False) -> Mode:
        """Return a subject's own mode, or the effective one; raises 40409, it has none."""
        async with self._store.read() as tx:
            if subject != GLOBAL and not default_to_global:
                own = await tx.setting("mode", subject)
                if own is None:
                    raise no_subject_mode(subject)
                return Mode(own["mode"])
            return await self.mode(tx, subject)

    async def put_mode(self, subject: str, text: object, *, force: bool = False) -> Mode | None:
        """Set the mode; None clears it.

        Raises:
            RegistryError: 42204 no such mode; 42205 modes are fixed, or IMPORT on a subject with live versions.
        """
        mode = None if text is None else parse_mode(text)
        self._check_mutable()
        async with self._store.write() as tx:
            if mode is None:
                await tx.remove_setting("mode", subject)
                return None
            if mode is Mode.IMPORT:
                await self._make_room(tx, subject, force=force)
            await tx.put_setting("mode", subject, {"mode": mode.value})
        return mode

    async def _make_room(self, tx: Transaction, subject: str, *, force: bool) -> None:
        versions = await (tx.versions(subject) if subject != GLOBAL else tx.every_version("", deleted=True))
        if any(not version.deleted for version in versions) and not force:
            raise not_permitted("Cannot import since found existing subjects; delete them first, or say force=true")
        for version in versions:
            if version.deleted:
                await tx.remove_version(version.subject, version.version)
                if not await tx.versions_of_schema(version.schema_id, part=Part(limit=1)):
                    await tx.remove_schema(version.schema_id)

    async def delete_mode(self, subject: str = GLOBAL) -> Mode:
        """Remove the mode; return the old one. Raises 40401, the subject had none."""
        self._check_mutable()
        async with self._store.write() as tx:
            own = await tx.setting("mode", subject)
            if own is None and subject != GLOBAL:
                raise subject_not_found(subject)
            await tx.remove_setting("mode", subject)
            return Mode(own["mode"]) if own is not None else Mode.READWRITE

    def _check_mutable(self) -> None:
        if not self._mutable_mode:
            raise not_permitted("Mode changes are not allowed: mode.mutability is false")


def _truth(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise RegistryError(400, "The field normalize is true or false")


def _read_only(subject: str) -> str:
    return f"Subject {subject} is in read-only mode" if subject else "The registry is in read-only mode"


def read_only(subject: str) -> RegistryError:
    return not_permitted(_read_only(subject))
