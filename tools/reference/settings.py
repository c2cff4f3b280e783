"""Settings of the broker, of topics and of groups, from their definitions."""

from collections.abc import Mapping
from typing import Any, Final

from busway_bus.kernel.broker_configs import SERVED_CONFIGS
from busway_bus.kernel.config_def import ConfigKey, render
from busway_bus.kernel.dynamic_configs import DYNAMIC
from busway_bus.kernel.group_configs import GROUP_CONFIGS
from busway_bus.kernel.inert_configs import REFUSED_PREFIXES
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS
from tools.reference.tables import MADE, code, table

HEAD: Final = ("setting", "type", "default", "values", "meaning")


def _row(key: ConfigKey) -> tuple[str, ...]:
    return (
        code(key.name),
        key.type.name.lower(),
        "" if key.default is None else code(render(key.default) or '""'),
        _values(key),
        " ".join(key.doc.split()),
    )


def _values(key: ConfigKey) -> str:
    if key.one_of:
        return ", ".join(code(word) for word in key.one_of)
    bounds = [f"≥ {_number(key.at_least)}" if key.at_least is not None else ""]
    bounds += [f"≤ {_number(key.at_most)}" if key.at_most is not None else ""]
    return ", ".join(filter(None, bounds))


def _number(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def broker() -> str:
    """Return the page of broker settings."""
    derived = {synonym for key in TOPIC_CONFIGS.values() for synonym in key.synonyms}
    own = {name: key for name, key in SERVED_CONFIGS.items() if name not in derived}
    parts = (
        "# Broker settings",
        f"{MADE} Names, types and defaults are those of Apache Kafka 4.3.1, except where "
        "[Compatibility](../COMPATIBILITY.md#settings) names a difference. Put them into a file (`busway broker --config server.properties`), or give single "
        "ones with `--override name=value` (`busway up` has it too). A setting marked with \\* can be changed while the broker runs "
        "(`kafka-configs`, or `Admin.alter_configs` with `kind=BROKER`).",
        "Settings of Kafka that are accepted and have no effect are listed, with the reasons, in "
        "[Compatibility](../COMPATIBILITY.md#broker-settings-without-effect).",
        "## The broker's own",
        _table(own),
        "## Defaults of topics",
        "Each is the default of the topic setting that it names; see [Topic settings](topic-settings.md). Where there are several units, the "
        "shortest that is set counts.",
        _table({name: SERVED_CONFIGS[name] for name in sorted(derived)}),
        "## Refused",
        "A broker does not start with a setting that begins with one of these, because ignoring it would mislead.",
        table(
            ("begins with", "reason"), ((code(prefix), reason) for prefix, reason in sorted(REFUSED_PREFIXES.items()))
        ),
    )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _table(keys: Mapping[str, ConfigKey]) -> str:
    rows = ((_row(key), name in DYNAMIC) for name, key in sorted(keys.items()))
    return table(HEAD, ((f"{row[0]} \\*" if dynamic else row[0], *row[1:]) for row, dynamic in rows))


def topics() -> str:
    """Return the page of topic settings."""
    rows = [(*_row(key), ", ".join(code(name) for name in key.synonyms)) for _, key in sorted(TOPIC_CONFIGS.items())]
    return (
        f"# Topic settings\n\n{MADE} Names and defaults are those of Apache Kafka 4.3.1, beside `durability`. Give them when a topic is created "
        "(`busway topics create NAME --config name=value`, `App.topic(configs=…)`) or later (`busway topics alter NAME --config name=value`). "
        "The default of each is the broker setting in the last column.\n\n"
    ) + table((*HEAD, "broker setting"), rows)


def groups() -> str:
    """Return the page of group settings."""
    return (
        f"# Group settings\n\n{MADE} They belong to one group and override the broker's (`kafka-configs --entity-type groups --entity-name NAME "
        "--alter --add-config name=value`). Groups of the classic protocol have none.\n\n"
    ) + table(HEAD, (_row(key) for _, key in sorted(GROUP_CONFIGS.items())))
