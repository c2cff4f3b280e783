"""A connector's `transforms` and `predicates`: settings → transforms in order.

Here: reading and checking them.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from busway_connect.connector import Config, ConfigInvalid, Configurable
from busway_connect.redaction import shown
from busway_connect.transforms.interface import Predicate, Transform
from busway_connect.transforms.predicates import ConditionalTransform

ALIASES_MAX: Final = 50
"""Limit of transforms and of predicates, as each record passes through all."""
_OF_EVERY: Final = {"transforms": frozenset({"type", "predicate", "negate"}), "predicates": frozenset({"type"})}


class Classes(Protocol):
    def transform(self, name: str) -> type[Transform]:
        """Return the class; raises ValueError if there is none."""

    def predicate(self, name: str) -> type[Predicate]:
        """Return the class; raises ValueError if there is none."""


def aliases(config: Config, kind: str) -> list[str]:
    return [alias.strip() for alias in config.get(kind, "").split(",") if alias.strip()]


def under(config: Config, prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in config.items() if name.startswith(prefix)}


def chain(classes: Classes, config: Config) -> list[Transform]:
    """Return a connector's transforms, in order; raises `ConfigInvalid` with each invalid setting."""
    wrong: dict[str, str] = {}
    for kind in _OF_EVERY:
        if len(aliases(config, kind)) > ALIASES_MAX:
            raise ConfigInvalid({kind: f"Invalid value for configuration {kind}: {ALIASES_MAX} are the most"})
    predicates: dict[str, Predicate | None] = {}
    for alias in aliases(config, "predicates"):
        predicates[alias] = None
        prefix = f"predicates.{alias}."
        settings = under(config, prefix)
        try:
            made = predicates[alias] = classes.predicate(_kind(prefix, settings, wrong))(settings)
            _check_served("predicates", prefix, settings, made, wrong)
        except ValueError as problem:
            wrong.setdefault(
                f"{prefix}type", f"Invalid value {settings.get('type')} for configuration {prefix}type: {problem}"
            )
    transforms: list[Transform] = []
    for alias in aliases(config, "transforms"):
        prefix = f"transforms.{alias}."
        settings = under(config, prefix)
        try:
            transform = classes.transform(_kind(prefix, settings, wrong))(settings)
        except ValueError as problem:
            wrong.setdefault(
                f"{prefix}type", f"Invalid value {settings.get('type')} for configuration {prefix}type: {problem}"
            )
            continue
        _check_served("transforms", prefix, settings, transform, wrong)
        transforms.append(_conditional(transform, prefix, settings, predicates, wrong))
    _check_aliases(config, wrong)
    if wrong:
        raise ConfigInvalid(wrong)
    return transforms


def _kind(prefix: str, settings: Mapping[str, str], wrong: dict[str, str]) -> str:
    kind = settings.get("type")
    if not kind:
        wrong[f"{prefix}type"] = f'Missing required configuration "{prefix}type" which has no default value.'
        raise ValueError("is missing")
    return kind


def _conditional(
    transform: Transform,
    prefix: str,
    settings: Mapping[str, str],
    predicates: Mapping[str, Predicate | None],
    wrong: dict[str, str],
) -> Transform:
    alias, negate = settings.get("predicate", "").strip(), settings.get("negate", "false").strip().lower()
    if negate not in {"true", "false"}:
        wrong[f"{prefix}negate"] = (
            f"Invalid value {negate} for configuration {prefix}negate: Expected value to be either true or false"
        )
    if not alias:
        if "negate" in settings:
            wrong[f"{prefix}negate"] = f"There is no {prefix}predicate to be negated"
        return transform
    if alias not in predicates:
        wrong[f"{prefix}predicate"] = (
            f"Invalid value {alias} for configuration {prefix}predicate: it is not one of predicates"
        )
        return transform
    predicate = predicates[alias]
    return transform if predicate is None else ConditionalTransform(transform, predicate, negate=negate == "true")


def _check_served(
    kind: str, prefix: str, settings: Mapping[str, str], made: Configurable, wrong: dict[str, str]
) -> None:
    for name, text in settings.items():
        why = None if name in _OF_EVERY[kind] else made.unserved(name, text)
        if why is not None:
            wrong[f"{prefix}{name}"] = f"Invalid value {shown(name, text)} for configuration {prefix}{name}: {why}"


def _check_aliases(config: Config, wrong: dict[str, str]) -> None:
    """Refuse configured but unlisted transforms: one may hide data."""
    for kind in _OF_EVERY:
        prefixes = tuple(f"{kind}.{alias}." for alias in aliases(config, kind))
        for name in config:
            if name.startswith(f"{kind}.") and not name.startswith(prefixes):
                alias = name.removeprefix(f"{kind}.").partition(".")[0]
                wrong[name] = (
                    f"The setting {name} belongs to nothing: {alias} is not one of {kind}; add it there, or take this out"
                )
