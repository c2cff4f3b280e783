"""The batch layer: the store that `busway spark offload` writes, read with pyarrow.

Here: which of its files count, up to which offset it reaches, a truck's rows.
Not here: writing it (`busway_spark`), the stream (`service`).

Spark's file sink commits a micro-batch by a log file in `_spark_metadata`; only what a log names is read, so a file of a batch that was
cut short is never seen, and a batch is seen whole. Micro-batches come in the order of the offsets, so the store reaches up to its largest
offset in a partition; what lies between and is no row of it was rejected by the job and is with the rejects.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ingestion.domain import Entry, Impossible, check
from ingestion.events import Position

_LOG: Final = "_spark_metadata"
_COMPACT: Final = ".compact"
_COLUMNS: Final = (
    "truck_id", "latitude", "longitude", "speed_kmh", "fuel_percent", "at", "_partition", "_offset",
)  # fmt: skip


class BadStore(Exception):
    """The folder is no store of this job; names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The store as it was at one moment; its files stay, so it can be read at any time later.

    Attributes:
        files: committed ones.
        ends: by partition, the offset up to which it reaches (exclusive).
    """

    files: tuple[Path, ...] = ()
    ends: Mapping[int, int] = field(default_factory=dict)

    def of(self, truck_id: str) -> list[Entry]:
        """All positions of a truck that can be true, by partition and offset; the store also has those that the service puts aside."""
        if not self.files:
            return []
        wanted = (ds.field("truck_id") == truck_id) & ~ds.field("_deleted")
        table = ds.dataset([str(path) for path in self.files]).to_table(list(_COLUMNS), filter=wanted)
        # Spark writes moments as INT96, which tells neither unit nor zone; they are in UTC.
        at = table["at"].cast(pa.timestamp("us", "UTC"))
        rows = table.set_column(table.column_names.index("at"), "at", at).to_pylist()
        entries = [entry for row in rows if (entry := _entry(row)) is not None]
        return sorted(entries, key=lambda entry: (entry.partition, entry.offset))


def _entry(row: dict[str, Any]) -> Entry | None:
    partition, offset = row.pop("_partition"), row.pop("_offset")
    position = Position(**row)
    try:
        check(position)
    except Impossible:
        return None
    return Entry(partition=partition, offset=offset, layer="store", position=position)


def newest(folder: Path, known: Snapshot | None = None) -> Snapshot:
    """The store as it is now; of the files that `known` has nothing is read again.

    Args:
        folder: `OUT/<topic>` of the offload job; one that is not there is an empty store.
        known: what was read before.

    Raises:
        BadStore: a log or a file is not what the job writes.
    """
    known = known or Snapshot()
    files = _committed(folder / _LOG, folder)
    if not set(known.files) <= set(files):  # it was written again: nothing that was known holds
        known = Snapshot()
    ends = dict(known.ends)
    for path in sorted(set(files) - set(known.files)):
        for partition, end in _ends(path):
            ends[partition] = max(ends.get(partition, 0), end)
    return Snapshot(files=tuple(sorted(files)), ends=ends)


def _committed(log: Path, folder: Path) -> list[Path]:
    """The files that the job's log names: of the newest compaction and of the batches after it."""
    if not log.is_dir():
        return []
    batches = {
        int(path.name.removesuffix(_COMPACT)): path
        for path in sorted(log.iterdir())
        if path.name.removesuffix(_COMPACT).isdecimal()
    }
    first = max((number for number, path in batches.items() if path.name.endswith(_COMPACT)), default=-1)
    lines = (line for number, path in sorted(batches.items()) if number >= first for line in _lines(path))
    # The log's paths are absolute, where the job saw them; the store may have been mounted elsewhere since.
    return [folder / Path(unquote(urlparse(line["path"]).path)).name for line in lines if line["action"] == "add"]


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    head, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
    if head != "v1":
        raise BadStore(f"{path} begins with {head[:20]!r} and not with v1; is it a store of `busway spark offload`?")
    return [json.loads(line) for line in lines if line]


def _ends(path: Path) -> list[tuple[int, int]]:
    try:
        table = pq.read_table(path, columns=["_partition", "_offset"])
    except (OSError, ValueError, KeyError) as problem:
        raise BadStore(f"{path} is in the store's log and cannot be read: {problem}") from None
    if not table.num_rows:
        return []
    most = table.group_by("_partition").aggregate([("_offset", "max")])
    return list(zip(most["_partition"].to_pylist(), pc.add(most["_offset_max"], 1).to_pylist(), strict=True))
