"""Whether a reader's Avro schema can read all that a writer's schema writes, and if not, where and why.

What lives here: the rules of schema resolution as Java's `SchemaCompatibility` applies them, one `Incompatibility` for each breach.
What does not: which versions are compared (`levels`), the text of HTTP answers (`service`).
Source: Avro 1.11 specification, "Schema Resolution"; verdicts, kinds and paths compared with Confluent's Java client 7.5.3.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

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
_MOST_PAIRS: Final = 200_000
"""A few seconds; two unions of six hundred types each stay below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incompatibility:
    """One breach.

    Attributes:
        kind: Java's `SchemaIncompatibilityType`, such as `READER_FIELD_MISSING_DEFAULT_VALUE`.
        path: Java's location of it, as a JSON pointer: `/fields/1/type`; it starts again at the root inside some unions.
        where: the whole way to it in the reader's schema.
        info: the short fact: a field's name, the missing symbols, the two types.
        remedy: what to change.
    """

    kind: str
    path: str
    where: str
    info: str
    remedy: str


@dataclass(frozen=True, slots=True)
class _At:
    """A place in the reader's schema: as Java tells it, and in full."""

    path: tuple[str, ...] = ()
    where: tuple[str, ...] = ()

    def down(self, *steps: str) -> "_At":
        return _At((*self.path, *steps), (*self.where, *steps))

    def branch(self, *steps: str) -> "_At":
        """Inside a union, where Java starts a path of its own."""
        return _At((), (*self.where, *steps))


_Found: TypeAlias = list[Incompatibility]
_Steps: TypeAlias = Generator[tuple[Schema, Schema, _At], _Found, _Found]


def incompatibilities(reader: Schema, writer: Schema) -> list[Incompatibility]:
    """All breaches, in the order of the reader's fields; empty when the reader can read everything.

    Raises:
        TooManyPairs: the comparison would keep other clients waiting.
    """
    check = _Check()
    under_way = [check.pair(reader, writer, _At())]
    answer: _Found | None = None
    # The checks run on a stack of ours: how deep types refer to one another is up to the client, the interpreter's stack is not.
    while under_way:
        try:
            under_way.append(check.pair(*(next(under_way[-1]) if answer is None else under_way[-1].send(answer))))
            answer = None
        except StopIteration as done:
            under_way.pop()
            answer = done.value
        except _Ambiguous as problem:
            return [problem.found]
    assert answer is not None
    return answer


class TooManyPairs(ValueError):
    """The comparison would take too long."""


class _Ambiguous(Exception):
    """A field may stand for several of the writer's; Java gives up on the whole comparison, and so do we."""

    def __init__(self, found: Incompatibility) -> None:
        self.found = found


class _Check:
    """The comparison of one pair after another; each asks for the pairs inside it by yielding them."""

    def __init__(self) -> None:
        # Keyed by identity: the trees live as long as this check, and a recursive type meets itself as the same object.
        self._seen: dict[tuple[int, int], _Found | None] = {}

    def pair(self, reader: Schema, writer: Schema, at: _At) -> _Steps:
        key = (id(reader), id(writer))
        if key in self._seen:
            return self._seen[key] or []  # None: under way further up, so nothing new below
        if len(self._seen) == _MOST_PAIRS:
            raise TooManyPairs(
                f"the two schemas have more than {_MOST_PAIRS} pairs of types to compare; split their unions"
            )
        self._seen[key] = None
        found = yield from self._compare(reader, writer, at)
        self._seen[key] = found
        return found

    def _compare(self, reader: Schema, writer: Schema, at: _At) -> _Steps:
        if isinstance(reader, Union):
            return (yield from self._union(reader, writer, at))
        if isinstance(writer, Union):
            found: _Found = []
            for branch in writer.branches:
                found += yield (reader, branch, at.branch())
            return found
        match reader, writer:
            case Primitive(), Primitive() if reader.type == writer.type:
                return []
            case Array(), Array():
                return (yield (reader.items, writer.items, at.down("items")))
            case Map(), Map():
                return (yield (reader.values, writer.values, at.down("values")))
            case Fixed(), Fixed():
                return [*_names(reader, writer, at), *_sizes(reader, writer, at)]
            case Enum(), Enum():
                return [*_names(reader, writer, at), *_symbols(reader, writer, at)]
            case Record(), Record():
                return [*_names(reader, writer, at), *(yield from self._fields(reader, writer, at))]
            case Primitive(), Primitive() if writer.type in _PROMOTIONS.get(reader.type, ()):
                return []
        return [_mismatch(reader, writer, at)]

    def _union(self, reader: Union, writer: Schema, at: _At) -> _Steps:
        if isinstance(writer, Union):
            found: _Found = []
            for number, branch in enumerate(writer.branches):
                if inside := (yield (reader, branch, at.branch())):
                    found.append(_missing_branch(branch, at.down(str(number)), at, inside[0].remedy))
            return found
        cause = ""
        for number, branch in enumerate(reader.branches):
            problems = yield (branch, writer, at.branch(str(number)))
            if not problems:
                return []
            if isinstance(branch, Named) and isinstance(writer, Named) and branch.short_name == writer.short_name:
                deepest = problems[0].remedy
                cause = deepest if deepest.startswith("at /") else f"at {problems[0].where} {deepest}"
        return [_missing_branch(writer, at, at, cause or f"keep {_name(writer)} in the union")]

    def _fields(self, reader: Record, writer: Record, at: _At) -> _Steps:
        found: _Found = []
        for number, field in enumerate(reader.fields):
            here = at.down("fields", str(number))
            written = _written_as(field, writer)
            if len(written) > 1:
                raise _Ambiguous(_several(field, written, here))
            if written:
                found += yield (field.schema, written[0].schema, here.down("type"))
            elif field.default is MISSING and isinstance(field.schema, Enum) and field.schema.default is not None:
                # As Java does: it compares the enum with the whole record. The verdict is right, the kind is not.
                breaches = yield (field.schema, writer, here.down("type"))
                remedy = (
                    f"field {field.name} is new: give it a default; the default of its enum does not stand in for that"
                )
                found += [replace(one, remedy=remedy) for one in breaches]
            elif field.default is MISSING:
                found.append(_absent(field, reader, here))
        return found


