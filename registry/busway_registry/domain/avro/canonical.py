"""A schema tree → its text, as Avro's Java library writes it.

What lives here: the canonical form in which schemas are kept and compared, and the normalised one (`normalize=true`). What does not:
Avro's parsing canonical form, which drops documentation and defaults; the registry drops nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

from busway_registry.domain.avro.schema import (
    MISSING,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
)


def canonical(schema: Schema, *, normalize: bool = False, referenced: frozenset[str] = frozenset()) -> str:
    """Compact JSON: attributes in Java's order, names shortened inside their own namespace, each named type defined where it is
    first met and named after.

    Args:
        schema: what to write.
        normalize: also sort properties (the logical type first) and aliases.
        referenced: names of types that come from references; they are not defined again.
    """
    return json.dumps(
        _Writer(normalize, referenced).schema(schema, ""), ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


class _Writer:
    def __init__(self, normalize: bool, referenced: frozenset[str]) -> None:
        self._normalize = normalize
        self._defined: set[str] = set(referenced)

    def schema(self, schema: Schema, namespace: str) -> Any:
        if isinstance(schema, Primitive):
            properties = self._properties(schema.properties)
            return {"type": schema.type, **properties} if properties else schema.type
        if isinstance(schema, Array):
            items = self.schema(schema.items, namespace)
            return {"type": "array", "items": items, **self._properties(schema.properties)}
        if isinstance(schema, Map):
            values = self.schema(schema.values, namespace)
            return {"type": "map", "values": values, **self._properties(schema.properties)}
        if isinstance(schema, Named):
            return self._named(schema, namespace)
        return [self.schema(branch, namespace) for branch in schema.branches]

    def _named(self, schema: Record | Enum | Fixed, namespace: str) -> Any:
        if schema.name in self._defined:
            shortened = schema.namespace == namespace and schema.short_name not in PRIMITIVES
            return schema.short_name if shortened else schema.name
        self._defined.add(schema.name)
        found: dict[str, Any] = {"type": schema.type, "name": schema.short_name}
        if schema.namespace != namespace:
            found["namespace"] = schema.namespace
        if schema.doc is not None:
            found["doc"] = schema.doc
        if isinstance(schema, Record):
            found["fields"] = [self._field(one, schema.namespace) for one in schema.fields]
        elif isinstance(schema, Enum):
            found["symbols"] = list(schema.symbols)
            if schema.default is not None:
                found["default"] = schema.default
        else:
            found["size"] = schema.size
        found.update(self._properties(schema.properties))
        if schema.aliases:
            shown = [self._alias(alias, schema.namespace) for alias in schema.aliases]
            found["aliases"] = sorted(shown) if self._normalize else shown
        return found

    def _field(self, field: Field, namespace: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": field.name, "type": self.schema(field.schema, namespace)}
        if field.doc is not None:
            found["doc"] = field.doc
        if field.default is not MISSING:
            found["default"] = field.default
        if field.order != "ascending":
            found["order"] = field.order
        if field.aliases:
            found["aliases"] = sorted(field.aliases) if self._normalize else list(field.aliases)
        found.update(self._properties(field.properties))
        return found

    def _properties(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        if not self._normalize:
            return dict(properties)
        return {name: properties[name] for name in sorted(properties, key=lambda name: (name != "logicalType", name))}

    @staticmethod
    def _alias(alias: str, namespace: str) -> str:
        space, _, short = alias.rpartition(".")
        return short if space == namespace else alias
