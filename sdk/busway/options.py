"""Options of producers, consumers and share consumers: keyword-only, an object for each client.

Names are Kafka's client settings in snake case.
"""

import collections.abc
import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from busway_protocol.records.compression import CODECS

Partitioner = Callable[[str, bytes | None, int], int]
"""(topic, key, number of partitions) → partition."""
ACKS: Final[dict[str | int, int]] = {"all": -1, -1: -1, 1: 1, "1": 1, 0: 0, "0": 0}


@dataclass(frozen=True, slots=True)
class _AtLeast:
    lowest: int


@dataclass(frozen=True, slots=True)
class _OneOf:
    names: tuple[str, ...]


_Positive = Annotated[int, _AtLeast(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """Options of a producer.

    Attributes:
        acks: "all", 1 or 0: replicas that must have a record before it counts as sent.
        enable_idempotence: a retried batch is written once; needs acks="all".
        linger_ms: wait of a batch that is not full for more records.
        batch_size: bytes of a full batch.
        compression_type: none, gzip, snappy, lz4 or zstd.
        max_in_flight: concurrent requests to a broker.
        max_request_size: bytes of the largest record and request.
        buffer_memory: bytes of waiting records; at this limit `send` waits.
        partitioner: by default murmur2 of the key; without a key, one partition for each batch.
        request_timeout_ms: limit on a response.
        delivery_timeout_ms: from `send` to success or failure, retries included.
        metadata_timeout_ms: limit on waiting for a missing topic.
        transactional_id: makes the producer transactional. A new producer with this id fences the previous one and
            aborts its open transaction. Concurrent instances need different ids.
        transaction_timeout_ms: the coordinator aborts a transaction that is open for longer, and fences the producer;
            at most the brokers' transaction.max.timeout.ms.
        metadata_recovery_strategy: "rebootstrap" starts over from bootstrap_servers if no known broker can be reached, or
            one requires it (KIP-899, KIP-1102); "none" only tries known brokers.
        metadata_recovery_rebootstrap_trigger_ms: starts over, too, after so long without an answer for metadata.
    """

    acks: Literal["all", -1, 1, 0, "1", "0"] = "all"
    enable_idempotence: bool = True
    linger_ms: Annotated[float, _AtLeast(0)] = 5
    batch_size: _Positive = 64 * 1024
    compression_type: Annotated[str, _OneOf(tuple(CODECS))] = "none"
    max_in_flight: _Positive = 5
    max_request_size: _Positive = 1_048_576
    buffer_memory: _Positive = 32 * 1024 * 1024
    partitioner: Partitioner | None = None
    request_timeout_ms: _Positive = 30_000
    delivery_timeout_ms: _Positive = 120_000
    metadata_timeout_ms: _Positive = 60_000
    transactional_id: str | None = None
    transaction_timeout_ms: _Positive = 60_000
    metadata_recovery_strategy: Literal["rebootstrap", "none"] = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: Annotated[int, _AtLeast(0)] = 300_000

    def __post_init__(self) -> None:
        _check(self)
        if self.transactional_id is not None and not (self.transactional_id and self.enable_idempotence):
            raise ValueError("a transactional_id is a name that is not empty, and needs enable_idempotence=True")
        if self.enable_idempotence and ACKS[self.acks] != -1:
            raise ValueError("enable_idempotence needs acks='all'; set enable_idempotence=False for less")


USUAL_STRATEGIES: Final = ("cooperative-sticky", "range")
"""Default assignors of classic members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Options of a consumer.

    Attributes:
        group_id: None reads without a group.
        group_instance_id: makes the member static: a restart moves no partitions (KIP-345). After a kill it gets its
            partitions back at once in the classic protocol, and after its old session's end in the other.
        auto_offset_reset: start without a committed offset: earliest, latest, or none for an error.
        enable_auto_commit, auto_commit_interval_ms: commit handed-out records at this interval.
        group_protocol: "consumer": the coordinator assigns partitions (KIP-848); "classic": a member does. By default
            "consumer" if the brokers support it, unless an option of "classic" only is given.
        group_remote_assignor: the coordinator's assignor, uniform or range; "consumer" only.
        session_timeout_ms, heartbeat_interval_ms: silence after which a member is removed, and its interval of
            heartbeats; "classic" only. Otherwise the brokers' group.consumer.session.timeout.ms and
            group.consumer.heartbeat.interval.ms, or the group's own, apply.
        max_poll_interval_ms: a member that requests no records for so long leaves its group.
        partition_assignment_strategy: range, roundrobin, sticky, cooperative-sticky, best first; the group takes one
            that all members offer. With cooperative-sticky a rebalance does not interrupt partitions that stay; with
            the others members first revoke all. By default a group becomes cooperative as soon as all members can;
            "classic" only.
        isolation_level: read_uncommitted or read_committed.
        fetch_min_bytes, fetch_max_wait_ms, fetch_max_bytes, max_partition_fetch_bytes: size and delay of a fetch.
        max_poll_records: limit of one `getmany`.
        check_crcs: verify the checksum of every batch.
        metadata_max_age_ms: interval of looking for more partitions and for new topics that match a pattern.
        allow_auto_create_topics: brokers with auto.create.topics.enable create a missing topic that is read, with their
            default number of partitions. Off by default, unlike Java's: a reader would recreate a deleted topic.
        client_rack: the brokers' replica selector may name a nearer replica to fetch from, for instance in this rack
            (KIP-392).
        metadata_recovery_strategy: "rebootstrap" starts over from bootstrap_servers if no known broker can be reached, or
            one requires it (KIP-899, KIP-1102); "none" only tries known brokers.
        metadata_recovery_rebootstrap_trigger_ms: starts over, too, after so long without an answer for metadata.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: _Positive = 5_000
    group_protocol: Literal["auto", "consumer", "classic"] = "auto"
    group_remote_assignor: str | None = None
    session_timeout_ms: _Positive = 45_000
    heartbeat_interval_ms: _Positive = 3_000
    max_poll_interval_ms: _Positive = 300_000
    partition_assignment_strategy: tuple[str, ...] = USUAL_STRATEGIES
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    fetch_min_bytes: Annotated[int, _AtLeast(0)] = 1
    fetch_max_wait_ms: Annotated[int, _AtLeast(0)] = 500
    fetch_max_bytes: _Positive = 50 * 1024 * 1024
    max_partition_fetch_bytes: _Positive = 1024 * 1024
    max_poll_records: _Positive = 500
    check_crcs: bool = True
    metadata_max_age_ms: _Positive = 300_000
    allow_auto_create_topics: bool = False
    client_rack: str | None = None
    request_timeout_ms: _Positive = 30_000
    metadata_recovery_strategy: Literal["rebootstrap", "none"] = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: Annotated[int, _AtLeast(0)] = 300_000

    def __post_init__(self) -> None:
        _check(self)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be less than session_timeout_ms, a third of it is usual")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerOptions:
    """Options of a share consumer.

    Attributes:
        acknowledgement_mode: explicit: `acknowledge` each record. implicit: the next `getmany`, or `commit`, accepts
            the last one's records.
        acquire_mode: batch_optimized takes whole batches, fastest for small records. record_limit never takes more than
            requested, which spreads few, slow records evenly (KIP-1206; brokers without it take batches).
        max_poll_records: limit of one `getmany`.
        fetch_min_bytes, fetch_max_wait_ms, fetch_max_bytes: size and delay of a fetch. An acknowledgement waits at most
            fetch_max_wait_ms behind an empty fetch.
        check_crcs: verify the checksum of every batch.
        max_poll_interval_ms: a member that requests no records for so long leaves its group until it does.
        request_timeout_ms: limit on a response.
        metadata_recovery_strategy: "rebootstrap" starts over from bootstrap_servers if no known broker can be reached, or
            one requires it (KIP-899, KIP-1102); "none" only tries known brokers.
        metadata_recovery_rebootstrap_trigger_ms: starts over, too, after so long without an answer for metadata.
    """

    group_id: str
    acknowledgement_mode: Literal["explicit", "implicit"] = "explicit"
    acquire_mode: Literal["batch_optimized", "record_limit"] = "batch_optimized"
    max_poll_records: _Positive = 500
    fetch_min_bytes: Annotated[int, _AtLeast(0)] = 1
    fetch_max_wait_ms: Annotated[int, _AtLeast(0)] = 500
    fetch_max_bytes: _Positive = 50 * 1024 * 1024
    check_crcs: bool = True
    max_poll_interval_ms: _Positive = 300_000
    client_rack: str | None = None
    request_timeout_ms: _Positive = 30_000
    metadata_recovery_strategy: Literal["rebootstrap", "none"] = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: Annotated[int, _AtLeast(0)] = 300_000

    def __post_init__(self) -> None:
        _check(self)
        if not self.group_id:
            raise ValueError("group_id: a share group has a name that is not empty")


Options = TypeVar("Options", ProducerOptions, ConsumerOptions, ShareConsumerOptions)


def options_from(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """Make a client's options of keyword arguments.

    Raise `TypeError` for an unknown option or another type, `ValueError` out of range.
    """
    names = [field.name for field in fields(kind)]
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
            raise TypeError(f"{name} is no option of {kind.__name__}; {hint}")
    if kind is ConsumerOptions:
        _fit_protocol(given)
        only_classic = not CLASSIC_ONLY.isdisjoint(given) and _CONSUMER_ONLY.isdisjoint(given)
        if only_classic and given.get("group_protocol", "auto") == "auto":
            given = {**given, "group_protocol": "classic"}
    return kind(**given)


CLASSIC_ONLY: Final = frozenset({"session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"})
_CONSUMER_ONLY: Final = frozenset({"group_remote_assignor"})


def _fit_protocol(given: Mapping[str, Any]) -> None:
    """Refuse options of both group protocols, unless group_protocol is "auto"."""
    classic, consumer = (sorted(name for name in given if name in only) for only in (CLASSIC_ONLY, _CONSUMER_ONLY))
    wanted = given.get("group_protocol")
    if classic and wanted == "consumer":
        raise ValueError(
            f"{', '.join(classic)} cannot be set with group_protocol='consumer', whose sessions and shares are the coordinator's: "
            "leave it out, or say group_protocol='classic'"
        )
    if consumer and ((classic and wanted != "auto") or wanted == "classic"):
        other = f"together with {', '.join(classic)}" if classic else "with group_protocol='classic'"
        more = "; group_protocol='auto' takes both" if classic and wanted is None else ""
        raise ValueError(f"{', '.join(consumer)} cannot be set {other}: it is for group_protocol='consumer'{more}")


def _check(options: ProducerOptions | ConsumerOptions | ShareConsumerOptions) -> None:
    for name, hint in get_type_hints(type(options), include_extras=True).items():
        kind, *bounds = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        value = getattr(options, name)
        expected = _mismatch(kind, value)
        if expected is not None:
            raise TypeError(f"{name}: {value!r:.80} is {_article(type(value).__name__)}, not {expected}")
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise ValueError(f"{name}: {value!r} is not {_listed([repr(member) for member in get_args(kind)])}")
        for bound in bounds:
            if isinstance(bound, _OneOf) and value not in bound.names:
                raise ValueError(f"{name}: {value!r} is not one of {', '.join(bound.names)}")
            if isinstance(bound, _AtLeast) and not math.isfinite(value):
                raise ValueError(f"{name}: {value} is no number to count with")
            if isinstance(bound, _AtLeast) and value < bound.lowest:
                raise ValueError(f"{name}: {value} is below {bound.lowest}")


def _mismatch(kind: Any, value: Any) -> str | None:
    if get_origin(kind) is Literal:
        kinds = {type(member) for member in get_args(kind)}
        return None if type(value) in kinds else _listed([_WORDS[member] for member in sorted(kinds, key=str)])
    if get_origin(kind) is UnionType:
        return None if value is None else _mismatch(get_args(kind)[0], value)
    if get_origin(kind) is tuple:
        fits = isinstance(value, tuple | list) and all(isinstance(member, str) for member in value)
        return None if fits else "a tuple of texts"
    if get_origin(kind) is collections.abc.Callable:
        return None if callable(value) else "a function"
    if isinstance(value, bool) and kind is not bool:  # bool is a subclass of int
        return _WORDS[kind]
    return None if isinstance(value, int | float if kind is float else kind) else _WORDS[kind]


_WORDS: Final = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _listed(words: list[str]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]
