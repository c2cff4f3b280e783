"""Pages of the public API: which names are on which page; the docstrings are added when the site is built (mkdocstrings)."""

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any, Final, NamedTuple

import busway_spark
from busway import Extension
from tools.reference.tables import MADE, code, first_sentence, sentence, table

ROOT: Final = Path(__file__).resolve().parents[2]


class Group(NamedTuple):
    """A page: its title, and the names of each package."""

    title: str
    names: dict[str, tuple[str, ...]]


GROUPS: Final[dict[str, Group]] = {
    "app": Group(
        "App and handlers",
        {
            "busway": (
                "App", "Topic", "ConsumerRecord", "Context", "Depends", "Retry", "Exponential", "Batch", "Reject", "TransactionalInbox",
                "Extension", "Handling", "RunningService",
            )
        },
    ),
    "tables": Group("Tables", {"busway": ("Table", "GlobalTable", "BadRow", "NotHere")}),
    "clients": Group(
        "Clients",
        {
            "busway": (
                "Producer", "Consumer", "ShareConsumer", "Admin", "NewTopic", "RebalanceListener", "read_to_end", "read_batches", "Record",
                "RecordMetadata", "TopicPartition", "OffsetAndMetadata", "OffsetAndTimestamp", "GroupMetadata", "SecurityOptions",
            )
        },
    ),
    "schemas": Group(
        "Schemas",
        {
            "busway": (
                "RegistryClient", "RegistrySecurity", "AvroCodec", "AvroType", "Alias", "Float32", "Int32", "Precision", "CannotInfer", "Undecodable",
                "Unencodable", "RegistryRefused", "RegistryUnreachable",
            )
        },
    ),
    "dead-letters": Group(
        "Dead letters",
        {"busway": ("DeadLetters", "DeadLetter", "DeadLetterSelection", "DeadLetterSummary", "Replay", "NotDeadLetters", "TooManyGaps")},
    ),
    "errors": Group(
        "Errors",
        {
            "busway": (
                "BuswayError", "AcknowledgementFailed", "AuthenticationFailed", "BadDeclaration", "BrokerError", "CommitFailed", "ConnectionFailed",
                "DamagedData", "DeliveryFailed", "ExtensionFailed", "HandlerFailed", "HandlerTimedOut", "InvalidTransactionState", "MessageTooLarge",
                "NotRunning", "OffsetReset", "ProducerFenced", "RequestTimedOut", "TopicMissing", "TransactionAbortable", "TransactionFailed",
                "TransactionInDoubt", "UnsupportedByBroker",
            )
        },
    ),
    "sql": Group(
        "busway.sql", {"busway.sql": ("Sql", "Outbox", "OutboxStatus", "Relay", "Tables", "TABLES", "OUTBOX_ID", "create_all", "DatabaseUnreachable")}
    ),
    "web": Group(
        "busway.web",
        {
            "busway.web": (
                "Web", "Metrics", "Health", "Readiness", "application", "json_response", "read_json", "refusal", "Refused", "row_of", "not_here",
                "event_stream", "Feed", "serving", "MAX_BODY_BYTES", "BadAddress", "CannotListen",
            )
        },
    ),
    "testing": Group(
        "busway.testing",
        {
            "busway.testing": (
                "TestBus", "Cluster", "Crash", "crash_points", "DeadLetter", "Simulation", "SimulatedBus", "simulate", "SimulationFailed", "NotSimulated",
            )
        },
    ),
    "otel": Group("busway.otel", {"busway.otel": ("Tracing", "TracedProducer", "process_span", "inject", "extract")}),
    "connect": Group(
        "busway_connect",
        {
            "busway_connect": (
                "Source", "Sink", "Transform", "Predicate", "Converter", "Setting", "SourceRecord", "SinkRecord", "Schema", "Field", "Offset", "Config",
                "Boundaries", "ConfigInvalid", "ConversionFailed", "RecordRefused", "Retriable", "TransformFailed",
            )
        },
    ),
    "spark": Group(
        "busway_spark",
        {
            "busway_spark": (
                "read_topic", "stream_topic", "write_topic", "to_store", "rejected", "run_job", "Job", "run_stream", "realtime", "delta_writer",
                "decode_avro", "schemas_of", "Schemas", "key_schemas", "key_text", "LagListener", "Progress", "progress_of", "commit_group", "register",
                "jar_paths", "explain", "DataLoss", "DoesNotFit", "JarsMissing", "NoColumns", "NoSchema", "NotServed", "StreamFailed",
            )
        },
    ),
}  # fmt: skip
HIDDEN: Final[dict[str, str]] = {
    "App": "worker|shares_together|new_serdes|send_result|overrides",
    "Consumer": "abort|cut|forget|committing|is_replaced|is_settled|is_subscribed|known_position|reset_at|transaction_input",
    "Producer": "abort|cut|check|choose|partition_for",
}
"""Members that are public for other modules of Busway, and of no use to others."""
PACKAGES: Final = (
    "busway",
    "busway.sql",
    "busway.web",
    "busway.testing",
    "busway.otel",
    "busway_connect",
    "busway_spark",
)
SPARK: Final = "busway_spark"
"""Its modules import PySpark, which need not be installed here: their docstrings are read from the files."""


