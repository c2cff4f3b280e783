"""Busway: an event bus for Python services.

The names listed here are public; nothing else is. Each is imported on first use, so that `busway up` does not load the
client, nor a producer the Avro library.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

__version__: str

if TYPE_CHECKING:
    from busway.admin.admin import Admin
    from busway.admin.missing import TopicMissing
    from busway.admin.new_topic import NewTopic
    from busway.app.calling.depends import Context, Depends
    from busway.app.dead_letters.letter import DeadLetter, DeadLetterSelection, DeadLetterSummary
    from busway.app.dead_letters.replay import DeadLetters, NotDeadLetters, Replay, TooManyGaps
    from busway.app.declaring.queue_declarations import Reject
    from busway.app.extending.extension import Extension, Handling
    from busway.app.extending.hooks import ExtensionFailed
    from busway.app.handling.attempts import HandlerTimedOut
    from busway.app.model.retry import Exponential, HandlerFailed, Retry
    from busway.app.model.topic import BadDeclaration, Batch, ConsumerRecord, Topic, TransactionalInbox
    from busway.app.service import RunningService
    from busway.app.tables.copies import BadRow
    from busway.app.tables.global_table import GlobalTable
    from busway.app.tables.rows import NotHere
    from busway.app.tables.table import Table
    from busway.consumer.batches import read_batches
    from busway.consumer.consumer import Consumer
    from busway.consumer.listener import RebalanceListener
    from busway.consumer.snapshot import read_to_end
    from busway.errors import (
        AcknowledgementFailed,
        AuthenticationFailed,
        BrokerError,
        BuswayError,
        CommitFailed,
        ConnectionFailed,
        DamagedData,
        DeliveryFailed,
        InvalidTransactionState,
        MessageTooLarge,
        NotRunning,
        OffsetReset,
        ProducerFenced,
        RequestTimedOut,
        TransactionAbortable,
        TransactionFailed,
        TransactionInDoubt,
        UnsupportedByBroker,
    )
    from busway.producer.producer import Producer
    from busway.security.options import SecurityOptions
    from busway.security.registry import RegistrySecurity
    from busway.serde.avro import AvroCodec
    from busway.serde.errors import Undecodable, Unencodable
    from busway.serde.infer import Alias, AvroType, Float32, Int32, Precision
    from busway.serde.records import CannotInfer
    from busway.serde.registry import RegistryClient, RegistryRefused, RegistryUnreachable
    from busway.share.consumer import ShareConsumer
    from busway.testable_app import App
    from busway.types import (
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        Record,
        RecordMetadata,
        TopicPartition,
    )

__all__ = [
    "AcknowledgementFailed",
    "Admin",
    "Alias",
    "App",
    "AuthenticationFailed",
    "AvroCodec",
    "AvroType",
    "BadDeclaration",
    "BadRow",
    "Batch",
    "BrokerError",
    "BuswayError",
    "CannotInfer",
    "CommitFailed",
    "ConnectionFailed",
    "Consumer",
    "ConsumerRecord",
    "Context",
    "DamagedData",
    "DeadLetter",
    "DeadLetterSelection",
    "DeadLetterSummary",
    "DeadLetters",
    "DeliveryFailed",
    "Depends",
    "Exponential",
    "Extension",
    "ExtensionFailed",
    "Float32",
    "GlobalTable",
    "GroupMetadata",
    "HandlerFailed",
    "HandlerTimedOut",
    "Handling",
    "Int32",
    "InvalidTransactionState",
    "MessageTooLarge",
    "NewTopic",
    "NotDeadLetters",
    "NotHere",
    "NotRunning",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetReset",
    "Precision",
    "Producer",
    "ProducerFenced",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "RegistryClient",
    "RegistryRefused",
    "RegistrySecurity",
    "RegistryUnreachable",
    "Reject",
    "Replay",
    "RequestTimedOut",
    "Retry",
    "RunningService",
    "SecurityOptions",
    "ShareConsumer",
    "Table",
    "TooManyGaps",
    "Topic",
    "TopicMissing",
    "TopicPartition",
    "TransactionAbortable",
    "TransactionFailed",
    "TransactionInDoubt",
    "TransactionalInbox",
    "Undecodable",
    "Unencodable",
    "UnsupportedByBroker",
    "read_batches",
    "read_to_end",
]

_WHERE: Final = {
    "busway.admin.admin": ("Admin",),
    "busway.admin.new_topic": ("NewTopic",),
    "busway.app.handling.attempts": ("HandlerTimedOut",),
    "busway.app.dead_letters.letter": (
        "DeadLetter",
        "DeadLetterSelection",
        "DeadLetterSummary",
    ),
    "busway.app.dead_letters.replay": (
        "DeadLetters",
        "NotDeadLetters",
        "Replay",
        "TooManyGaps",
    ),
    "busway.app.calling.depends": (
        "Context",
        "Depends",
    ),
    "busway.app.extending.extension": (
        "Extension",
        "Handling",
    ),
    "busway.app.model.retry": (
        "Exponential",
        "HandlerFailed",
        "Retry",
    ),
    "busway.app.extending.hooks": ("ExtensionFailed",),
    "busway.app.declaring.queue_declarations": ("Reject",),
    "busway.app.model.topic": (
        "BadDeclaration",
        "Batch",
        "ConsumerRecord",
        "Topic",
        "TransactionalInbox",
    ),
    "busway.consumer.batches": ("read_batches",),
    "busway.consumer.consumer": ("Consumer",),
    "busway.consumer.listener": ("RebalanceListener",),
    "busway.app.service": ("RunningService",),
    "busway.app.tables.global_table": ("GlobalTable",),
    "busway.app.tables.copies": ("BadRow",),
    "busway.app.tables.rows": ("NotHere",),
    "busway.app.tables.table": ("Table",),
    "busway.admin.missing": ("TopicMissing",),
    "busway.consumer.snapshot": ("read_to_end",),
    "busway.errors": (
        "AcknowledgementFailed",
        "AuthenticationFailed",
        "BrokerError",
        "BuswayError",
        "CommitFailed",
        "ConnectionFailed",
        "DamagedData",
        "DeliveryFailed",
        "InvalidTransactionState",
        "MessageTooLarge",
        "NotRunning",
        "OffsetReset",
        "ProducerFenced",
        "RequestTimedOut",
        "TransactionAbortable",
        "TransactionFailed",
        "TransactionInDoubt",
        "UnsupportedByBroker",
    ),
    "busway.producer.producer": ("Producer",),
    "busway.security.options": ("SecurityOptions",),
    "busway.security.registry": ("RegistrySecurity",),
    "busway.serde.avro": ("AvroCodec",),
    "busway.serde.errors": (
        "Undecodable",
        "Unencodable",
    ),
    "busway.serde.infer": (
        "Alias",
        "AvroType",
        "Float32",
        "Int32",
        "Precision",
    ),
    "busway.serde.records": ("CannotInfer",),
    "busway.serde.registry": (
        "RegistryClient",
        "RegistryRefused",
        "RegistryUnreachable",
    ),
    "busway.share.consumer": ("ShareConsumer",),
    "busway.testable_app": ("App",),
    "busway.types": (
        "GroupMetadata",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "Record",
        "RecordMetadata",
        "TopicPartition",
    ),
}
_MODULE_OF: Final = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("busway")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'busway' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__")), "__version__"})