def _several(field: Field, written: Sequence[Field], here: _At) -> Incompatibility:
    names = ", ".join(one.name for one in written)
    return Incompatibility(
        kind="NAME_MISMATCH",
        path=_pointer(here.path),
        where=_pointer(here.where),
        info=f"{field.name} matches multiple fields of the writer: {names}",
        remedy=f"remove the alias of field {field.name} that names a field which is still written",
    )


def _absent(field: Field, reader: Record, here: _At) -> Incompatibility:
    return Incompatibility(
        kind="READER_FIELD_MISSING_DEFAULT_VALUE",
        path=_pointer(here.path),
        where=_pointer(here.where),
        info=field.name,
        remedy=f"give field {field.name} of {reader.name} a default, or an alias that names the field it replaces",
    )


def _written_as(field: Field, writer: Record) -> list[Field]:
    names = (field.name, *field.aliases)  # an alias equal to the name counts twice, as in Java
    return [one for name in names if (one := writer.by_name.get(name)) is not None]


def _names(reader: Named, writer: Named, at: _At) -> list[Incompatibility]:
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return []
    return [
        Incompatibility(
            kind="NAME_MISMATCH",
            path=_pointer((*at.path, "name")),
            where=_pointer((*at.where, "name")),
            info=f"expected: {writer.name}",
            remedy=f"keep the name {writer.name}, or list it among the aliases of {reader.name}",
        )
    ]


def _sizes(reader: Fixed, writer: Fixed, at: _At) -> list[Incompatibility]:
    if reader.size == writer.size:
        return []
    return [
        Incompatibility(
            kind="FIXED_SIZE_MISMATCH",
            path=_pointer((*at.path, "size")),
            where=_pointer((*at.where, "size")),
            info=f"expected: {writer.size}, found: {reader.size}",
            remedy=f"keep the size of {reader.name}; for another size use another field",
        )
    ]


def _symbols(reader: Enum, writer: Enum, at: _At) -> list[Incompatibility]:
    lost = sorted(set(writer.symbols) - set(reader.symbols))
    if not lost or reader.default is not None:
        return []
    return [
        Incompatibility(
            kind="MISSING_ENUM_SYMBOLS",
            path=_pointer((*at.path, "symbols")),
            where=_pointer((*at.where, "symbols")),
            info=f"[{', '.join(lost)}]",
            remedy=f"keep the symbols of {reader.name}, or give the enum itself a default symbol",
        )
    ]


def _mismatch(reader: Schema, writer: Schema, at: _At) -> Incompatibility:
    return Incompatibility(
        kind="TYPE_MISMATCH",
        path=_pointer(at.path),
        where=_pointer(at.where),
        info=f"reader type: {_kind(reader)} not compatible with writer type: {_kind(writer)}",
        remedy="keep the type, or add a new field with a default beside the old one",
    )


def _missing_branch(writer: Schema, java: _At, at: _At, remedy: str) -> Incompatibility:
    return Incompatibility(
        kind="MISSING_UNION_BRANCH",
        path=_pointer(java.path),
        where=_pointer(at.where),
        info=f"reader union lacking writer type: {_kind(writer)}",
        remedy=remedy,
    )


def _name(schema: Schema) -> str:
    return schema.name if isinstance(schema, Named) else schema.type


def _kind(schema: Schema) -> str:
    return "RECORD" if schema.type == "error" else schema.type.upper()


def _pointer(path: tuple[str, ...]) -> str:
    return "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)
