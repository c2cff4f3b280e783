"""Configuration keys and the parsing of their values.

Here: `ConfigKey` and the parser, for types and textual forms of Kafka's `ConfigDef`.
Not here: the keys (`topic_configs`, `broker_configs`), the settings (`config`).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from typing import Any, Final, TypeAlias

ConfigValue: TypeAlias = "bool | int | float | str | list[str] | None"


INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
"""Largest INT and LONG, often in place of no bound."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,9})?")
"""Numbers as Java reads them.

Python also takes underscores, other scripts' digits, and nan, which no bound refuses.
"""


class ConfigError(ValueError):
    """An unusable value. The text names the key, the value and what is allowed.

    `text`: replaces name and problem, where clients expect Kafka's.
    """

    def __init__(self, name: str, problem: str, text: str | None = None) -> None:
        super().__init__(text or f"{name}: {problem}")
        self.name = name


class BadValue(ConfigError):
    """A value refused by its key, in the words of Kafka's `ConfigException`."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(name, reason, f"Invalid value {value} for configuration {name}: {reason}")


class ConfigType(IntEnum):
    """Types, as numbered by DescribeConfigs v3+ (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_RANGES: Final[Mapping[ConfigType, tuple[int, int]]] = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), 2**31 - 1),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One configuration key.

    `one_of` lists the allowed words (for LIST: of each element). `refuse` returns further errors. `synonyms` are broker
    keys of a topic key's default, strongest first. A key without a default is shown only if set.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] = ()
    refuse: Callable[[Any], str | None] | None = None
    synonyms: tuple[str, ...] = ()
    read_only: bool = True

    def parse(self, text: str) -> ConfigValue:
        """Parse a value. ConfigError: not of this key's type, or not allowed."""
        value = _parse(self.name, self.type, text.strip())
        if self.one_of and text.strip() and not all(item.strip() for item in text.split(",")):
            problem = "values must not be empty."
            raise ConfigError(self.name, problem, f"Configuration '{self.name}' {problem}")
        self._check(value)
        return value

    def _check(self, value: ConfigValue) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.at_least is not None and value < self.at_least:
                raise BadValue(self.name, value, f"Value must be at least {self.at_least}")
            if self.at_most is not None and value > self.at_most:
                raise BadValue(self.name, value, f"Value must be no more than {self.at_most}")
        if self.one_of:
            words = value if isinstance(value, list) else [value]
            for word in words:
                if word not in self.one_of:
                    raise BadValue(self.name, word, f"String must be one of: {', '.join(self.one_of)}")
        if self.refuse is not None and (reason := self.refuse(value)):
            shown = f"[{', '.join(value)}]" if isinstance(value, list) else value
            raise BadValue(self.name, shown, reason)

    @property
    def sensitive(self) -> bool:
        """Whether DescribeConfigs must return null."""
        return self.type is ConfigType.PASSWORD


def _parse(name: str, kind: ConfigType, text: str) -> ConfigValue:
    if kind is ConfigType.BOOLEAN:
        lowered = text.lower()
        if lowered not in {"true", "false"}:
            raise BadValue(name, text, "Expected value to be either true or false")
        return lowered == "true"
    if kind in _RANGES:
        low, high = _RANGES[kind]
        number = int(text) if _INTEGER.fullmatch(text) else high + 1
        if not low <= number <= high:
            raise BadValue(name, text, f"Not a number of type {kind.name}")
        return number
    if kind is ConfigType.DOUBLE:
        if not _FLOAT.fullmatch(text):
            raise BadValue(name, text, f"Not a number of type {kind.name}")
        return float(text)
    if kind is ConfigType.LIST:
        return [item.strip() for item in text.split(",") if item.strip()]
    return text


def render(value: ConfigValue) -> str | None:
    """Format a value as Kafka does.

    Booleans in lower case, lists joined by commas, powers of ten as in Java.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return str(value).replace("e+", "E")


def by_name(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    table: dict[str, ConfigKey] = {}
    for key in keys:
        assert key.name not in table, key.name
        table[key.name] = key
    return table


def closest(name: str, names: Iterable[str]) -> str | None:
    matches = get_close_matches(name, list(names), n=1, cutoff=0.75)
    return matches[0] if matches else None
