"""A setting as DescribeConfigs and CreateTopics show it: value, where it comes from, what stands behind it.

What lives here: the entries of a topic and of a broker, and changing a topic's. Sources are numbered as in KIP-226.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from busway_bus.handlers.context import NodeServices
from busway_bus.kernel.broker_configs import BROKER_CONFIGS
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigKey, render
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS
from busway_bus.metadata.image import TOPIC_RESOURCE, ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError

A = TypeVar("A")


class Source(IntEnum):
    """Where a value comes from."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting; `synonyms` are (name, value, source), strongest first."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    type: int
    doc: str
    synonyms: tuple[tuple[str, str | None, Source], ...]


def topic_entries(config: BrokerConfig, own: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a topic that has `own` of its own."""
    entries = []
    for key in TOPIC_CONFIGS.values():
        chain: list[tuple[str, str | None, Source]] = []
        if key.name in own:
            chain.append((key.name, own[key.name], Source.TOPIC))
        chain += [
            (synonym, render(config.given[synonym]), Source.STATIC_BROKER)
            for synonym in key.synonyms
            if synonym in config.given
        ]
        default = render(key.default)
        if key.synonyms:
            chain.append((key.synonyms[0], default, Source.DEFAULT))
        source = chain[0][2] if chain else Source.DEFAULT
        value = own.get(key.name, render(config.topic_default(key.name)))
        entries.append(_entry(key, value, source, tuple(chain)))
    return entries


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """Every setting of this node."""
    entries = []
    for key in BROKER_CONFIGS.values():
        chain: list[tuple[str, str | None, Source]] = []
        if key.name in config.given:
            chain.append((key.name, render(config.given[key.name]), Source.STATIC_BROKER))
        if key.default is not None:
            chain.append((key.name, render(key.default), Source.DEFAULT))
        source = chain[0][2] if chain else Source.DEFAULT
        entries.append(_entry(key, render(config.get(key.name)), source, tuple(chain)))
    return entries


def _entry(
    key: ConfigKey, value: str | None, source: Source, synonyms: tuple[tuple[str, str | None, Source], ...]
) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=None if key.sensitive else value,
        source=source,
        read_only=key.read_only,
        sensitive=key.sensitive,
        type=int(key.type),
        doc=key.doc,
        synonyms=synonyms,
    )


async def alter_each(
    resources: Sequence[Any],
    decide: Callable[[ClusterImage, Any], Decision[None]],
    answer: Callable[..., A],
    node: NodeServices,
    *,
    validate_only: bool,
) -> list[A]:
    """Change the settings of each resource by what `decide` says of it, or only check them; each outcome is an `answer`, whatever
    becomes of the others."""
    answers = []
    for resource in resources:
        code, text = ErrorCode.NONE, None
        try:
            await _alter(resource, decide, node, validate_only=validate_only)
        except KafkaError as problem:
            code, text = problem.code, problem.message
        answers.append(
            answer(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return answers


async def _alter(
    resource: Any, decide: Callable[[ClusterImage, Any], Decision[None]], node: NodeServices, *, validate_only: bool
) -> None:
    if resource.resource_type != TOPIC_RESOURCE:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "only settings of topics can be changed while the broker runs; broker settings are read at start",
        )
    if validate_only:
        decide(node.image, resource)
        return
    await node.metadata.run(lambda image: decide(image, resource))
