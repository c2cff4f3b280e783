"""Topics created for connectors: `topic.creation.*` (KIP-158).

Here: reading and checking those settings.
Not here: creating (`runtime.topics`).

The first of `topic.creation.groups` counts whose `include` matches the whole name and whose `exclude` does not,
otherwise `default`. Missing partitions and replication factor come from `default`, then from the broker.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from busway import NewTopic
from busway_connect.connector import Config
from busway_connect.patterns import BadPattern, Pattern

_PREFIX: Final = "topic.creation."
_DEFAULT: Final = "default"
_NUMBERS: Final = ("partitions", "replication.factor")
_PATTERNS: Final = ("include", "exclude")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Settings of some topics.

    Attributes:
        include, exclude: of whole names; None for no name.
        partitions, replication_factor: -1 for the broker's default.
    """

    include: Pattern | None
    exclude: Pattern | None
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]

    def takes(self, topic: str) -> bool:
        if self.include is None or not self.include.fullmatch(topic):
            return False
        return self.exclude is None or not self.exclude.fullmatch(topic)


class Creation:
    def __init__(self, config: Config) -> None:
        self._groups: list[Group] = []
        if any(name.startswith(_PREFIX) for name in config):
            default = _settings(config, _DEFAULT)
            for group in _groups(config):
                self._groups.append(
                    _group(
                        {**{name: default[name] for name in _NUMBERS if name in default}, **_settings(config, group)}
                    )
                )
            self._groups.append(_group({"include": ".*", **default}))

    def topic(self, name: str) -> NewTopic | None:
        """Return the topic to create; None leaves it to the brokers."""
        for group in self._groups:
            if group.takes(name):
                return NewTopic(
                    name,
                    partitions=group.partitions,
                    replication_factor=group.replication_factor,
                    configs=dict(group.configs),
                )
        return None


def creation_problems(config: Config) -> dict[str, str]:
    wrong = {}
    groups = _groups(config)
    for group in (*groups, _DEFAULT):
        settings = _settings(config, group)
        for name in _NUMBERS:
            text = settings.get(name)
            if text is not None and not re.fullmatch(r"-1|[1-9][0-9]{0,8}", text.strip()):
                wrong[f"{_PREFIX}{group}.{name}"] = "Value must be -1 or at least 1"
        for name in _PATTERNS:
            try:
                _pattern(settings.get(name))
            except BadPattern as problem:
                wrong[f"{_PREFIX}{group}.{name}"] = str(problem)
    for name in config:
        group, dot, _ = name.removeprefix(_PREFIX).partition(".")
        if name.startswith(_PREFIX) and dot and group not in {*groups, _DEFAULT}:
            wrong[name] = f"The group {group} is not one of {_PREFIX}groups"
    return wrong


def _groups(config: Config) -> list[str]:
    return [group.strip() for group in config.get(f"{_PREFIX}groups", "").split(",") if group.strip()]


def _settings(config: Config, group: str) -> dict[str, str]:
    prefix = f"{_PREFIX}{group}."
    return {name.removeprefix(prefix): text for name, text in config.items() if name.startswith(prefix)}


def _pattern(text: str | None) -> Pattern | None:
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    return Pattern("|".join(parts)) if parts else None


def _group(settings: Mapping[str, str]) -> Group:
    return Group(
        include=_pattern(settings.get("include")),
        exclude=_pattern(settings.get("exclude")),
        partitions=int(settings.get("partitions", "-1")),
        replication_factor=int(settings.get("replication.factor", "-1")),
        configs={name: text for name, text in settings.items() if name not in {*_NUMBERS, *_PATTERNS}},
    )
