"""Settings in DescribeConfigs and CreateTopics: value, source, synonyms.

Here: entries, and changes. Sources are numbered as in KIP-226, synonyms listed as by Kafka's `ConfigHelper`.
Not here: the keys (`kernel`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, TypeVar

from busway_bus.controller.configs import AlterConfigs, Update, check_request
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.controller_batches import request_each
from busway_bus.kernel.broker_configs import BROKER_CONFIGS, INTERNAL, SYNONYMS
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigKey, render
from busway_bus.kernel.dynamic_configs import DYNAMIC
from busway_bus.kernel.group_configs import GROUP_CONFIGS
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS
from busway_bus.metadata.features import DEAD_LETTER_CONFIGS, has_dead_letters
from busway_bus.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError

A = TypeVar("A")


class Source(IntEnum):
    TOPIC = 1
    DYNAMIC_BROKER = 2
    CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


_OLD_NODE_ID: Final = "broker.id"
_STATIC: Final = frozenset({"node.id"})
"""Settings without a default in Kafka, always shown as set."""
_NOT_SERVED: Final = {8: "broker loggers", 16: "client metrics"}
Synonym = tuple[str, str | None, Source]


def not_served(resource_type: int) -> KafkaError:
    kind = _NOT_SERVED.get(resource_type)
    text = f"settings of {kind} are not served" if kind else f"Unknown resource type {resource_type}"
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A setting; `synonyms` are (name, value, source), strongest first."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    type: int
    doc: str
    synonyms: tuple[Synonym, ...]


def topic_entries(
    config: BrokerConfig, own: Mapping[str, str], fixed: Mapping[str, str] = MappingProxyType({})
) -> list[ConfigEntry]:
    """List a topic's settings; `fixed` ones are read-only, and override `own`."""
    entries = []
    for key in TOPIC_CONFIGS.values():
        if key.default is None and key.name not in own:
            continue
        if key.name in fixed:
            always: Synonym = (key.synonyms[0], fixed[key.name], Source.DEFAULT)
            entries.append(replace(_entry(key, fixed[key.name], [always]), read_only=True))
            continue
        chain = _broker_chain(config, key.synonyms)
        if key.name in own:
            chain.insert(0, (key.name, own[key.name], Source.TOPIC))
        value = own.get(key.name, render(config.topic_default(key.name)))
        entries.append(_entry(key, value, chain))
    return entries


def group_entries(config: BrokerConfig, own: Mapping[str, str]) -> list[ConfigEntry]:
    entries = []
    for key in GROUP_CONFIGS.values():
        chain = (
            _broker_chain(config, key.synonyms) if key.synonyms else [(key.name, render(key.default), Source.DEFAULT)]
        )
        if key.name in own:
            chain.insert(0, (key.name, render(key.parse(own[key.name])), Source.GROUP))
        entries.append(_entry(key, chain[0][1], chain))
    return entries


def in_force(entries: Iterable[ConfigEntry], image: ClusterImage) -> list[ConfigEntry]:
    """Select the settings that the cluster's levels support."""
    shown = has_dead_letters(image.features)
    return [entry for entry in entries if shown or not entry.name.startswith(DEAD_LETTER_CONFIGS)]


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    entries = []
    for key in BROKER_CONFIGS.values():
        if key.name in INTERNAL:
            continue
        others = SYNONYMS.get(key.name, (key.name,))
        names = others[others.index(key.name) :]
        entries.append(_broker_entry(key, _shown(config, key.name), _broker_chain(config, names)))
    return entries


def cluster_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """List the cluster's defaults that are set."""
    return [
        _broker_entry(BROKER_CONFIGS[name], value, [(name, value, Source.CLUSTER)])
        for name, value in config.dynamic.defaults(config.dynamic.cluster).items()
    ]


def _broker_entry(key: ConfigKey, value: str | None, chain: Sequence[Synonym]) -> ConfigEntry:
    return replace(_entry(key, value, chain), read_only=key.name not in DYNAMIC)


