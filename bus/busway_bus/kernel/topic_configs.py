"""The topic configuration keys: Kafka 4.3's, with Kafka's defaults, and Busway's `durability`.

Here: the keys and their checks, in Kafka's words, with the broker keys of their defaults. Keys of tiered storage and
replication throttles are listed as in Kafka.
Not here: the value in force (`config`).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from busway_bus.kernel.config_def import LONG_MAX, ConfigError, ConfigKey, ConfigType, ConfigValue, by_name, closest
from busway_bus.kernel.topics import INTERNAL

_REPLICA: Final = re.compile(r"\d+:\d+")
_FIXED: Final[Mapping[str, str]] = {"durability": "flush"}
"""Acknowledged writes of groups and transactions are on disk.

A power cut would tear transactions across flushed topics.
"""
_THROTTLES: Final = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
_NO_EFFECT: Final = "Accepted so that topics can move between clusters; without effect, tiered storage is not served."
_B, _S, _I, _L, _D, _W = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)


def _key(
    name: str, kind: ConfigType, default: ConfigValue, synonyms: tuple[str, ...], doc: str, **bounds: object
) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        synonyms=synonyms,
        doc=doc,
        read_only=False,
        **bounds,  # type: ignore[arg-type]
    )


def _gzip_level(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "Value must be between 1 and 9 or equal to -1"


def _throttled(name: str) -> Callable[[list[str]], str | None]:
    def refuse(value: list[str]) -> str | None:
        if value == ["*"] or all(_REPLICA.fullmatch(item) for item in value):
            return None
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        return f"{name} must be the literal '*' or a list of replicas in the following format: {form}"

    return refuse


TOPIC_CONFIGS: Final[Mapping[str, ConfigKey]] = by_name(
    [
        _key("cleanup.policy", _W, ["delete"], ("log.cleanup.policy",),
             "What happens to old segments: delete them by age and size, compact to the last record of a key, or both.",
             one_of=("compact", "delete")),
        _key("compression.gzip.level", _I, -1, ("compression.gzip.level",),
             "Level when the broker compresses with gzip; -1 is the library's default.", refuse=_gzip_level),
        _key("compression.lz4.level", _I, 9, ("compression.lz4.level",),
             "Level when the broker compresses with lz4; 9 is the fast compressor, as in Kafka, any other the dense one.",
             at_least=1, at_most=17),
        _key("compression.type", _S, "producer", ("compression.type",),
             "Codec of the stored batches; producer keeps the batch as it was sent.",
             one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        _key("compression.zstd.level", _I, 3, ("compression.zstd.level",),
             "Level when the broker compresses with zstd.",
             at_least=-131072, at_most=22),
        _key("delete.retention.ms", _L, 86_400_000, ("log.cleaner.delete.retention.ms",),
             "Time in ms for which a tombstone of a compacted topic stays readable after the log was cleaned.", at_least=0),
        _key("durability", _S, "flush", ("log.durability",),
             "When a write is acknowledged: flush after it is on disk, interval from memory with a flush every 100 ms, "
             "os from memory with the flush left to the operating system (as Apache Kafka does by default).",
             one_of=("flush", "interval", "os")),
        _key("errors.deadletterqueue.group.enable", _B, False, (),
             "Whether share groups may have their dead letters written to the topic. Needs share.version 2."),
        _key("file.delete.delay.ms", _L, 60_000, ("log.segment.delete.delay.ms",),
             "Time in ms for which a removed segment stays on disk for its readers.", at_least=0),
        _key("flush.messages", _L, LONG_MAX, ("log.flush.interval.messages",),
             "Number of records after which a flush is forced; only matters with durability other than flush.", at_least=1),
        _key("flush.ms", _L, LONG_MAX, ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
             "Time in ms after which a flush is forced; only matters with durability other than flush.", at_least=0),
        _key("follower.replication.throttled.replicas", _W, [], (),
             "partition:broker pairs whose follower traffic is throttled. Without effect on a node alone; a cluster refuses it.",
             refuse=_throttled("follower.replication.throttled.replicas")),
        _key("index.interval.bytes", _I, 4096, ("log.index.interval.bytes",),
             "Bytes between two entries of the offset index.", at_least=0),
        _key("internal.segment.bytes", _I, None, (),
             "Replaces segment.bytes, without its minimum: for tests. Shown only where it is set."),
        _key("leader.replication.throttled.replicas", _W, [], (),
             "partition:broker pairs whose leader traffic is throttled. Without effect on a node alone; a cluster refuses it.",
             refuse=_throttled("leader.replication.throttled.replicas")),
        _key("local.retention.bytes", _L, -2, ("log.local.retention.bytes",), _NO_EFFECT, at_least=-2),
        _key("local.retention.ms", _L, -2, ("log.local.retention.ms",), _NO_EFFECT, at_least=-2),
        _key("max.compaction.lag.ms", _L, LONG_MAX, ("log.cleaner.max.compaction.lag.ms",),
             "Longest time in ms for which a record of a compacted topic stays uncleaned.", at_least=1),
        _key("max.message.bytes", _I, 1_048_588, ("message.max.bytes",),
             "Largest record batch, in bytes as stored, that a producer may write.", at_least=0),
        _key("message.timestamp.after.max.ms", _L, 3_600_000, ("log.message.timestamp.after.max.ms",),
             "How far, in ms, a record's timestamp may be ahead of the broker's clock.", at_least=0),
        _key("message.timestamp.before.max.ms", _L, LONG_MAX, ("log.message.timestamp.before.max.ms",),
             "How far, in ms, a record's timestamp may be behind the broker's clock.", at_least=0),
        _key("message.timestamp.type", _S, "CreateTime", ("log.message.timestamp.type",),
             "Whose clock stamps the records: the producer's or the broker's.", one_of=("CreateTime", "LogAppendTime")),
        _key("min.cleanable.dirty.ratio", _D, 0.5, ("log.cleaner.min.cleanable.ratio",),
             "A compacted log is cleaned once this share of it has not been cleaned yet.", at_least=0, at_most=1),
        _key("min.compaction.lag.ms", _L, 0, ("log.cleaner.min.compaction.lag.ms",),
             "Shortest time in ms for which a record stays uncleaned.", at_least=0),
        _key("min.insync.replicas", _I, 1, ("min.insync.replicas",),
             "Number of in-sync replicas that a write with acks=all needs.", at_least=1),
        _key("preallocate", _B, False, ("log.preallocate",),
             "Reserve the file of a new segment at once; without effect here, it brought no gain."),
        _key("remote.log.copy.disable", _B, False, (), _NO_EFFECT),
        _key("remote.log.delete.on.disable", _B, False, (), _NO_EFFECT),
        _key("remote.storage.enable", _B, False, (), _NO_EFFECT),
        _key("retention.bytes", _L, -1, ("log.retention.bytes",),
             "Size of a partition in bytes beyond which its oldest segments are deleted; -1 is no limit."),
        _key("retention.ms", _L, 604_800_000, ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
             "Age in ms of its newest record at which a segment is deleted; -1 keeps it for ever.", at_least=-1),
        _key("segment.bytes", _I, 1_073_741_824, ("log.segment.bytes",),
             "Largest segment file, in bytes.", at_least=1_048_576),
        _key("segment.index.bytes", _I, 10_485_760, ("log.index.size.max.bytes",),
             "Largest offset index of a segment, in bytes.", at_least=4),
        _key("segment.jitter.ms", _L, 0, ("log.roll.jitter.ms", "log.roll.jitter.hours"),
             "Random share taken off segment.ms, in ms, so that partitions do not all roll at once.", at_least=0),
        _key("segment.ms", _L, 604_800_000, ("log.roll.ms", "log.roll.hours"),
             "Time in ms after which a segment is rolled even if it is not full.", at_least=1),
        _key("unclean.leader.election.enable", _B, False, ("unclean.leader.election.enable",),
             "Whether a replica that is not in sync may lead, losing records."),
    ]
)  # fmt: skip


def parse_topic_configs(overrides: Mapping[str, str | None]) -> dict[str, ConfigValue]:
    """Parse the overrides of a topic; a null is no override.

    ConfigError: a name is unknown (with the closest), or values are not allowed, alone or together.
    """
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            hint = closest(name, TOPIC_CONFIGS)
            message = f"Unknown topic config name: {name}" + (f". Did you mean {hint}?" if hint else "")
            raise ConfigError(name, "unknown topic config", message)
        if text is not None:
            values[name] = key.parse(text)
    _check_together(values)
    return values


def fixed_configs(topic: str) -> Mapping[str, str]:
    return _FIXED if topic in INTERNAL else {}


def check_not_fixed(topic: str, names: Iterable[str]) -> None:
    """Refuse fixed settings of an internal topic, by name."""
    fixed = fixed_configs(topic)
    for name in names:
        if name in fixed:
            text = f"{name} is always {fixed[name]} on internal topic {topic} and cannot be set; leave it out"
            raise ConfigError(name, "is not set on internal topics", text)


def check_not_throttled(configs: Mapping[str, str | None]) -> None:
    """Refuse throttles of replication, for clusters; removing one is allowed."""
    for name in _THROTTLES:
        if configs.get(name):
            text = (
                f"{name} is not served: a cluster copies replicas as fast as it can. Leave it out; "
                f"kafka-reassign-partitions moves partitions without --throttle"
            )
            raise ConfigError(name, "throttles are not served", text)


def _check_together(values: Mapping[str, ConfigValue]) -> None:
    shortest, longest = "min.compaction.lag.ms", "max.compaction.lag.ms"
    low, high = (values.get(name, TOPIC_CONFIGS[name].default) for name in (shortest, longest))
    assert isinstance(low, int)
    assert isinstance(high, int)
    if low > high:
        text = f"conflict topic config setting {shortest} ({low}) > {longest} ({high})"
        raise ConfigError(shortest, f"{low} is more than {longest}", text)
    if values.get("remote.storage.enable"):
        text = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
        raise ConfigError("remote.storage.enable", "tiered storage is not served", text)
