"""Write docs/COMPATIBILITY.md from the docstrings of the handlers: `python tools/compatibility.py [--check]`.

Here: one table row for each API.
Not here: any fact; those are in the handlers, the list of message definitions and the list of judges (`tools.judges`).
"""

import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType

import busway_bus.handlers
from busway_bus.handlers.for_controllers.registry import MODULES as CONTROLLERS
from busway_bus.handlers.registry import HANDLERS, ON_CONTROLLER_LISTENERS
from busway_bus.kernel.broker_configs import BROKER_CONFIGS
from busway_bus.kernel.inert_configs import INERT
from busway_bus.kernel.limits import ANSWER_BYTES_MAX, PRODUCER_BYTES, PRODUCERS_BYTES_MAX, TRANSACTION_PARTITIONS_MAX
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS
from busway_bus.metadata.features import FEATURES, NOT_SERVED, levels_of_new_clusters
from busway_protocol.apis import ApiKey
from busway_protocol.compile import REQUEST_ELEMENTS_MAX
from busway_protocol.records.compression import INFLATION_FACTOR_MAX, MESSAGE_BYTES_DEFAULT

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
OWN_DEFAULTS = (
    "listeners",
    "log.dir",
    "max.connections",
)
"""Broker settings whose default is not Kafka's."""
HEAD = """# Compatibility with Apache Kafka

Generated from the handlers' docstrings by `python tools/compatibility.py`; a test fails if this page is stale. The versions are those that
ApiVersions advertises. They equal those of Apache Kafka 4.3.1 except where a note names a difference.

| key | API | versions | not supported |
|---|---|---|---|
"""
CONTROLLERS_HEAD = (
    "A node that is only a controller (`process.roles=controller`), or one of several voters, serves on the listeners of its controller:",
    "",
    "| key | API | versions | not supported |",
    "|---|---|---|---|",
)

NODES = """
## Tools and brokers of Apache Kafka on three nodes

On a cluster of three, `kafka-topics`, `kafka-configs`, `kafka-metadata-quorum`, `kafka-cluster`, `kafka-leader-election` and `kafka-reassign-partitions`
print what they print on three nodes of Apache Kafka 4.3.1, while a node is away too (`tests/interop/test_three_nodes_beside_kafka.py`).
`kafka-dump-log` reads every segment, index and snapshot of each node, and decodes the records of groups, transactions and metadata;
`kafka-metadata-shell` reads the snapshots; `kafka-storage` describes directories that Busway formatted, and Busway starts in those that it formatted, with their levels
(`test_java_files_of_three_nodes.py`). A broker of Apache Kafka 4.3.1 may be a member of the cluster: [decision 23](decisions/0023-mixed-clusters.md).
"""


def handlers() -> list[ModuleType]:
    """Return the modules of the APIs that a new cluster advertises, by key."""
    names = [module.name for module in pkgutil.iter_modules(busway_bus.handlers.__path__)]
    modules = [importlib.import_module(f"busway_bus.handlers.{name}") for name in names]
    levels = levels_of_new_clusters()
    served = {handler.key for handler in HANDLERS.values() if not handler.feature or handler.feature in levels}
    return sorted(
        (module for module in modules if hasattr(module, "API") and module.API in served),
        key=lambda module: int(module.API),
    )


def _name(key: int) -> str:
    return "".join(part.capitalize() for part in ApiKey(key).name.split("_"))


def _row(module: ModuleType) -> str:
    """One API of a table."""
    text = " ".join(inspect.cleandoc(module.__doc__ or "").split())
    missing = re.search(r"\*Not supported\*:\s*(.*?)(?:\.\s|\.?$)", text)
    low, high = module.VERSIONS
    return f"| {int(module.API)} | {_name(module.API)} | {low}-{high} | {_gap(missing)} |"


