"""A connector's `transforms` and `predicates`: settings in, the transforms in their order out.

What lives here: reading and checking those settings. What does not: what each class does.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from busway_connect.connector import Config, ConfigInvalid
from busway_connect.plugins import Plugins
from busway_connect.transforms.interface import Transform
from busway_connect.transforms.predicates import Predicate, Under

log = logging.getLogger("busway.connect")
_OF_EVERY: Final = frozenset({"type", "predicate", "negate"})


def aliases(config: Config, kind: str) -> list[str]:
    """The names in `transforms` or `predicates`, in order."""
    return [one.strip() for one in config.get(kind, "").split(",") if one.strip()]


def under(config: Config, prefix: str) -> dict[str, str]:
    """The settings whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): text for name, text in config.items() if name.startswith(prefix)}


def chain(plugins: Plugins, config: Config, connector: str = "") -> list[Transform]:
    """The transforms. With a connector's name, settings that mean nothing to them are told in the log.

    Raises:
        ConfigInvalid: names each setting that cannot be.
    """
    wrong: dict[str, str] = {}
    predicates: dict[str, Predicate | None] = {}
    for alias in aliases(config, "predicates"):
        predicates[alias] = None
        prefix = f"predicates.{alias}."
        settings = under(config, prefix)
        try:
            made = predicates[alias] = plugins.predicate(_kind(prefix, settings, wrong))(settings)
            _tell(connector, prefix, settings, {one.name for one in made.settings})
        except ValueError as problem:
            wrong.setdefault(
                f"{prefix}type", f"Invalid value {settings.get('type')} for configuration {prefix}type: {problem}"
            )
    transforms: list[Transform] = []
    for alias in aliases(config, "transforms"):
        prefix = f"transforms.{alias}."
        settings = under(config, prefix)
        try:
            transform = plugins.transform(_kind(prefix, settings, wrong))(settings)
        except ValueError as problem:
            wrong.setdefault(
                f"{prefix}type", f"Invalid value {settings.get('type')} for configuration {prefix}type: {problem}"
            )
            continue
        _tell(connector, prefix, settings, {one.name for one in transform.settings})
        transforms.append(_conditional(transform, prefix, settings, predicates, wrong))
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
    return transform if predicate is None else Under(transform, predicate, negate=negate == "true")


def _tell(connector: str, prefix: str, settings: Iterable[str], known: set[str]) -> None:
    for name in settings:
        if connector and name not in known | _OF_EVERY:
            log.warning("connector %s: the setting %s%s means nothing here and is passed over", connector, prefix, name)
