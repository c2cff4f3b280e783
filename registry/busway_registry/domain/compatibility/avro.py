"""Whether a reader's Avro schema can read all that a writer's schema writes, and if not, where and why.

What lives here: the rules of schema resolution as Java's `SchemaCompatibility` applies them, one `Incompatibility` for each breach.
What does not: which versions are compared (`levels`), the text of HTTP answers (`service`).
Source: Avro 1.11 specification, "Schema Resolution"; verdicts, kinds and paths compared with Confluent's Java client 7.5.3.
"""

from dataclasses import dataclass
from typing import Final

from busway_registry.domain.avro.schema import (
    MISSING,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
)

_PROMOTIONS: Final = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Incompatibility:
    """One breach.

    Attributes:
        kind: Java's `SchemaIncompatibilityType`, such as `READER_FIELD_MISSING_DEFAULT_VALUE`.
        path: where in the reader's schema, as a JSON pointer: `/fields/1/type`.
        info: the short fact: a field's name, the missing symbols, the two types.
        remedy: what to change.
    """

    kind: str
    path: str
    info: str
    remedy: str


def incompatibilities(reader: Schema, writer: Schema) -> list[Incompatibility]:
    """All breaches, in the order of the reader's fields; empty when the reader can read everything."""
    return _Check().pair(reader, writer, ())


class _Check:
    def __init__(self) -> None:
        # Keyed by identity: the trees live as long as this check, and a recursive type meets itself as the same object.
        self._seen: dict[tuple[int, int], list[Incompatibility] | None] = {}

    def pair(self, reader: Schema, writer: Schema, path: tuple[str, ...]) -> list[Incompatibility]:
        key = (id(reader), id(writer))
        if key in self._seen:
            return self._seen[key] or []  # None: under way further up, so nothing new below
        self._seen[key] = None
        found = self._compare(reader, writer, path)
        self._seen[key] = found
        return found

    def _compare(self, reader: Schema, writer: Schema, path: tuple[str, ...]) -> list[Incompatibility]:
        if isinstance(writer, Union) and not isinstance(reader, Union):
            # Java starts a path of its own for each branch here; so the root is named.
            return [one for branch in writer.branches for one in self.pair(reader, branch, ())]
        match reader, writer:
            case Primitive(), Primitive() if reader.type == writer.type:
                return []
            case Array(), Array():
                return self.pair(reader.items, writer.items, (*path, "items"))
            case Map(), Map():
                return self.pair(reader.values, writer.values, (*path, "values"))
            case Fixed(), Fixed():
                return [*_names(reader, writer, path), *_sizes(reader, writer, path)]
            case Enum(), Enum():
                return [*_names(reader, writer, path), *_symbols(reader, writer, path)]
            case Record(), Record():
                return [*_names(reader, writer, path), *self._fields(reader, writer, path)]
            case Union(), Union():
                return self._unions(reader, writer, path)
            case Union(), _:
                if any(not self.pair(branch, writer, ()) for branch in reader.branches):
                    return []
                return [_missing_branch(reader, writer, path)]
            case Primitive(), Primitive() if writer.type in _PROMOTIONS.get(reader.type, ()):
                return []
        return [_mismatch(reader, writer, path)]

    def _unions(self, reader: Union, writer: Union, path: tuple[str, ...]) -> list[Incompatibility]:
        return [
            _missing_branch(reader, branch, (*path, str(number)))
            for number, branch in enumerate(writer.branches)
            if self.pair(reader, branch, ())
        ]

    def _fields(self, reader: Record, writer: Record, path: tuple[str, ...]) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        for number, field in enumerate(reader.fields):
            here = (*path, "fields", str(number))
            written = _written_as(field, writer)
            if len(written) > 1:
                names = ", ".join(one.name for one in written)
                found.append(
                    Incompatibility(
                        kind="NAME_MISMATCH",
                        path=_pointer(here),
                        info=f"{field.name} matches multiple fields of the writer: {names}",
                        remedy=f"remove the alias of field {field.name} that names a field which is still written",
                    )
                )
            elif written:
                found.extend(self.pair(field.schema, written[0].schema, (*here, "type")))
            elif field.default is MISSING:
                found.extend(self._absent(field, reader, writer, path, here))
        return found

    def _absent(
        self, field: Field, reader: Record, writer: Record, path: tuple[str, ...], here: tuple[str, ...]
    ) -> list[Incompatibility]:
        if isinstance(field.schema, Enum) and field.schema.default is not None:
            # As Java does: it compares the enum with the whole record. The verdict is right, the kind is not.
            return [_mismatch(field.schema, writer, (*path, "fields", "type"), field=field.name)]
        return [
            Incompatibility(
                kind="READER_FIELD_MISSING_DEFAULT_VALUE",
                path=_pointer(here),
                info=field.name,
                remedy=f"give field {field.name} of {reader.name} a default, or an alias that names the field it replaces",
            )
        ]