def page() -> str:
    """The whole text."""
    rows = [_row(module) for module in handlers()]
    names = ", ".join(_name(key) for key in sorted(ON_CONTROLLER_LISTENERS))
    rows += [
        "",
        "On a node that is its only voter, listeners named by `controller.listener.names` are for tools with `--bootstrap-controller`: "
        f"they answer {names}. Fetch of the metadata log and the other APIs between voters are not served there.",
    ]
    rows += [
        "",
        *CONTROLLERS_HEAD,
        *(_row(module) for module in sorted(CONTROLLERS, key=lambda handler: int(handler.API))),
    ]
    bounds = "\n## Bounds that Kafka does not have\n\n" + _bulleted(
        f"A request names at most {REQUEST_ELEMENTS_MAX:,} topics, partitions, resources and members together. A request with more closes its "
        "connection, with a line in the broker's log. A consumer of more than about 6,000 topics with one partition each sends such requests.",
        "Memory for requests, responses and members is bounded in bytes, see `kernel/limits.py`.",
        f"A transaction has at most {TRANSACTION_PARTITIONS_MAX:,} partitions (POLICY_VIOLATION).",
        f"A node remembers {PRODUCERS_BYTES_MAX // PRODUCER_BYTES:,} producers, each counted for every partition that it writes to. Above half of "
        "that number it forgets producers that were idle for a quarter of an hour. At the full number it refuses unknown producers (POLICY_VIOLATION).",
        "One host may use at most as much as it leaves free for others: transactional ids, members, and offsets in open transactions.",
        "Groups and their committed offsets have a bound. Above it new ones are refused (COORDINATOR_NOT_AVAILABLE); existing ones continue.",
        f"A describe response has at most {ANSWER_BYTES_MAX >> 20} MiB; request the rest again. A name that is repeated in a request is described once.",
        "A marker with an epoch that is too old for its producer is acknowledged if the producer has no open transaction.",
        f"A compressed batch may decompress to {INFLATION_FACTOR_MAX} times the largest of its size, max.message.bytes and "
        f"{MESSAGE_BYTES_DEFAULT:,} bytes. A larger one is refused (MESSAGE_TOO_LARGE).",
        "lz4 data must be one frame with independent blocks, as Java's clients require (INVALID_RECORD).",
    )
    orders = (
        "\n## Differences under other orders of calls\n\nTwo fuzzers (`tests/interop/fuzz`) make calls of transactions and of groups in "
        "random orders, including illegal ones. They compare the error codes, generations and epochs of each response, and the final committed "
        "and stable offsets, open transactions and assignments, with Apache Kafka 4.3.1 and with a model. These differences are intended:\n\n"
    ) + _bulleted(
        "A first member that is refused creates no group and ends no empty one.",
        "A member that got an id and joins with it as a static member is unknown; Kafka fails (UNKNOWN_SERVER_ERROR).",
        "If a member leaves before it has joined, the others need not join again.",
        "A group that migrates with one of its own members, or with a member that subscribes only by a pattern, is rebalanced if a partition has no "
        "reader.",
        "A consumer group that becomes a classic group while members still move is rebalanced; until then they keep their assignments.",
        "InitProducerId with an epoch that is not the current one does not abort an open transaction.",
        "A batch with a producer id needs an epoch.",
        "A batch outside of transactions, with a later epoch than the coordinator's, does not keep a transaction open for ever.",
        "A refused batch of a transaction does not affect later batches outside of transactions or of another version of Produce.",
    )
    settings = (
        f"\n## Settings\n\n{len(BROKER_CONFIGS)} broker settings and {len(TOPIC_CONFIGS)} topic settings are supported. Their names are Kafka's "
        "except `durability` (broker: `log.durability`), `busway.insecure`, `group.disconnect.grace.ms` and `metrics.listener`. Their defaults are Kafka's except "
        f"{_own_defaults()}. `node.id` and `process.roles` are optional. A broker does not start with an unknown setting, or with a setting of a "
        "feature that is not served; the error names it. `errors.deadletterqueue.*` are settings of Kafka 4.4 (KIP-1191), which 4.3.1 does not have. "
        "Those of topics and groups need a cluster with `share.version` 2; those of the broker are read at its start only. A dead letter that cannot "
        "be written is never dropped; Kafka drops it after five attempts. The three metrics of KIP-1191 do not exist; "
        "docs/METRICS.md lists those that do.\n\n"
        "| topic setting | default |\n|---|---|\n"
    )
    lines = [f"| `{name}` | {_cell(key.default)} |" for name, key in sorted(TOPIC_CONFIGS.items())]
    parts = (
        "\n".join(rows) + "\n",
        _features(),
        _judges(),
        NODES,
        bounds,
        orders,
        settings,
        "\n".join(lines) + "\n",
        _inert(),
    )
    return HEAD + "".join(parts)


def _inert() -> str:
    """Return the section on broker settings without effect."""
    head = (
        "\n## Broker settings without effect\n\nThese settings are accepted, so that a `server.properties` of Kafka starts Busway. The documented "
        "effect of each holds without it, or concerns a part that Busway does not have. A value that promises more is refused by name.\n\n"
        "| reason | settings |\n|---|---|\n"
    )
    return head + "".join(
        f"| {reason} | {', '.join(f'`{name}`' for name, *_ in rows)} |\n" for reason, rows in INERT.items()
    )


def _bulleted(*points: str) -> str:
    return "".join(f"- {point}\n" for point in points)


def _features() -> str:
    """Return the section on Kafka's features."""
    begun = levels_of_new_clusters()
    rows = {
        feature.name: f"{feature.lowest}-{feature.highest} | {begun.get(feature.name, 0)} | " for feature in FEATURES
    }
    rows |= {name: f"0 | 0 | {reason}" for name, reason in NOT_SERVED.items()}
    return (
        "\n## Features\n\nA feature that is not served is not finalized: a client that relied on it would be refused later. Kafka 4.3.1 finalizes "
        "`streams.version` at 1. A feature whose only level is 0 is left out of ApiVersions, as in Kafka; "
        "another level is refused by name with the reason. `kafka-features upgrade --release-version` is refused too, because it names "
        "`kraft.version` for each release of Kafka 4. Name the features one by one with `--feature`. Level 2 of `share.version` is Kafka 4.4's.\n\n"
        "| feature | levels | new cluster | not supported |\n|---|---|---|---|\n"
    ) + "".join(f"| `{name}` | {row} |\n" for name, row in sorted(rows.items()))


def _judges() -> str:
    sys.path.insert(0, str(ROOT))  # this file is started by its path, too
    from tools.judges import table

    return table()


def _own_defaults() -> str:
    return ", ".join(f"`{name}` ({_cell(BROKER_CONFIGS[name].default)})" for name in OWN_DEFAULTS)


def _gap(missing: re.Match[str] | None) -> str:
    return "" if missing is None or missing[1] == "nothing is left out" else missing[1]


def _cell(value: object) -> str:
    return "none" if value is None else f"`{_shown(value)}`"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check only compare; 1 when it is stale."""
    text = page()
    if "--check" not in arguments:
        PAGE.write_text(text)
        return 0
    if not PAGE.exists() or PAGE.read_text() != text:
        sys.stderr.write("docs/COMPATIBILITY.md is stale: python tools/compatibility.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