def unlisted() -> list[str]:
    """Return the public names that are on no page, and the listed ones that are not public."""
    listed = [
        f"{package}.{name}" for group in GROUPS.values() for package, names in group.names.items() for name in names
    ]
    public = {f"{package}.{name}" for package in PACKAGES for name in importlib.import_module(package).__all__}
    return sorted(public.symmetric_difference(listed)) + sorted({name for name in listed if listed.count(name) > 1})


def page(group: str) -> str:
    """Return a page: a table of the names, and a directive of mkdocstrings for each."""
    if wrong := unlisted():
        raise SystemExit(f"tools/reference/api.py: put each of these names on one page, or remove it: {wrong}")
    title, packages = GROUPS[group]
    parts = [
        f"# {title}",
        f"{MADE} The site (`make docs`) adds signatures, attributes and errors; `help(NAME)` prints the same.",
    ]
    for package, names in packages.items():
        if package == SPARK:
            places = {name: f"{SPARK}.{module}" for module, names in busway_spark._WHERE.items() for name in names}
            parts.append(table(("name", "purpose"), ((code(name), _purpose_in(places[name], name)) for name in names)))
            parts += [f"::: {places[name]}.{name}" for name in names]
            continue
        loaded = importlib.import_module(package)
        parts.append(table(("name", "purpose"), ((code(name), _purpose(getattr(loaded, name))) for name in names)))
        parts += [_directive(package, name, getattr(loaded, name)) for name in names]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _purpose(value: Any) -> str:
    """Return the first sentence of the docstring; of a constant its value, of an alias and of a class without one nothing."""
    if isinstance(value, str | int):
        return f"`{value!r}`"
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return ""
    text = first_sentence(value)
    return "" if text.startswith(f"{value.__name__}(") else text


def _purpose_in(module: str, name: str) -> str:
    """Return the first sentence of a docstring, from the module's file."""
    tree = ast.parse((ROOT / "spark" / f"{module.replace('.', '/')}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return sentence(ast.get_docstring(node) or "")
    raise SystemExit(f"{module} defines no {name}")


def _directive(package: str, name: str, value: Any) -> str:
    """Return the directive; of an extension without the methods that only the app calls."""
    options = ""
    if isinstance(value, type) and issubclass(value, Extension) and value is not Extension:
        own = sorted(member for member in dir(value) if not member.startswith("_") and not hasattr(Extension, member))
        options = f"\n    options:\n      inherited_members: true\n      members: [{', '.join(own)}]"
    elif isinstance(value, type) and not issubclass(value, BaseException):
        options = "\n    options:\n      inherited_members: true"
    if (hidden := HIDDEN.get(name)) is not None and package == "busway":
        options += f'\n      filters: ["!^_", "!^({hidden})$"]'
    return f"::: {package}.{name}{options}"
