"""The first records of a cluster: the levels of its features, and the settings that they need.

Here: the levels of this release, and those of a directory that `kafka-storage format` made.
Not here: writing them (`quorum.metadata_log`). `busway cluster format` writes no `bootstrap.checkpoint`.
"""

from typing import Any, Final

from busway_bus.kernel.dynamic_configs import CLUSTER_KEY
from busway_bus.log.meta_properties import WrongDirectory
from busway_bus.metadata.features import (
    METADATA_VERSION,
    NOT_SERVED,
    SUPPORTED,
    has_elr,
    lacking,
    levels_of_new_clusters,
)
from busway_bus.metadata.image import BROKER_RESOURCE
from busway_bus.metadata.records import ConfigRecord, FeatureLevelRecord, from_bytes
from busway_protocol.errors import ProtocolError
from busway_protocol.records.batch import iter_batches, verify_crc
from busway_protocol.records.record import decode_records

BOOTSTRAP: Final = "bootstrap.checkpoint"
_KAFKAS_DEFAULT: Final = {"streams.version": 1}
"""Levels that Kafka 4.3.1's tool writes unasked and that are not served."""


def first_records(content: bytes | None, min_isr: str | None = None) -> tuple[Any, ...]:
    """Return the records of `bootstrap.checkpoint`; without one, those of this release.

    Args:
        content: of the file; None without one.
        min_isr: min.insync.replicas of all brokers, as Kafka's controller writes it with eligible leader replicas: brokers with other
            values in their files would disagree on which replicas are eligible. None for a node alone.

    Raises:
        WrongDirectory: as `levels_in`.
    """
    levels = levels_of_new_clusters() if content is None else levels_in(content)
    records: list[Any] = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
    if min_isr is not None and has_elr(levels):
        records.append(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=CLUSTER_KEY, value=min_isr))
    return tuple(records)


def levels_in(content: bytes) -> dict[str, int]:
    """Return the levels by feature.

    Raises:
        WrongDirectory: the file is damaged, or asks for what is not served; names it with the remedy.
    """
    levels: dict[str, int] = {}
    try:
        for header, batch in iter_batches(content):
            verify_crc(batch, header)
            for record in () if header.is_control else decode_records(batch):
                value = from_bytes(record.value or b"")
                if not isinstance(value, FeatureLevelRecord):
                    raise _refused(f"asks for a {type(value).__name__}")
                levels[value.name] = value.feature_level
    except ProtocolError as problem:
        raise _refused(f"cannot be read: {problem}") from None
    if METADATA_VERSION not in levels:
        raise _refused(f"has no level of {METADATA_VERSION}")
    return {name: level for name, level in levels.items() if _served(name, level, levels)}


def _served(name: str, level: int, levels: dict[str, int]) -> bool:
    if not level or _KAFKAS_DEFAULT.get(name) == level:
        return False
    lowest, highest = SUPPORTED.get(name, (0, 0))
    if not lowest <= level <= highest:
        raise _refused(
            f"asks for {name}={level}. {NOT_SERVED.get(name) or f'Levels {lowest} to {highest} are served.'}"
        )
    if missing := lacking(name, level, levels):
        raise _refused(f"asks for {name}={level}, which needs {missing[0]}={missing[1]} or higher")
    return True


def _refused(reason: str) -> WrongDirectory:
    return WrongDirectory(
        f"{BOOTSTRAP} in the data directory {reason}. Format the directory again with other --feature options of kafka-storage, or remove "
        f"the file: the cluster then begins with the levels of this release"
    )
