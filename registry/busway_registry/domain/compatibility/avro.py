"""Avro schema resolution: whether a reader's schema can read all of a writer's; if not, where and why.

Here: resolution as in Java's `SchemaCompatibility`, an `Incompatibility` for each breach.
Not here: choice of versions (`levels`), texts (`check`), limits (`breaches`).

Source: Avro 1.11 specification, "Schema Resolution"; verdicts, kinds and paths compared with Confluent's Java client
7.5.3.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
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
from busway_registry.domain.compatibility.breaches import (
    MOST_BREACHES,
    Breach,
    Breaches,
    Budget,
    Place,
    each,
    first,
    joined,
)

_PROMOTIONS: Final = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
_STEPS_TO_TELL: Final = 20
"""Cost of formatting a breach."""
_LOOKS_IN_A_STEP: Final = 16
"""Names that can be looked up for the cost of one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incompatibility:
    """A breach.

    Attributes:
        kind: Java's `SchemaIncompatibilityType`, such as `READER_FIELD_MISSING_DEFAULT_VALUE`.
        path: Java's location as a JSON pointer: `/fields/1/type`; restarts at the root inside some unions.
        info: a field's name, the missing symbols, the two types.
    """

    kind: str
    path: str
    where: str
    info: str
    remedy: str


_Breach: TypeAlias = Breach[Incompatibility]
_Found: TypeAlias = Breaches[Incompatibility]
_Steps: TypeAlias = Generator[tuple[Schema, Schema, Place], _Found, _Found]


def incompatibilities(
    reader: Schema, writer: Schema, *, budget: Budget | None = None, most: int = MOST_BREACHES
) -> list[Incompatibility]:
    """Return the breaches in the order of the reader's fields; empty if compatible. Raises `TooMuchWork`.

    Args:
        budget: what is left of the request's; by default a full one.
        most: limit; mutually referring types can have more breaches than fit into memory.
    """
    check = _Check(budget or Budget())
    under_way = [check.pair(reader, writer, Place())]
    answer: _Found = None
    fresh = True
    # An explicit stack: the depth of references is up to the client, and could exhaust the interpreter's.
    while under_way:
        try:
            under_way.append(check.pair(*(next(under_way[-1]) if fresh else under_way[-1].send(answer))))
            fresh = True
        except StopIteration as done:
            under_way.pop()
            answer, fresh = done.value, False
        except _Ambiguous as problem:
            return [problem.incompatibility]
    reported = []
    for breach in islice(each(answer), most):
        check.budget.spend(_STEPS_TO_TELL)
        reported.append(breach.describe())
    return reported


class _Ambiguous(Exception):
    """A field matches several of the writer's. Like Java, this ends the comparison."""

    def __init__(self, incompatibility: Incompatibility) -> None:
        self.incompatibility = incompatibility


