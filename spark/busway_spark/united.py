"""The schemas of all writers as one, so that a plan decodes with one expression however many writers there are.

What lives here: the union of the writers' schemas, and the schema that it is read as. What does not: the columns (`avro`).

Avro writes a union as the number of a branch and the value of that branch; a reader that is no union takes any branch ("Schema
Resolution" in the specification, 1.12). So a body with the number of its schema before it is a value of the union of all schemas. Two
rules stand in the way: a union has no two records of one name, and a name is defined but once. So the types of each writer move into a
namespace of their own, from which aliases in the reader's schema lead back, and each event becomes the only field of a record with a
name of its own, which is written as the same bytes.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from busway_protocol.records.builder import varint
from busway_spark.schemas import Schemas, full_name, named_in, rebuilt

EVENT: Final = "event"
"""The only field of what is read."""
_WRITTEN: Final = "BuswayWritten"
_SPACE: Final = "busway_writer_"
_NOT_WRITTEN: Final = frozenset({"namespace", "doc", "aliases", "default"})
"""What a writer's type may say and no byte depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class United:
    """All writers' schemas as one.

    Attributes:
        writer: JSON text of the union.
        reader: JSON text of a record whose field `event` is the reader's record.
        branches: schema id → what is put before a body to make it a value of the union.
    """

    writer: str
    reader: str
    branches: dict[int, bytes]


def united(schemas: Schemas) -> United:
    """The union of `schemas.writers`; a record in it resolves to the reader as it would by itself."""
    ids = sorted(schemas.writers)
    spaces = [f"{_SPACE}{number}" for number in range(len(ids))]
    writers = [
        _record(f"{_WRITTEN}{number}", _moved(json.loads(schemas.writers[schema_id]), space))
        for number, (schema_id, space) in enumerate(zip(ids, spaces, strict=True))
    ]
    return United(
        writer=json.dumps(writers),
        reader=json.dumps(_record(_WRITTEN, _leading_back(json.loads(schemas.reader), spaces))),
        branches={schema_id: varint(number) for number, schema_id in enumerate(ids)},
    )


def _record(name: str, event: Any) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": EVENT, "type": event}]}


def _moved(schema: Any, space: str) -> Any:
    """A writer's schema with all of its types in a namespace."""
    defined: set[str] = set()

    def definition(found: dict[str, Any], full: str) -> dict[str, Any]:
        defined.add(full)
        kept = {name: value for name, value in found.items() if name not in _NOT_WRITTEN}
        if "fields" in kept:
            kept["fields"] = [{"name": field["name"], "type": field["type"]} for field in kept["fields"]]
        return kept | {"name": f"{space}.{full}"}

    return rebuilt(schema, "", definition, lambda name, namespace: f"{space}.{named_in(defined, name, namespace)}")


def _leading_back(schema: Any, spaces: list[str]) -> Any:
    """The reader's schema, whose types are also called what they and their aliases are called in each of the namespaces."""

    def definition(found: dict[str, Any], full: str) -> dict[str, Any]:
        namespace = full.rpartition(".")[0]
        known = [full_name({"name": alias}, namespace) for alias in found.get("aliases", ())]
        return found | {"aliases": known + [f"{space}.{name}" for space in spaces for name in (full, *known)]}

    return rebuilt(schema, "", definition, lambda name, _: name)
