"""Checking a connector's settings, as in `PUT /connector-plugins/{class}/config/validate`.

Here: common settings, types, Kafka Connect's error texts.
Not here: a connector's own settings (`Connector`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from busway_connect.config import BadSetting
from busway_connect.connector import Config, ConfigInvalid, Connector, Setting, Source
from busway_connect.overrides import override_problems, security_problems
from busway_connect.patterns import BadPattern, Pattern, TooLong
from busway_connect.plugins import NoSuchPlugin, Plugins
from busway_connect.redaction import References, shown
from busway_connect.topic_creation import creation_problems
from busway_connect.transaction_boundary import BOUNDARIES, BOUNDARY, INTERVAL, boundary_of
from busway_connect.transforms.chain import chain
from busway_connect.unsupported_settings import CONVERTERS, unserved, unserved_of_converter

_SEE: Final = (
    "\nYou can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)
_COMMON: Final = "Common"
_ERRORS: Final = "Error Handling"
_TRANSFORMS: Final = "Transforms"
_PREDICATES: Final = "Predicates"


class BadConfig(ValueError):
    """Invalid settings of a connector; the text is Kafka Connect's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    setting: Setting
    group: str | None
    order: int


def _common(
    name: str, doc: str, default: str | None = None, kind: str = "STRING", importance: str = "MEDIUM"
) -> Setting:
    return Setting(name=name, doc=doc, default=default, type=kind, importance=importance)


_EVERY: Final[tuple[tuple[str, tuple[Setting, ...]], ...]] = (
    (
        _COMMON,
        (
            Setting(name="name", doc="Globally unique name to use for this connector.", required=True, importance="HIGH"),
            Setting(name="connector.class", doc="Name or alias of the class for this connector.", required=True, importance="HIGH"),
            _common("tasks.max", "Maximum number of tasks to use for this connector; one is used.", "1", "INT", "HIGH"),
            _common("tasks.max.enforce", "Whether more tasks than tasks.max are an error; there is one, so that this changes nothing.", "true", "BOOLEAN", "LOW"),
            _common("config.action.reload", "What to do when a provider's value expires: none does, so that this changes nothing.", "restart", "STRING", "LOW"),
            _common("key.converter", "Converter class for keys; the worker's where it is not set.", None, "CLASS", "LOW"),
            _common("value.converter", "Converter class for values; the worker's where it is not set.", None, "CLASS", "LOW"),
        ),
    ),
    (_TRANSFORMS, (_common("transforms", "Aliases for the transformations to be applied to records.", "", "LIST", "LOW"),)),
    (_PREDICATES, (_common("predicates", "Aliases for the predicates used by transformations.", "", "LIST", "LOW"),)),
    (
        _ERRORS,
        (
            _common("errors.retry.timeout", "Milliseconds in which what cannot be reached is tried again in place; -1 without end.", "0", "LONG"),
            _common("errors.retry.delay.max.ms", "The longest wait between two tries, in milliseconds.", "60000", "LONG"),
            _common("errors.tolerance", "none: a bad record stops the task; all: it is passed over.", "none"),
            _common("errors.log.enable", "Whether records that are passed over are logged.", "false", "BOOLEAN"),
            _common("errors.log.include.messages", "Whether that line names the record's topic, partition and offset.", "false", "BOOLEAN"),
            _common("errors.deadletterqueue.topic.name", "Where records go that are passed over; empty for nowhere.", ""),
            _common("errors.deadletterqueue.topic.replication.factor", "Of that topic where it is missing; -1 for the broker's default.", "-1", "SHORT"),
            _common("errors.deadletterqueue.context.headers.enable", "Whether they get headers that tell what happened.", "false", "BOOLEAN"),
        ),
    ),
)  # fmt: skip
_SOURCE: Final = (
    (
        "Exactly Once Support",
        (
            _common("exactly.once.support", "required refuses a source that cannot promise it, and a worker that is not enabled for it; requested takes it if it can.", "requested"),
            _common("transaction.boundary", "Where the transactions of a source end: poll, behind all that it hands over at a time; interval, when a time has passed; connector, where it says so itself.", "poll"),
            _common("transaction.boundary.interval.ms", "That time in milliseconds; the worker's offset.flush.interval.ms where it is not set.", None, "LONG", "LOW"),
        ),
    ),
)  # fmt: skip
_SINK: Final = (
    (
        _COMMON,
        (
            _common("topics", "List of topics to consume, separated by commas.", "", "LIST", "HIGH"),
            _common("topics.regex", "Regular expression giving topics to consume.", "", "STRING", "HIGH"),
        ),
    ),
)
_NUMBERS: Final = {"SHORT": 2**15, "INT": 2**31, "LONG": 2**63}
_CASELESS: Final = {"exactly.once.support": ("REQUIRED", "REQUESTED"), BOUNDARY: BOUNDARIES}
_LEAST: Final = {INTERVAL: 0, "tasks.max": 1, "errors.retry.timeout": -1, "errors.retry.delay.max.ms": 1}