def _written_as(field: Field, writer: Record) -> list[Field]:
    names = dict.fromkeys((field.name, *field.aliases))
    return [one for name in names if (one := writer.field_named(name)) is not None]


def _names(reader: Named, writer: Named, path: tuple[str, ...]) -> list[Incompatibility]:
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return []
    return [
        Incompatibility(
            kind="NAME_MISMATCH",
            path=_pointer((*path, "name")),
            info=f"expected: {writer.name}",
            remedy=f"keep the name {writer.name}, or list it among the aliases of {reader.name}",
        )
    ]


def _sizes(reader: Fixed, writer: Fixed, path: tuple[str, ...]) -> list[Incompatibility]:
    if reader.size == writer.size:
        return []
    return [
        Incompatibility(
            kind="FIXED_SIZE_MISMATCH",
            path=_pointer((*path, "size")),
            info=f"expected: {writer.size}, found: {reader.size}",
            remedy=f"keep the size of {reader.name}; for another size use another field",
        )
    ]


def _symbols(reader: Enum, writer: Enum, path: tuple[str, ...]) -> list[Incompatibility]:
    lost = sorted(set(writer.symbols) - set(reader.symbols))
    if not lost or reader.default is not None:
        return []
    return [
        Incompatibility(
            kind="MISSING_ENUM_SYMBOLS",
            path=_pointer((*path, "symbols")),
            info=f"[{', '.join(lost)}]",
            remedy=f"keep the symbols of {reader.name}, or give the enum itself a default symbol",
        )
    ]


def _mismatch(reader: Schema, writer: Schema, path: tuple[str, ...], field: str | None = None) -> Incompatibility:
    remedy = "keep the type, or add a new field with a default beside the old one"
    if field is not None:
        remedy = f"field {field} is new: give the field a default; the default of its enum does not stand in for it"
    return Incompatibility(
        kind="TYPE_MISMATCH",
        path=_pointer(path),
        info=f"reader type: {_kind(reader)} not compatible with writer type: {_kind(writer)}",
        remedy=remedy,
    )


def _missing_branch(reader: Union, writer: Schema, path: tuple[str, ...]) -> Incompatibility:
    name = writer.name if isinstance(writer, Named) else writer.type
    same = any(
        isinstance(branch, Named) and isinstance(writer, Named) and branch.short_name == writer.short_name
        for branch in reader.branches
    )
    return Incompatibility(
        kind="MISSING_UNION_BRANCH",
        path=_pointer(path),
        info=f"reader union lacking writer type: {_kind(writer)}",
        remedy=f"make {name} inside the union able to read what was written" if same else f"keep {name} in the union",
    )


def _kind(schema: Schema) -> str:
    return "RECORD" if schema.type == "error" else schema.type.upper()


def _pointer(path: tuple[str, ...]) -> str:
    return "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)