def _broker_chain(config: BrokerConfig, names: Sequence[str]) -> list[Synonym]:
    """Return the broker's values of these names, strongest first.

    Empty if the first name has none, as in Kafka.
    """
    own, cluster = config.dynamic.own, config.dynamic.defaults(config.dynamic.cluster)
    chain: list[Synonym] = [(name, own[name], Source.DYNAMIC_BROKER) for name in names if name in own]
    chain += [(name, cluster[name], Source.CLUSTER) for name in names if name in cluster]
    for name in names:
        if name in config.properties:
            chain.append((name, render(config.properties[name]), Source.STATIC_BROKER))
        elif name in {*_STATIC, _OLD_NODE_ID}:
            chain.append((name, _shown(config, name), Source.STATIC_BROKER))
    defaults = [(name, render(BROKER_CONFIGS[name].default)) for name in names if name not in _STATIC]
    chain += [(name, default, Source.DEFAULT) for name, default in defaults if default is not None]
    while chain and chain[0][0] != names[0]:
        del chain[0]
    return chain


def _shown(config: BrokerConfig, name: str) -> str | None:
    """Return a broker's value; `broker.id` has that of `node.id`."""
    return render(config.get("node.id" if name == _OLD_NODE_ID else name))


def _entry(key: ConfigKey, value: str | None, chain: Sequence[Synonym]) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=None if key.sensitive else value,
        source=chain[0][2] if chain else Source.DEFAULT,
        read_only=key.read_only,
        sensitive=key.sensitive,
        type=int(key.type),
        doc=key.doc,
        synonyms=tuple(chain),
    )


async def alter_each(
    resources: Sequence[Any],
    updates: Callable[[Any], list[Update]],
    answer: Callable[..., A],
    context: RequestContext,
    *,
    incremental: bool,
    validate_only: bool,
) -> list[A]:
    """Change or check each resource's settings independently.

    Args:
        updates: returns a resource's changes.
        incremental: see `controller.configs.AlterConfigs`.
    """
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    problems: list[KafkaError | None] = [None] * len(resources)
    changed: dict[int, dict[int, tuple[str, tuple[Update, ...]]]] = {
        TOPIC_RESOURCE: {},
        GROUP_RESOURCE: {},
        BROKER_RESOURCE: {},
    }
    for index, resource in enumerate(resources):
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            changes = updates(resource)
            check_request(changes)
            if resource.resource_type in changed:
                changed[resource.resource_type][index] = (_name(resource, context), tuple(changes))
            else:
                raise not_served(resource.resource_type)
        except KafkaError as problem:
            problems[index] = problem

    for kind, named in changed.items():

        def command(chunk: tuple[tuple[str, tuple[Update, ...]], ...], kind: int = kind) -> AlterConfigs:
            return AlterConfigs(kind=kind, updates=chunk, incremental=incremental, validate_only=validate_only)

        replies = await request_each(context.node.controller, tuple(named.values()), command, context.for_controller)
        for index, reply in zip(named, replies, strict=True):
            problems[index] = reply
    return [
        answer(
            error_code=ErrorCode.NONE if problem is None else problem.code,
            error_message=None if problem is None else problem.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, problem in zip(resources, problems, strict=True)
    ]


def _name(resource: Any, context: RequestContext) -> str:
    """Return the name of stored settings; a broker's is its canonical id.

    INVALID_REQUEST for another broker than this one; at a controller, for one that is not registered.
    """
    name: str = resource.resource_name
    if resource.resource_type != BROKER_RESOURCE or not name:
        return name
    if context.on_cluster_controller and name.isdecimal() and int(name) in context.node.image.brokers:
        return str(int(name))
    check_broker(name, context.node.node_id, "Node id", "")
    return str(context.node.node_id)


def check_broker(name: str, node_id: int, what: str, alternative: str) -> None:
    """Refuse another broker's name with INVALID_REQUEST, in Kafka's words.

    `what`: the expected value.
    """
    try:
        broker_id = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {name}") from None
    if broker_id != node_id:
        text = f"Unexpected broker id, expected {node_id}{alternative}, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