_UNSUPPORTED: Final = "The connector does not support exactly-once semantics with the provided configuration."
_UNSAID: Final = (
    "The connector does not implement the API required for preflight validation of exactly-once source support. Please consult the"
    " documentation for the connector to determine whether it supports exactly-once semantics, and then consider reconfiguring the"
    ' connector to use the value "requested" for this property (which will disable this preflight check and allow the connector to be'
    " created)."
)
_NO_BOUNDARIES: Final = (
    "The connector does not support connector-defined transaction boundaries with the given configuration. Please reconfigure it to use"
    " a different transaction boundary definition."
)


def known_settings(connector: type[Connector]) -> list[_Known]:
    groups: list[tuple[str | None, tuple[Setting, ...]]] = [*_EVERY]
    groups += _SOURCE if issubclass(connector, Source) else _SINK
    groups.append((None, connector.settings))
    orders: dict[str, int] = {}
    known = []
    for group, settings in groups:
        for setting in settings:
            order = -1
            if group is not None:
                order = orders[group] = orders.get(group, 0) + 1
            known.append(_Known(setting=setting, group=group, order=order))
    return known


def problems(
    plugins: Plugins,
    connector: type[Connector],
    config: Config,
    given: Config | None = None,
    *,
    transactions: bool = False,
) -> dict[str, list[str]]:
    """Return errors by setting; empty if valid.

    Args:
        transactions: the worker runs sources in transactions.
        given: with references instead of values; texts show only these.
    """
    references = References(config if given is None else given, config)
    return {
        references.hidden(name): [references.redacted(name, text) for text in texts]
        for name, texts in _problems(plugins, connector, config, transactions=transactions).items()
    }


def _problems(
    plugins: Plugins, connector: type[Connector], config: Config, *, transactions: bool
) -> dict[str, list[str]]:
    problems: dict[str, list[str]] = {}
    for known in known_settings(connector):
        text = config.get(known.setting.name)
        wrong = _wrong(known.setting, text)
        if wrong:
            problems[known.setting.name] = wrong
    _check_plugins(plugins, config, problems)
    common = {known.setting.name for known in known_settings(connector) if known.group is not None}
    named = unserved(plugins, connector, config, common) | override_problems(
        config, source=issubclass(connector, Source)
    )
    named |= security_problems(config, alone=True)
    if issubclass(connector, Source):
        named |= creation_problems(config)
        _check_exactly_once(connector, config, problems, transactions=transactions)
    else:
        _check_topics(config, problems)
    for name, text in named.items():
        problems[name] = [f"Invalid value {shown(name, config[name])} for configuration {name}: {text}"]
    for name, text in connector.validate(config).items():
        of = f"Invalid value {shown(name, config[name])} for configuration {name}" if name in config else name
        problems.setdefault(name, [f"{of}: {text}"])
    return problems


def _check_exactly_once(
    connector: type[Source], config: Config, problems: dict[str, list[str]], *, transactions: bool
) -> None:
    """Check with the texts of Kafka Connect's `DistributedHerder`."""
    if config.get("exactly.once.support", "").lower() == "required":
        texts = [] if transactions else ["This worker does not have exactly-once source support enabled."]
        supported = connector.exactly_once_support(config)
        if supported is not True:
            texts.append(_UNSAID if supported is None else _UNSUPPORTED)
        if texts:
            problems["exactly.once.support"] = texts
    if boundary_of(config) == "CONNECTOR" and not connector.defines_boundaries(config):
        problems[BOUNDARY] = [_NO_BOUNDARIES]


def _wrong(setting: Setting, text: str | None) -> list[str]:
    name = setting.name
    if text is None:
        if setting.required:
            return [f'Missing required configuration "{name}" which has no default value.']
        return []
    if name == "name" and not text.strip():
        return [f"Invalid value {text} for configuration name: String may not be empty"]
    if name == "name" and any(ord(character) < 32 for character in text):
        return [f"Invalid value {text!r} for configuration name: String may not contain control sequences"]
    if setting.type in _NUMBERS:
        limit = _NUMBERS[setting.type]
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text.strip()) or not -limit <= int(text) < limit:
            return [f"Invalid value {text} for configuration {name}: Not a number of type {setting.type}"]
        if name in _LEAST and int(text) < _LEAST[name]:
            return [f"Invalid value {text} for configuration {name}: Value must be at least {_LEAST[name]}"]
    if setting.type == "BOOLEAN" and text.strip().lower() not in {"true", "false"}:
        return [f"Invalid value {text} for configuration {name}: Expected value to be either true or false"]
    if name == "errors.tolerance" and text not in {"none", "all"}:
        return [f"Invalid value {text} for configuration {name}: String must be one of: none, all"]
    if name in _CASELESS and text.upper() not in _CASELESS[name]:
        listed = ", ".join(_CASELESS[name])
        return [f"Invalid value {text} for configuration {name}: String must be one of (case insensitive): {listed}"]
    return []


