"""The replicas' log files, compared byte for byte.

Here: the batches of each replica, below the high watermarks.
Not here: what clients were promised (`ledger`).
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from busway_bus.log.checkpoints import HIGH_WATERMARKS, offsets_from_text

_BATCH: Final = struct.Struct(">qi")
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_DELTA_AT: Final = 23
METADATA: Final = "__cluster_metadata-0"


def batches(folder: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the last offset and the bytes of each batch of a log, over its segments."""
    for segment in sorted(folder.glob("*.log")):
        content, position = segment.read_bytes(), 0
        while position + _BATCH.size <= len(content):
            base, length = _BATCH.unpack_from(content, position)
            end = position + _BATCH.size + length
            if length <= 0 or end > len(content):
                raise ValueError(f"{segment} has no whole batch at {position}")
            (delta,) = _LAST_OFFSET_DELTA.unpack_from(content, position + _DELTA_AT)
            yield base + delta, content[position:end]
            position = end
        if position != len(content):
            raise ValueError(f"{segment} ends with {len(content) - position} bytes that are no batch")


def logs_of(data: Path) -> dict[str, Path]:
    """Return the folders of a node's logs, by name."""
    return {path.name: path for path in data.iterdir() if path.is_dir() and any(path.glob("*.log"))}


def high_watermarks(data: Path) -> dict[str, int]:
    """Return a stopped node's high watermarks, by the folder of the log."""
    text = (data / HIGH_WATERMARKS).read_text(encoding="utf-8")
    return {f"{topic}-{partition}": offset for (topic, partition), offset in offsets_from_text(text).items()}


class Comparison:
    """The outcome for all logs.

    Attributes:
        differences: one line for each log that differs below its high watermark, or lacks a part of it.
        compared: bytes of one replica that are equal on all.
        above: bytes above a high watermark, over all replicas.
    """

    def __init__(self) -> None:
        self.differences: list[str] = []
        self.compared = 0
        self.above = 0


def compare(
    nodes: Mapping[int, Path], placed: Mapping[str, Collection[int]], metadata_high_watermark: int
) -> Comparison:
    """Compare the replicas of all logs of stopped nodes.

    Replicas are equal up to the largest high watermark that one of them noted.

    Args:
        nodes: the data directory of each.
        placed: the nodes with a replica, by the folder of the log; all nodes have the quorum's.
        metadata_high_watermark: of the quorum's log, which has no checkpoint of it.
    """
    result = Comparison()
    marks = {node_id: high_watermarks(data) for node_id, data in nodes.items()}
    where = {**placed, METADATA: tuple(nodes)}
    for node_id, data in nodes.items():
        result.differences += [
            f"{name} is on node {node_id} and should not be"
            for name in logs_of(data)
            if node_id not in where.get(name, ())
        ]
    for name, node_ids in sorted(where.items()):
        mark = metadata_high_watermark if name == METADATA else max(of_node.get(name, 0) for of_node in marks.values())
        _compare_log(name, mark, {node_id: nodes[node_id] / name for node_id in node_ids}, result)
    return result


def _compare_log(name: str, mark: int, folders: Mapping[int, Path], result: Comparison) -> None:
    below: dict[int, list[tuple[int, bytes]]] = {}
    for node_id, folder in folders.items():
        if not folder.is_dir():
            result.differences.append(f"{name} is missing on node {node_id}")
            return
        whole = list(batches(folder))
        below[node_id] = [batch for batch in whole if batch[0] < mark]
        result.above += sum(len(content) for last, content in whole if last >= mark)
    if name == METADATA:  # a snapshot may replace its beginning
        first = max((of_node[0][0] for of_node in below.values() if of_node), default=0)
        below = {node_id: [batch for batch in of_node if batch[0] >= first] for node_id, of_node in below.items()}
    (first_id, expected), *others = below.items()
    for node_id, actual in others:
        if actual == expected:
            continue
        at = next(
            (at for at, (batch, other) in enumerate(zip(expected, actual, strict=False)) if batch != other),
            min(len(expected), len(actual)),
        )
        offsets = [of_node[at][0] if at < len(of_node) else "its end" for of_node in (expected, actual)]
        result.differences.append(
            f"{name} below its high watermark {mark}: nodes {first_id} and {node_id} differ at batch {at}, "
            f"with the last offsets {offsets[0]} and {offsets[1]}"
        )
    result.compared += sum(len(content) for _, content in expected)
