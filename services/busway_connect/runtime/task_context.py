"""What the worker gives each task, and what a task counts.

What lives here: values that are passed around. What does not: behaviour.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from busway_connect.connector import Config
from busway_connect.converters.interface import Converter
from busway_connect.runtime.exactly_once import Written
from busway_connect.runtime.failures import Failures, Tolerance
from busway_connect.runtime.storage import ConfigStore, OffsetStore, StatusStore
from busway_connect.transforms.interface import Transform


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """What outlives the worker."""

    configs: ConfigStore
    offsets: OffsetStore
    statuses: StatusStore


@dataclass(slots=True, kw_only=True)
class Counts:
    """What a task did, since the worker took the connector on.

    Attributes:
        polled: records that a source handed over, or a sink's topics.
        written_records: acknowledged by the bus, or written by the sink.
        offset_commits: how often offsets were stored.
        restarts: how often the task started again by itself.
        progress_at: when it last handled records, by the monotonic clock.
        failures, written: the parts that count for themselves, of the newest run.
    """

    polled: int = 0
    written_records: int = 0
    offset_commits: int = 0
    restarts: int = 0
    progress_at: float = field(default_factory=time.monotonic)
    failures: Failures | None = None
    written: Written | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """All that a run of a task needs beside its connector.

    Attributes:
        name, config: of the connector.
        bootstrap: the brokers.
        session_timeout_ms: after which a sink's dead predecessor has lost its partitions, where the config says nothing.
        started: called when the connector has started.
        progressed: called after each batch.
        transactional_id: of a source that runs in transactions.
        confirm_turn: asks the group whether this worker works still; raises TurnOver if not.
    """

    name: str
    config: Config
    bootstrap: str
    stores: Stores
    counts: Counts
    tolerance: Tolerance
    transforms: Sequence[Transform]
    key_converter: Converter
    value_converter: Converter
    flush_interval_s: float
    session_timeout_ms: int
    started: Callable[[], Awaitable[None]]
    progressed: Callable[[], None]
    transactional_id: str | None
    confirm_turn: Callable[[], Awaitable[None]]