def converter_problems(plugins: Plugins, config: Config) -> dict[str, list[str]]:
    """Return errors of `key.converter`, `value.converter` and their settings, of connectors or the worker."""
    problems: dict[str, list[str]] = {}
    for name in CONVERTERS:
        if name in config:
            try:
                kind = plugins.converter(config[name])
            except NoSuchPlugin as problem:
                problems[name] = [f"Invalid value {config[name]} for configuration {name}: {problem}"]
                continue
            for setting in kind.settings:
                wrong = _wrong(
                    replace(setting, name=f"{name}.{setting.name}"), config.get(f"{name}.{setting.name}") or None
                )
                if wrong:
                    problems[f"{name}.{setting.name}"] = wrong
    return problems


def check_worker(plugins: Plugins, converters: Config) -> None:
    """Check the worker's converters at start; raises `BadSetting` if invalid or unsupported."""
    texts = {name: wrong[0] for name, wrong in converter_problems(plugins, converters).items()}
    for name, text in converters.items():
        why = unserved_of_converter(plugins, converters, name, text)
        if why is not None:
            texts.setdefault(name, f"Invalid value {shown(name, text)} for configuration {name}: {why}")
    for text in texts.values():
        raise BadSetting(text)


def _check_plugins(plugins: Plugins, config: Config, problems: dict[str, list[str]]) -> None:
    problems |= converter_problems(plugins, config)
    try:
        chain(plugins, config)
    except ConfigInvalid as problem:
        problems.update({name: [text] for name, text in problem.errors.items()})


def _check_topics(config: Config, problems: dict[str, list[str]]) -> None:
    topics = [topic.strip() for topic in config.get("topics", "").split(",") if topic.strip()]
    pattern = config.get("topics.regex", "").strip()
    dead = config.get("errors.deadletterqueue.topic.name", "").strip()
    if topics and pattern:
        text = "topics and topics.regex are mutually exclusive options, but both are set."
        problems["topics"] = problems["topics.regex"] = [text]
    elif not topics and not pattern:
        problems["topics"] = problems["topics.regex"] = ["Must configure one of topics or topics.regex"]
    if pattern:
        try:
            compiled = Pattern(pattern)
            matches = bool(dead) and compiled.fullmatch(dead)
        except (BadPattern, TooLong) as problem:
            problems["topics.regex"] = [f"Invalid value {pattern} for configuration topics.regex: {problem}"]
            return
        if matches:
            problems["topics.regex"] = [
                f"The DLQ topic '{dead}' may not be matched by the regex for the topics ('topics.regex={pattern}') consumed by the connector"
            ]
    if dead and dead in topics:
        problems["topics"] = [
            f"The DLQ topic '{dead}' may not be included in the list of topics ('topics=[{', '.join(topics)}]') consumed by the connector"
        ]


def check(
    plugins: Plugins,
    connector: type[Connector],
    config: Config,
    given: Config | None = None,
    *,
    transactions: bool = False,
) -> None:
    texts = [
        text
        for wrong in problems(plugins, connector, config, given, transactions=transactions).values()
        for text in wrong
    ]
    if texts:
        listed = "".join(f"\n{text}" for text in texts)
        raise BadConfig(
            f"Connector configuration is invalid and contains the following {len(texts)} error(s):{listed}{_SEE}"
        )


def definition(known: _Known) -> dict[str, Any]:
    setting = known.setting
    return {
        "name": setting.name,
        "type": setting.type,
        "required": setting.required,
        "default_value": setting.default,
        "importance": setting.importance,
        "documentation": setting.doc,
        "group": known.group,
        "order_in_group": known.order,
        "width": "NONE" if known.group is None else "MEDIUM",
        "display_name": setting.name,
        "dependents": [],
    }


def verdict(
    plugins: Plugins,
    shown: str,
    connector: type[Connector],
    config: Config,
    resolved: Config,
    *,
    transactions: bool = False,
) -> dict[str, Any]:
    """Return the validate call's response: resolved settings' errors, given values."""
    wrong = problems(plugins, connector, resolved, config, transactions=transactions)
    known = known_settings(connector)
    names = {entry.setting.name for entry in known}
    groups: Mapping[str, None] = dict.fromkeys(entry.group for entry in known if entry.group is not None)
    configs = [
        {
            "definition": definition(entry),
            "value": _value(entry.setting.name, config.get(entry.setting.name, entry.setting.default), wrong),
        }
        for entry in known
    ]
    for name in wrong.keys() - names:
        setting = _Known(setting=Setting(name=name, doc="", required=True), group=_TRANSFORMS, order=0)
        configs.append({"definition": definition(setting), "value": _value(name, config.get(name), wrong)})
    return {
        "name": shown,
        "error_count": sum(len(texts) for texts in wrong.values()),
        "groups": list(groups),
        "configs": configs,
    }


def _value(name: str, value: str | None, wrong: Mapping[str, list[str]]) -> dict[str, Any]:
    value = None if value is None else shown(name, value)
    return {"name": name, "value": value, "recommended_values": [], "errors": wrong.get(name, []), "visible": True}
