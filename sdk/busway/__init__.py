"""Busway: an event bus for Python services.

The names listed here are public; nothing else is.
"""

from busway.admin.admin import Admin, NewTopic
from busway.app.bus import App
from busway.app.failures import Exponential, Retry
from busway.app.routes import BadDeclaration, ConsumerRecord, Topic
from busway.app.worker import HandlerFailed
from busway.consumer.consumer import Consumer, RebalanceListener
from busway.errors import (
    BrokerError,
    BuswayError,
    CommitFailed,
    ConnectionFailed,
    DamagedData,
    DeliveryFailed,
    MessageTooLarge,
    NotRunning,
    OffsetReset,
    RequestTimedOut,
    UnsupportedByBroker,
)
from busway.producer.producer import Producer
from busway.serde.avro import AvroCodec, Undecodable, Unencodable
from busway.serde.infer import Alias, AvroType, Float32, Int32, Precision
from busway.serde.records import CannotInfer
from busway.serde.registry import RegistryClient, RegistryRefused, RegistryUnreachable
from busway.types import OffsetAndMetadata, OffsetAndTimestamp, Record, RecordMetadata, TopicPartition

__all__ = [
    "Admin",
    "Alias",
    "App",
    "AvroCodec",
    "AvroType",
    "BadDeclaration",
    "BrokerError",
    "BuswayError",
    "CannotInfer",
    "CommitFailed",
    "ConnectionFailed",
    "Consumer",
    "ConsumerRecord",
    "DamagedData",
    "DeliveryFailed",
    "Exponential",
    "Float32",
    "HandlerFailed",
    "Int32",
    "MessageTooLarge",
    "NewTopic",
    "NotRunning",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetReset",
    "Precision",
    "Producer",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "RegistryClient",
    "RegistryRefused",
    "RegistryUnreachable",
    "RequestTimedOut",
    "Retry",
    "Topic",
    "TopicPartition",
    "Undecodable",
    "Unencodable",
    "UnsupportedByBroker",
]
