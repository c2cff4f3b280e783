"""Values that the worker passes to tasks, and tasks' counts.

Here: no behaviour.
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
    configs: ConfigStore
    offsets: OffsetStore
    statuses: StatusStore


@dataclass(slots=True, kw_only=True)
class Counts:
    """Counts of a task since this worker runs the connector.

    Attributes:
        progress_at: last handling of records, monotonic clock.
        failures, written: of the newest run; these count for themselves.
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
    """Parameters of a task's run, beside its connector.

    Attributes:
        session_timeout_ms: default timeout of a sink's dead predecessor.
        confirm_turn: raises TurnOver unless this worker still leads.
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
