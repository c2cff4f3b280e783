"""Write docs/COMPATIBILITY.md from the docstrings of the handlers: `python tools/compatibility.py [--check]`.

What lives here: one table row for each API. What does not: any fact; those are in the handlers, the list of message definitions and the list of
judges (`tools.judges`).
"""

import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType

import busway_bus.handlers
from busway_bus.kernel.broker_configs import BROKER_CONFIGS
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS
from busway_protocol.apis import ApiKey
from busway_protocol.compile import REQUEST_ELEMENTS_MAX

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
OWN_DEFAULTS = (
    "group.consumer.migration.policy",
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


def handlers() -> list[ModuleType]:
    """The modules that serve an API, by key."""
    names = [one.name for one in pkgutil.iter_modules(busway_bus.handlers.__path__)]
    modules = [importlib.import_module(f"busway_bus.handlers.{name}") for name in names]
    return sorted((one for one in modules if hasattr(one, "API")), key=lambda one: int(one.API))


def page() -> str:
    """The whole text."""
    rows = []
    for module in handlers():
        text = " ".join(inspect.cleandoc(module.__doc__ or "").split())
        missing = re.search(r"\*Not supported\*:\s*(.*?)(?:\.\s|\.?$)", text)
        low, high = module.VERSIONS
        name = "".join(part.capitalize() for part in ApiKey(module.API).name.split("_"))
        rows.append(f"| {int(module.API)} | {name} | {low}-{high} | {_gap(missing)} |")
    bounds = (
        f"\n## Bounds that Kafka does not have\n\nA request names at most {REQUEST_ELEMENTS_MAX:,} things: topics, partitions, resources and members all "
        "count. One that names more ends its connection, with a line in the broker's log; a consumer of more than about 6,000 topics of one "
        "partition each is such a client. Memory for requests, answers and members is bounded in bytes, see `kernel/limits.py`.\n"
    )
    settings = (
        f"\n## Settings\n\n{len(BROKER_CONFIGS)} broker settings and {len(TOPIC_CONFIGS)} topic settings are taken, under Kafka's names but for "
        f"`durability` (broker: `log.durability`) and `busway.insecure`, with Kafka's defaults but for {_own_defaults()}. `node.id` and "
        "`process.roles` need not be given. An unknown one keeps the broker from starting, and so does one whose feature is not there; both "
        "are named.\n\n"
        "| topic setting | default |\n|---|---|\n"
    )
    lines = [f"| `{name}` | {_cell(key.default)} |" for name, key in sorted(TOPIC_CONFIGS.items())]
    return HEAD + "\n".join(rows) + "\n" + _judges() + bounds + settings + "\n".join(lines) + "\n"


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
