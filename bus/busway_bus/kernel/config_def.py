"""What a configuration key is, and how its text becomes a value.

What lives here: `ConfigKey` and the parser for Kafka's config types. What does not: the keys themselves
(`topic_configs`, `broker_configs`) and the settings object (`config`). Types and their textual forms are those of
Kafka's `ConfigDef`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from typing import Final, TypeAlias

ConfigValue: TypeAlias = "bool | int | float | str | list[str] | None"


class ConfigError(ValueError):
    """A configuration value that cannot be used. The text names the key, the value and what is allowed."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name


class ConfigType(IntEnum):
    """Types with the numbers that DescribeConfigs v3+ carries (KIP-569)."""

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

    `at_least` and `at_most` bound numbers; `one_of` lists the allowed words (for LIST: of each element). `synonyms` are
    the broker keys that give a topic key its default, strongest first.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    read_only: bool = True

    def parse(self, text: str) -> ConfigValue:
        """The value that `text` stands for.

        Raises:
            ConfigError: it is not of this key's type, or not allowed.
        """
        value = _parse(self.name, self.type, text.strip())
        self._check(value)
        return value

    def _check(self, value: ConfigValue) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.at_least is not None and value < self.at_least:
                raise ConfigError(self.name, f"{value} is too small, the least allowed is {self.at_least}")
            if self.at_most is not None and value > self.at_most:
                raise ConfigError(self.name, f"{value} is too large, the most allowed is {self.at_most}")
        if self.one_of:
            words = value if isinstance(value, list) else [value]
            for word in words:
                if word not in self.one_of:
                    raise ConfigError(self.name, f"{word!r} is not one of {', '.join(self.one_of)}")

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown (DescribeConfigs answers null)."""
        return self.type is ConfigType.PASSWORD


def _parse(name: str, kind: ConfigType, text: str) -> ConfigValue:
    if kind is ConfigType.BOOLEAN:
        lowered = text.lower()
        if lowered not in {"true", "false"}:
            raise ConfigError(name, f"{text!r} is not a boolean, write true or false")
        return lowered == "true"
    if kind in _RANGES:
        low, high = _RANGES[kind]
        try:
            number = int(text)
        except ValueError:
            raise ConfigError(name, f"{text!r} is not a whole number") from None
        if not low <= number <= high:
            raise ConfigError(name, f"{text} does not fit a {kind.name.lower()} ({low} to {high})")
        return number
    if kind is ConfigType.DOUBLE:
        try:
            return float(text)
        except ValueError:
            raise ConfigError(name, f"{text!r} is not a number") from None
    if kind is ConfigType.LIST:
        return [item.strip() for item in text.split(",") if item.strip()]
    return text


def render(value: ConfigValue) -> str | None:
    """`value` as Kafka prints it: booleans in lower case, lists joined by commas, null as None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def by_name(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    """The keys under their names; a name given twice is our own mistake."""
    table: dict[str, ConfigKey] = {}
    for key in keys:
        assert key.name not in table, key.name
        table[key.name] = key
    return table


def closest(name: str, names: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be, or None."""
    found = get_close_matches(name, list(names), n=1, cutoff=0.75)
    return found[0] if found else None
