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
    "offsets.topic.replication.factor",
)
"""Broker settings whose default is not Kafka's."""
HEAD = """# What of Kafka is served

Generated from the handlers' docstrings by `python tools/compatibility.py`; a test fails when this page is stale. The versions are what
ApiVersions advertises, which are those of Apache Kafka 4.3.1 unless the notes say otherwise.

| key | API | versions | not supported |
|---|---|---|---|
"""
CONTROLLERS_HEAD = (
    "A controller that is no broker (`process.roles=controller`) answers on its own listeners:",
    "",
    "| key | API | versions | not supported |",
    "|---|---|---|---|",
)


def handlers() -> list[ModuleType]:
    """The modules that serve an API of which clients of a new cluster see, by key."""
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
        "Listeners named by `controller.listener.names` are for tools with `--bootstrap-controller`: "
        f"they answer {names}. Fetch of the metadata log and the other APIs between voters are not served there: the node is the only voter.",
    ]
    rows += [
        "",
        *CONTROLLERS_HEAD,
        *(_row(module) for module in sorted(CONTROLLERS, key=lambda handler: int(handler.API))),
    ]
    bounds = (
        f"\n## Bounds that Kafka does not have\n\nA request names at most {REQUEST_ELEMENTS_MAX:,} things: topics, partitions, resources and members all "
        "count. One that names more ends its connection, with a line in the broker's log; a consumer of more than about 6,000 topics of one "
        "partition each is such a client. Memory for requests, answers and members is bounded in bytes, see `kernel/limits.py`. A transaction has at "
        f"most {TRANSACTION_PARTITIONS_MAX:,} partitions (POLICY_VIOLATION). A node remembers {PRODUCERS_BYTES_MAX // PRODUCER_BYTES:,} producers, "
        "each counted for every partition that it writes to: with half of them those are forgotten that were idle for a quarter of an hour, and "
        "beyond all of them one that is not remembered is refused (POLICY_VIOLATION). Of what clients may make (transactional ids, members, offsets "
        "within open transactions) a host gets at most as much as it leaves free for others. Groups and their committed offsets have a bound; beyond it new ones are refused "
        f"(COORDINATOR_NOT_AVAILABLE), and those that are there move on. An answer that describes takes {ANSWER_BYTES_MAX >> 20} MiB at most, the rest "
        "is to be asked for again, and what is named twice in a request is described once. A marker that is too old for its producer is acknowledged "
        f"where no transaction of it is open. A compressed batch may become {INFLATION_FACTOR_MAX} times as large as it is, as max.message.bytes "
        f"is, or as {MESSAGE_BYTES_DEFAULT:,} bytes, whichever is most, and is refused beyond that (MESSAGE_TOO_LARGE); in lz4 it is one frame with "
        "independent blocks, the only ones that Java's clients read (INVALID_RECORD).\n"
    )
    orders = (
        "\n## Where another order of calls tells the difference\n\nTwo fuzzers (`tests/interop/fuzz`) make calls of transactions and of groups in "
        "any order, illegal ones too, and compare the error codes, generations and epochs of each answer, and at the end what is committed, "
        "stable, open and assigned, with Apache Kafka 4.3.1 and with a model. These differences remain, on purpose: a first member that is refused "
        "makes no group and ends no empty one; a member that was handed an id and joins with it as a static member is unknown, where Kafka fails "
        "(UNKNOWN_SERVER_ERROR); one that leaves before it has joined does not have the others join again; a group that migrates with one of its own "
        "members, or with one that subscribes by a pattern alone, is balanced again where a partition has no reader; a consumer "
        "group that becomes a classic one while members still move rebalances, and until then they keep what they have; InitProducerId with an epoch "
        "that is not the current one does not abort an open transaction; a batch with a producer id needs an epoch; a batch outside of transactions "
        "with a later epoch than the coordinator gave does not keep a transaction open for ever; a batch of a transaction that was refused leaves "
        "nothing behind that counts against later batches outside of transactions or of another version of Produce.\n"
    )
    settings = (
        f"\n## Settings\n\n{len(BROKER_CONFIGS)} broker settings and {len(TOPIC_CONFIGS)} topic settings are taken, under Kafka's names but for "
        f"`durability` (broker: `log.durability`), `busway.insecure` and `group.disconnect.grace.ms`, with Kafka's defaults but for {_own_defaults()}. `node.id` and "
        "`process.roles` need not be given. An unknown one keeps the broker from starting, and so does one whose feature is not there; both "
        "are named. `errors.deadletterqueue.*` are Kafka 4.4's (KIP-1191), which 4.3.1 does not have: those of topics and groups are taken in a "
        "cluster with `share.version` 2 alone, those of the broker at its start alone. What cannot be written there is never dropped, as Kafka "
        "does after five attempts; the three metrics of KIP-1191 are not there, for a broker shows none.\n\n"
        "| topic setting | default |\n|---|---|\n"
    )
    lines = [f"| `{name}` | {_cell(key.default)} |" for name, key in sorted(TOPIC_CONFIGS.items())]
    parts = (
        "\n".join(rows) + "\n",
        _features(),
        _judges(),
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
        "\n## Broker settings without effect\n\nThey are taken, so that a `server.properties` of Kafka's starts Busway. What Kafka's documentation "
        "promises of each holds all the same, or needs what is not there; a value that would promise more is refused by name.\n\n"
        "| why it may be ignored | settings |\n|---|---|\n"
    )
    return head + "".join(
        f"| {reason} | {', '.join(f'`{name}`' for name, *_ in rows)} |\n" for reason, rows in INERT.items()
    )


def _features() -> str:
    """Return the section on Kafka's features."""
    begun = levels_of_new_clusters()
    rows = {
        feature.name: f"{feature.lowest}-{feature.highest} | {begun.get(feature.name, 0)} | " for feature in FEATURES
    }
    rows |= {name: f"0 | 0 | {reason}" for name, reason in NOT_SERVED.items()}
    return (
        "\n## Features\n\nWhat is not served is not finalized, though Kafka 4.3.1 finalizes `eligible.leader.replicas.version` and "
        "`streams.version` at 1: a client that believed it would be refused later. A feature whose only level is 0 is left out of ApiVersions, as in "
        "Kafka, and another level is refused by name with the reason. So is `kafka-features upgrade --release-version`, which names "
        "`kraft.version` for each release of Kafka 4: name features one by one with `--feature`. Level 2 of `share.version` is Kafka 4.4's.\n\n"
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
