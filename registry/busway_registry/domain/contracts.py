"""Metadata and rules of a schema.

Here: checking them, and one form for equal ones.
Not here: executing rules, which clients do.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from busway_registry.domain.errors import RegistryError, invalid_rule_set

_RULE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_KINDS: Final = ("TRANSFORM", "CONDITION")
_MIGRATION_MODES: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_DOMAIN_MODES: Final = ("WRITE", "READ", "WRITEREAD")
RULES_MAX: Final = 1_000
"""Limit of each list, as rules are processed on the event loop without a pause."""
_LISTS: Final = {
    "migrationRules": _MIGRATION_MODES,
    "domainRules": _DOMAIN_MODES,
    "encodingRules": _DOMAIN_MODES,
}


def metadata(value: Any) -> Mapping[str, Any] | None:
    """Check tags, properties and names of sensitive properties; raises 400. Drops empty and unknown parts."""
    if value is None:
        return None
    given = _object(value, "metadata")
    tags = _map(given.get("tags"), "metadata.tags", _names)
    made = {
        "tags": tags,
        "properties": _map(given.get("properties"), "metadata.properties", _text),
        "sensitive": _names(given.get("sensitive"), "metadata.sensitive"),
    }
    return {name: value for name, value in made.items() if value} or None


def rule_set(value: Any) -> Mapping[str, Any] | None:
    """Check migration, domain and encoding rules; fill in default kind and mode.

    Raises:
        RegistryError: 400 another shape; 42210 an invalid or repeated name, an unknown kind, a mode of another list, or
            more than `RULES_MAX` rules in a list.
    """
    if value is None:
        return None
    given = _object(value, "ruleSet")
    made: dict[str, Any] = {}
    for name, modes in _LISTS.items():
        listed = _list(given.get(name), f"ruleSet.{name}")
        if len(listed) > RULES_MAX:
            raise invalid_rule_set(f"there are {len(listed)} rules in {name}; at most {RULES_MAX} are taken")
        rules = [_rule(rule, f"ruleSet.{name}", modes) for rule in listed]
        seen: set[str] = set()
        for rule in rules:
            if rule["name"] in seen:
                raise invalid_rule_set(f"there are two rules named {rule['name']} in {name}")
            seen.add(rule["name"])
        made[name] = rules
    enable_at = given.get("enableAt")
    made["enableAt"] = None if enable_at is None else _text(enable_at, "ruleSet.enableAt")
    return {name: value for name, value in made.items() if value} or None


def _rule(value: Any, at: str, modes: Iterable[str]) -> dict[str, Any]:
    given = _object(value, at)
    words = ("name", "doc", "kind", "mode", "type", "expr", "onSuccess", "onFailure")
    made: dict[str, Any] = {word: _text(given[word], f"{at}.{word}") for word in words if given.get(word) is not None}
    name = made.setdefault("name", "")
    if not _RULE_NAME.match(name):
        raise invalid_rule_set(
            f"'{name}' is not a valid name of a rule; letters, digits, _ and - are allowed, no digit first"
        )
    if made.setdefault("kind", "TRANSFORM") not in _KINDS:
        raise invalid_rule_set(f"rule {name}: its kind is one of {', '.join(_KINDS)}")
    if made.setdefault("mode", "WRITEREAD") not in modes:
        raise invalid_rule_set(f"rule {name}: in {at} the mode is one of {', '.join(modes)}")
    if tags := _names(given.get("tags"), f"{at}.tags"):
        made["tags"] = tags
    if params := _map(given.get("params"), f"{at}.params", _text):
        made["params"] = params
    if given.get("disabled") is True:
        made["disabled"] = True
    return made


def _object(value: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RegistryError(400, f"The field {at} is a JSON object")
    return value


def _list(value: Any, at: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise RegistryError(400, f"The field {at} is a JSON array")
    return value


def _map(value: Any, at: str, of: Callable[[Any, str], Any]) -> dict[str, Any]:
    if value is None:
        return {}
    given = _object(value, at)
    return {name: of(value, f"{at}.{name}") for name, value in sorted(given.items())}


def _names(value: Any, at: str) -> list[str]:
    return sorted({_text(name, at) for name in _list(value, at)})


def _text(value: Any, at: str) -> str:
    """Return a string, converting numbers and booleans, like Confluent's parser."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise RegistryError(400, f"The field {at} is a string")