class _Check:
    """Compares pairs; each comparison yields its inner pairs and receives their breaches."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        # Keyed by identity: the trees outlive this check, and a recursive type refers to the same object.
        self._seen: dict[tuple[int, int], _Found] = {}

    def pair(self, reader: Schema, writer: Schema, at: Place) -> _Steps:
        self.budget.spend(1)
        key = (id(reader), id(writer))
        if key in self._seen:
            return self._seen[key]
        self._seen[key] = None  # a recursive visit adds no breach
        breaches = yield from self._compare(reader, writer, at)
        self._seen[key] = breaches
        return breaches

    def _compare(self, reader: Schema, writer: Schema, at: Place) -> _Steps:
        if isinstance(reader, Union):
            return (yield from self._union(reader, writer, at))
        if isinstance(writer, Union):
            breaches: list[_Found] = []
            for branch in writer.branches:
                breaches += [(yield (reader, branch, at.branch()))]
            return joined(breaches)
        match reader, writer:
            case Primitive(), Primitive() if reader.type == writer.type:
                return None
            case Array(), Array():
                return (yield (reader.items, writer.items, at.down("items")))
            case Map(), Map():
                return (yield (reader.values, writer.values, at.down("values")))
            case Fixed(), Fixed():
                return joined([self._names(reader, writer, at), _sizes(reader, writer, at)])
            case Enum(), Enum():
                return joined([self._names(reader, writer, at), self._symbols(reader, writer, at)])
            case Record(), Record():
                return joined([self._names(reader, writer, at), (yield from self._fields(reader, writer, at))])
            case Primitive(), Primitive() if writer.type in _PROMOTIONS.get(reader.type, ()):
                return None
        return Breach(partial(_mismatch, reader, writer, at))

    def _union(self, reader: Union, writer: Schema, at: Place) -> _Steps:
        if isinstance(writer, Union):
            breaches: list[_Found] = []
            for number, branch in enumerate(writer.branches):
                if inside := (yield (reader, branch, at.branch())):
                    cause = first(inside).cause
                    breaches.append(Breach(partial(_missing_branch, branch, at.down(number), at, cause), cause))
            return joined(breaches)
        cause = None
        for number, branch in enumerate(reader.branches):
            problems = yield (branch, writer, at.branch(number))
            if not problems:
                return None
            if isinstance(branch, Named) and isinstance(writer, Named) and branch.short_name == writer.short_name:
                cause = first(problems).cause or first(problems)
        return Breach(partial(_missing_branch, writer, at, at, cause), cause)

    def _fields(self, reader: Record, writer: Record, at: Place) -> _Steps:
        self.budget.spend(len(reader.fields))
        breaches: list[_Found] = []
        for number, field in enumerate(reader.fields):
            here = at.down("fields", number)
            written = self._written_as(field, writer)
            if len(written) > 1:
                raise _Ambiguous(_several(field, written, here))
            if written:
                breaches += [(yield (field.schema, written[0].schema, here.down("type")))]
            elif field.default is MISSING and isinstance(field.schema, Enum) and field.schema.default is not None:
                # Like Java, compares the enum with the whole record: the verdict is right, the kind is not.
                (breach,) = each((yield (field.schema, writer, here.down("type"))))
                breaches.append(Breach(partial(_new_enum, field, breach)))
            elif field.default is MISSING:
                breaches.append(Breach(partial(_absent, field, reader, here)))
        return joined(breaches)

    def _written_as(self, field: Field, writer: Record) -> list[Field]:
        self.budget.spend(len(field.aliases))
        names = (field.name, *field.aliases)  # an alias equal to the name counts twice, as in Java
        return [written for name in names if (written := writer.by_name.get(name)) is not None]

    def _names(self, reader: Named, writer: Named, at: Place) -> _Found:
        self.budget.spend(len(reader.aliases) // _LOOKS_IN_A_STEP)
        if reader.short_name == writer.short_name or writer.name in reader.aliases:
            return None
        return Breach(partial(_renamed, reader, writer, at))

    def _symbols(self, reader: Enum, writer: Enum, at: Place) -> _Found:
        self.budget.spend((len(reader.symbols) + len(writer.symbols)) // _LOOKS_IN_A_STEP)
        if reader.default is not None or set(writer.symbols).issubset(reader.symbols):
            return None
        return Breach(partial(_lost_symbols, reader, writer, at))


def _sizes(reader: Fixed, writer: Fixed, at: Place) -> _Found:
    return None if reader.size == writer.size else Breach(partial(_resized, reader, writer, at))


# Texts of breaches


def _several(field: Field, written: Sequence[Field], here: Place) -> Incompatibility:
    names = ", ".join(candidate.name for candidate in written)
    return Incompatibility(
        kind="NAME_MISMATCH",
        path=here.path(),
        where=here.where(),
        info=f"{field.name} matches multiple fields of the writer: {names}",
        remedy=f"remove the alias of field {field.name} that names a field which is still written",
    )


def _absent(field: Field, reader: Record, here: Place) -> Incompatibility:
    return Incompatibility(
        kind="READER_FIELD_MISSING_DEFAULT_VALUE",
        path=here.path(),
        where=here.where(),
        info=field.name,
        remedy=f"give field {field.name} of {reader.name} a default, or an alias that names the field it replaces",
    )


def _new_enum(field: Field, breach: _Breach) -> Incompatibility:
    remedy = f"field {field.name} is new: give it a default; the default of its enum does not stand in for that"
    return replace(breach.describe(), remedy=remedy)


def _renamed(reader: Named, writer: Named, at: Place) -> Incompatibility:
    at = at.down("name")
    return Incompatibility(
        kind="NAME_MISMATCH",
        path=at.path(),
        where=at.where(),
        info=f"expected: {writer.name}",
        remedy=f"keep the name {writer.name}, or list it among the aliases of {reader.name}",
    )


def _resized(reader: Fixed, writer: Fixed, at: Place) -> Incompatibility:
    at = at.down("size")
    return Incompatibility(
        kind="FIXED_SIZE_MISMATCH",
        path=at.path(),
        where=at.where(),
        info=f"expected: {writer.size}, found: {reader.size}",
        remedy=f"keep the size of {reader.name}; for another size use another field",
    )


def _lost_symbols(reader: Enum, writer: Enum, at: Place) -> Incompatibility:
    at = at.down("symbols")
    return Incompatibility(
        kind="MISSING_ENUM_SYMBOLS",
        path=at.path(),
        where=at.where(),
        info=f"[{', '.join(sorted(set(writer.symbols) - set(reader.symbols)))}]",
        remedy=f"keep the symbols of {reader.name}, or give the enum itself a default symbol",
    )


def _mismatch(reader: Schema, writer: Schema, at: Place) -> Incompatibility:
    return Incompatibility(
        kind="TYPE_MISMATCH",
        path=at.path(),
        where=at.where(),
        info=f"reader type: {_kind(reader)} not compatible with writer type: {_kind(writer)}",
        remedy="keep the type, or add a new field with a default beside the old one",
    )


def _missing_branch(writer: Schema, java: Place, at: Place, cause: _Breach | None) -> Incompatibility:
    """Report a missing branch like Java; `cause` is the breach in the branch of the same name, for the remedy."""
    hidden = cause.describe() if cause is not None else None
    return Incompatibility(
        kind="MISSING_UNION_BRANCH",
        path=java.path(),
        where=at.where(),
        info=f"reader union lacking writer type: {_kind(writer)}",
        remedy=f"at {hidden.where} {hidden.remedy}" if hidden is not None else f"keep {_name(writer)} in the union",
    )


def _name(schema: Schema) -> str:
    return schema.name if isinstance(schema, Named) else schema.type


def _kind(schema: Schema) -> str:
    return "RECORD" if schema.type == "error" else schema.type.upper()
