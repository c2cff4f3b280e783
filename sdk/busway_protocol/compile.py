"""Codecs: one straight-line encoder and decoder per message and version, compiled on first use.

Not here: the meaning of fields (`schema`).

The generated source is registered with `linecache`, for debuggers and tracebacks. Nested structures are inlined as
loops; adjacent fixed-width fields, and the length of the string or array behind them, use one `struct` call. Every
length is checked against the remaining bytes before an allocation. Record batches are never copied: they are decoded as
memoryviews and written by reference.
"""

import linecache
import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from busway_protocol.buffers import read_uvarint, uuid_of, uvarint
from busway_protocol.errors import MalformedMessage, UnencodableMessage
from busway_protocol.schema import Field, fields_of, info_of
from busway_protocol.types import Buffer, Kind

T = TypeVar("T")
Chunk = bytes | bytearray | memoryview
_Decode = Callable[[memoryview, int, int], tuple[Any, int]]

INLINE_BYTES: Final = 1024
"""Smaller records are copied, cheaper than a socket buffer; never lists, which may stand for bytes elsewhere."""

REQUEST_ELEMENTS_MAX: Final = 12_000
"""Maximum elements in all lists of a request. A server processes a request in one piece: a few megabytes with millions
of topics would block other requests for minutes. A topic of PARTITIONS_PER_TOPIC_MAX partitions still fits.
"""

STRING_BYTES_MAX: Final = 32_767
"""Maximum string length in UTF-8 bytes; compact strings keep the bound of the former two-byte length."""

_CODES: Final = {
    Kind.BOOL: "?",
    Kind.INT8: "b",
    Kind.INT16: "h",
    Kind.UINT16: "H",
    Kind.INT32: "i",
    Kind.UINT32: "I",
    Kind.INT64: "q",
    Kind.FLOAT64: "d",
    Kind.UUID: "16s",
}
_WIDTH: Final = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}

_ENCODERS: dict[tuple[type[Any], int], Callable[[Any], list[Chunk]]] = {}
_DECODERS: dict[tuple[type[Any], int, bool], _Decode] = {}


def encode(message: object, version: int) -> bytes:
    """Encode `message` in `version` as one piece; raise `UnencodableMessage`."""
    chunks = encode_chunks(message, version)
    return bytes(chunks[0]) if len(chunks) == 1 else b"".join(chunks)


def encode_chunks(message: object, version: int) -> list[Chunk]:
    """Encode `message` as consecutive pieces, with large record buffers by reference; raise `UnencodableMessage`."""
    cls: type[Any] = type(message)
    try:
        chunks: list[Chunk] = encoder(cls, version)(message)
    except (struct.error, AttributeError, TypeError, OverflowError, UnicodeEncodeError) as problem:
        raise UnencodableMessage(f"{cls.__name__} v{version}: {problem}") from problem
    return chunks


def decode(cls: type[T], version: int, buffer: Buffer, offset: int = 0) -> T:
    """Decode the message that fills `buffer` from `offset` to its end; raise `MalformedMessage`."""
    message, end = decode_from(cls, version, buffer, offset)
    if end != len(buffer):
        raise MalformedMessage(f"{cls.__name__} v{version}: {len(buffer) - end} bytes follow the message")
    return message


def decode_from(cls: type[T], version: int, buffer: Buffer, offset: int, *, bounded: bool = False) -> tuple[T, int]:
    """Return the message at `offset`, and its end; `bounded` to `REQUEST_ELEMENTS_MAX`, as all requests."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    try:
        maker: type[Any] = cls
        decoded: tuple[T, int] = decoder(maker, version, bounded=bounded)(view, offset, len(view))
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise MalformedMessage(f"{cls.__name__} v{version}: {problem}") from problem
    return decoded


def encoder(cls: type[Any], version: int) -> Callable[[Any], list[Chunk]]:
    made = _ENCODERS.get((cls, version))
    if made is None:
        _check_version(cls, version)
        made = _ENCODERS[cls, version] = _Encoder(cls, version).compiled()
    return made


def decoder(cls: type[Any], version: int, *, bounded: bool = False) -> _Decode:
    made = _DECODERS.get((cls, version, bounded))
    if made is None:
        _check_version(cls, version)
        made = _DECODERS[cls, version, bounded] = _Decoder(cls, version, bounded=bounded).compiled()
    return made


def _check_version(cls: type[Any], version: int) -> None:
    info = info_of(cls)
    if not info.min_version <= version <= info.max_version:
        known = f"{info.min_version} to {info.max_version}"
        raise UnencodableMessage(f"{cls.__name__} has the versions {known}, not {version}")


class _Source:
    """Lines of a generated function, and the objects that it refers to."""

    def __init__(self, cls: type[Any], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = info_of(cls).flexible(version)
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {}
        self.serial = 0

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def refer(self, stem: str, value: Any) -> str:
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.fresh(f"_{stem}")
        self.names[name] = value
        return name

    def function(self, signature: str) -> Callable[..., Any]:
        text = "\n".join([f"def {signature}:", *self.lines, ""])
        filename = f"<busway {signature.split('(', maxsplit=1)[0]} {self.cls.__name__} v{self.version}>"
        code = compile(text, filename, "exec")
        scope = dict(self.names)
        exec(code, scope)  # noqa: S102 - source generated from class definitions, never from input
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        made: Callable[..., Any] = scope[signature.split("(", maxsplit=1)[0]]
        assert callable(made)
        return made


class _Decoder(_Source):
    """Generator of `decode(b, p, end) -> (message, position)`: memoryview, position, limit for lengths."""

    def __init__(self, cls: type[Any], version: int, *, bounded: bool) -> None:
        super().__init__(cls, version)
        self.run: list[tuple[str, str]] = []  # format code, target
        self.bounded = bounded or info_of(cls).direction == "request"
        self.names.update(_read_uvarint=read_uvarint, _uuid_of=uuid_of, _short=_short, _bad=_bad, _many=_many)

    def compiled(self) -> _Decode:
        if self.bounded:
            self.put("elements = 0")
        made = self.structure(self.cls)
        self.put(f"return {made}, p")
        return self.function("decode(b, p, end)")

    def structure(self, cls: type[Any]) -> str:
        target = self.fresh("m")
        maker = self.refer(cls.__name__, cls)
        new = self.refer("new", object.__new__)
        self.put(f"{target} = {new}({maker})")
        self.put(f"{target}.unknown_tags = None")
        fields = fields_of(cls)
        tagged = []
        for field in fields:
            if not field.exists(self.version):
                self.default(target, field)
            elif field.tagged(self.version):
                self.default(target, field)
                tagged.append(field)
            else:
                self.value(field, f"{target}.{field.name}")
        self.flush()
        if self.flexible:
            self.tags(target, cls, tagged)
        return target

    def default(self, target: str, field: Field) -> None:
        value = field.default
        if isinstance(value, list):
            self.put(f"{target}.{field.name} = []")
        elif field.struct is not None and value is not None:
            self.put(f"{target}.{field.name} = {self.refer(field.struct.__name__, field.struct)}()")
        elif value is None or isinstance(value, bool | int | float | str | bytes):
            self.put(f"{target}.{field.name} = {value!r}")
        else:
            self.put(f"{target}.{field.name} = {self.refer('default', value)}")

    def tags(self, target: str, cls: type[Any], tagged: list[Field]) -> None:
        count, previous, number, size, stop = (self.fresh(stem) for stem in ("n", "last", "tag", "size", "stop"))
        self.uvarint(count)
        self.put(f"if {count}:")
        self.depth += 1
        self.put(f"{previous} = -1")
        self.put(f"for _ in range({count}):")
        self.depth += 1
        self.uvarint(number)
        self.uvarint(size)
        self.put(f"{stop} = p + {size}")
        self.put(f"if {stop} > end: _short({cls.__name__!r}, 'a tagged field', {size}, end - p)")
        self.put(f"if {number} <= {previous}: _bad({cls.__name__!r}, 'tags are not in ascending order')")
        self.put(f"{previous} = {number}")
        word = "if"
        for field in tagged:
            self.put(f"{word} {number} == {field.tag}:")
            word = "elif"
            self.depth += 1
            self.value(field, f"{target}.{field.name}")
            self.flush()
            self.put(f"if p != {stop}: _bad({field.name!r}, 'the tagged field has another size than announced')")
            self.depth -= 1
        if tagged:
            self.put("else:")
            self.depth += 1
        self.put(f"if {target}.unknown_tags is None: {target}.unknown_tags = {{}}")
        self.put(f"{target}.unknown_tags[{number}] = bytes(b[p:{stop}])")
        self.put(f"p = {stop}")
        self.depth -= 3 if tagged else 2

    def value(self, field: Field, target: str) -> None:
        """Generate the reading of a field; fixed-width ones wait for `flush`."""
        flexible = self.flexible and field.flexible
        if field.is_array:
            self.array(field, target, flexible)
        elif field.struct is not None:
            self.nested(field, target)
        elif field.kind in _CODES:
            self.run.append((_CODES[field.kind], target))
        else:
            self.sized(field, target, flexible)

    def flush(self, length_code: str | None = None) -> str:
        """Generate the reading of pending fields and a length; return the length's variable."""
        length = ""
        run = list(self.run)
        self.run.clear()
        if length_code:
            length = self.fresh("n")
            run.append((length_code, length))
        if not run:
            return length
        layout = struct.Struct(">" + "".join(code for code, _ in run))
        reader = self.refer_struct(layout)
        targets = ", ".join(target for _, target in run)
        self.put(f"{targets}{',' if len(run) == 1 else ''} = {reader}(b, p)")
        self.put(f"p += {layout.size}")
        for code, target in run:
            if code == "16s":
                self.put(f"{target} = _uuid_of({target})")
        return length

    def refer_struct(self, layout: struct.Struct) -> str:
        name = "_u" + "".join(char if char.isalnum() else "o" for char in layout.format[1:])
        self.names[name] = layout.unpack_from
        return name

    def uvarint(self, target: str) -> None:
        self.put(f"{target} = b[p]; p += 1")
        self.put(f"if {target} > 127: {target}, p = _read_uvarint(b, p - 1)")

    def length(self, flexible: bool, code: str) -> str:
        if not flexible:
            return self.flush(code)
        self.flush()
        length = self.fresh("n")
        self.uvarint(length)
        self.put(f"{length} -= 1")
        return length

    def absent(self, field: Field, target: str, length: str) -> None:
        if field.nullable(self.version):
            self.put(f"if {length} == -1: {target} = None")
            self.put(f"elif {length} < 0: _bad({field.name!r}, 'the length is negative')")
        else:
            self.put(f"if {length} < 0: _bad({field.name!r}, 'null or a negative length where none is allowed')")
        self.put("else:")

    def sized(self, field: Field, target: str, flexible: bool) -> None:
        length = self.length(flexible, "h" if field.kind is Kind.STRING else "i")
        self.absent(field, target, length)
        self.depth += 1
        stop = self.fresh("stop")
        if flexible and field.kind is Kind.STRING:
            self.put(
                f"if {length} > {STRING_BYTES_MAX}: _bad({field.name!r}, 'the string is longer than 32,767 bytes')"
            )
        self.put(f"{stop} = p + {length}")
        self.put(f"if {stop} > end: _short({self.cls.__name__!r}, {field.name!r}, {length}, end - p)")
        read = {Kind.STRING: "str(b[p:{}], 'utf-8')", Kind.BYTES: "bytes(b[p:{}])", Kind.RECORDS: "b[p:{}]"}
        assert field.kind is not None
        self.put(f"{target} = {read[field.kind].format(stop)}; p = {stop}")
        self.depth -= 1

    def nested(self, field: Field, target: str) -> None:
        assert field.struct is not None
        self.flush()
        if field.nullable(self.version):
            marker = self.fresh("n")
            self.put(f"{marker} = b[p]; p += 1")
            self.put(f"if {marker} == {0 if field.tagged(self.version) else 255}: {target} = None")
            self.put(f"elif {marker} != 1: _bad({field.name!r}, 'the marker of a structure is neither 1 nor -1')")
            self.put("else:")
            self.depth += 1
        self.put(f"{target} = {self.structure(field.struct)}")
        if field.nullable(self.version):
            self.depth -= 1

    def array(self, field: Field, target: str, flexible: bool) -> None:
        count = self.length(flexible, "i")
        self.absent(field, target, count)
        self.depth += 1
        least = self.least_bytes(field)
        self.put(f"if {count} * {least} > end - p: _short({self.cls.__name__!r}, {field.name!r}, {count}, end - p)")
        if self.bounded:
            self.put(f"elements += {count}")
            self.put(f"if elements > {REQUEST_ELEMENTS_MAX}: _many({self.cls.__name__!r}, {field.name!r})")
        if field.kind in _CODES and field.kind is not Kind.UUID:
            unpack = self.refer("unpack", struct.unpack_from)
            code = _CODES[field.kind]
            self.put(f"{target} = list({unpack}(f'>{{{count}}}{code}', b, p)); p += {count} * {least}")
        else:
            items, item = self.fresh("items"), self.fresh("item")
            self.put(f"{target} = {items} = []")
            self.put(f"for _ in range({count}):")
            self.depth += 1
            if field.struct is not None:
                item = self.structure(field.struct)
            else:
                element = _element(field)
                self.value(element, item)
                self.flush()
            self.put(f"{items}.append({item})")
            self.depth -= 1
        self.depth -= 1

    def least_bytes(self, field: Field) -> int:
        """Return the minimum size of one element, which exposes false counts."""
        if field.kind in _CODES:
            return _WIDTH[_CODES[field.kind]]
        if field.kind is not None:
            return 1 if self.flexible else (2 if field.kind is Kind.STRING else 4)
        total = 1 if self.flexible else 0
        for inner in fields_of(field.struct or object):
            if inner.exists(self.version) and not inner.tagged(self.version):
                if inner.is_array:
                    total += 1 if self.flexible else 4
                elif inner.struct is not None and inner.nullable(self.version):
                    total += 1
                else:
                    total += self.least_bytes(inner)
        return max(total, 1)


class _Encoder(_Source):
    """Generator of `encode(m) -> list of chunks`, which fills the bytearray `w`."""

    def __init__(self, cls: type[Any], version: int) -> None:
        super().__init__(cls, version)
        self.run: list[tuple[str, str]] = []  # format code, expression
        self.names.update(_uvarint=uvarint, _refuse=_refuse, _records=_records)

    def compiled(self) -> Callable[[Any], list[Chunk]]:
        self.put("w = bytearray(); chunks = [w]")
        self.structure(self.cls, "m")
        self.put("if not w and len(chunks) > 1: chunks.pop()  # behind records that end the message")
        self.put("return chunks")
        return self.function("encode(m)")

    def structure(self, cls: type[Any], source: str) -> None:
        tagged = []
        for field in fields_of(cls):
            expression = f"{source}.{field.name}"
            if not field.exists(self.version):
                self.absent(cls, field, expression)
            elif field.tagged(self.version):
                tagged.append(field)
            else:
                self.value(field, expression)
        self.flush()
        if self.flexible:
            self.tags(source, tagged)

    def absent(self, cls: type[Any], field: Field, expression: str) -> None:
        if not field.ignorable:
            default = self.constant(field)
            self.put(f"if {expression} != {default}: _refuse({cls.__name__!r}, {field.name!r}, {self.version})")

    def constant(self, field: Field) -> str:
        value = field.default
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        if value == []:
            return "[]"
        return self.refer("default", value)

    def tags(self, source: str, tagged: list[Field]) -> None:
        unknown = f"{source}.unknown_tags"
        if not tagged:
            self.put(f"if {unknown} is None: w.append(0)")
            self.put("else:")
            self.depth += 1
        parts = self.fresh("parts")
        self.put(f"{parts} = dict({unknown}) if {unknown} else {{}}")
        for field in tagged:
            expression = f"{source}.{field.name}"
            self.put(f"if {expression} != {self.constant(field)}:")
            self.depth += 1
            outer = self.fresh("outer")
            self.put(f"{outer} = w; w = bytearray()")
            self.value(field, expression)
            self.flush()
            self.put(f"{parts}[{field.tag}] = w; w = {outer}")
            self.depth -= 1
        self.put(f"if not {parts}: w.append(0)")
        self.put("else:")
        part = self.fresh("part")
        self.put(f"    w += _uvarint(len({parts}))")
        self.put(f"    for tag in sorted({parts}):")
        self.put(f"        {part} = {parts}[tag]; w += _uvarint(tag); w += _uvarint(len({part})); w += {part}")
        if not tagged:
            self.depth -= 1

    def value(self, field: Field, expression: str) -> None:
        flexible = self.flexible and field.flexible
        if field.is_array:
            self.array(field, expression, flexible)
        elif field.struct is not None:
            self.nested(field, expression)
        elif field.kind is Kind.UUID:
            self.run.append(("16s", f"{expression}.bytes"))
        elif field.kind in _CODES:
            self.run.append((_CODES[field.kind], expression))
        elif field.kind is Kind.RECORDS:
            self.records(expression, flexible)
        else:
            self.sized(field, expression, flexible)

    def flush(self, code: str | None = None, expression: str | None = None) -> None:
        run = list(self.run)
        self.run.clear()
        if code and expression:
            run.append((code, expression))
        if not run:
            return
        layout = struct.Struct(">" + "".join(layout_code for layout_code, _ in run))
        name = "_p" + "".join(char if char.isalnum() else "o" for char in layout.format[1:])
        self.names[name] = layout.pack
        self.put(f"w += {name}({', '.join(source for _, source in run)})")

    def length(self, flexible: bool, code: str, expression: str) -> None:
        if not flexible:
            self.flush(code, expression)
            return
        self.flush()
        length = self.fresh("n")
        self.put(f"{length} = {expression} + 1")
        self.put(f"if {length} < 128: w.append({length})")
        self.put(f"else: w += _uvarint({length})")

    def null(self, field: Field, value: str, flexible: bool, code: str) -> None:
        self.put(f"if {value} is None:")
        if not field.nullable(self.version):
            self.put(f"    _refuse({self.cls.__name__!r}, {field.name!r}, {self.version}, 'null')")
        elif flexible:
            self.put("    w.append(0)")
        else:
            self.put(f"    w += {struct.pack('>' + code, -1)!r}")
        self.put("else:")

    def sized(self, field: Field, expression: str, flexible: bool) -> None:
        code = "h" if field.kind is Kind.STRING else "i"
        value = self.fresh("v")
        if field.nullable(self.version):
            self.flush()
            self.put(f"{value} = {expression}")
            self.null(field, value, flexible, code)
            self.depth += 1
            self.put(f"{value} = {value}.encode()" if field.kind is Kind.STRING else f"{value} = bytes({value})")
            if flexible and field.kind is Kind.STRING:
                self.bounded(field, value)
            self.length(flexible, code, f"len({value})")
            self.put(f"w += {value}")
            self.depth -= 1
            return
        self.put(f"{value} = {expression}{'.encode()' if field.kind is Kind.STRING else ''}")
        if flexible and field.kind is Kind.STRING:
            self.bounded(field, value)
        self.length(flexible, code, f"len({value})")
        self.put(f"w += {value}")

    def bounded(self, field: Field, value: str) -> None:
        """Refuse a string beyond the bound, which compact lengths would accept."""
        where = f"{self.cls.__name__!r}, {field.name!r}, {self.version}"
        self.put(f"if len({value}) > {STRING_BYTES_MAX}: _refuse({where}, 'the length')")

    def records(self, expression: str, flexible: bool) -> None:
        """Generate record buffers: they end the current chunk and follow by reference."""
        value, size, pieces = self.fresh("v"), self.fresh("size"), self.fresh("pieces")
        self.flush()
        self.put(f"{value} = {expression}")
        self.put(f"if {value} is None: w += {(bytes(1) if flexible else struct.pack('>i', -1))!r}")
        self.put("else:")
        self.depth += 1
        self.put(f"{size}, {pieces} = _records({value})")
        self.length(flexible, "i", size)
        self.put(f"if {size} < {INLINE_BYTES} and {pieces} is not {value}: w += {value}")
        self.put(f"else: chunks.extend({pieces}); w = bytearray(); chunks.append(w)")
        self.depth -= 1

    def nested(self, field: Field, expression: str) -> None:
        assert field.struct is not None
        self.flush()
        if not field.nullable(self.version):
            self.structure(field.struct, expression)
            return
        value = self.fresh("v")
        self.put(f"{value} = {expression}")
        self.put(f"if {value} is None: w.append({0 if field.tagged(self.version) else 255})")
        self.put("else:")
        self.depth += 1
        self.put("w.append(1)")
        self.structure(field.struct, value)
        self.depth -= 1

    def array(self, field: Field, expression: str, flexible: bool) -> None:
        items, item = self.fresh("items"), self.fresh("item")
        self.flush()
        self.put(f"{items} = {expression}")
        self.null(field, items, flexible, "i")
        self.depth += 1
        self.length(flexible, "i", f"len({items})")
        if field.kind in _CODES and field.kind is not Kind.UUID:
            pack = self.refer("pack", struct.pack)
            self.put(f"w += {pack}(f'>{{len({items})}}{_CODES[field.kind]}', *{items})")
        else:
            self.put(f"for {item} in {items}:")
            self.depth += 1
            self.put("pass")
            if field.struct is not None:
                self.structure(field.struct, item)
            else:
                self.value(_element(field), item)
                self.flush()
            self.depth -= 1
        self.depth -= 1


def _element(field: Field) -> Field:
    return Field(
        name=field.name,
        kind=field.kind,
        struct=field.struct,
        is_array=False,
        since=0,
        until=field.until,
        nullable_since=1,
        nullable_until=0,
        tag=None,
        tagged_since=field.tagged_since,
        ignorable=False,
        flexible=field.flexible,
        entity=field.entity,
        default=None,
    )


def _records(value: Buffer | list[Buffer]) -> tuple[int, list[Buffer]]:
    pieces = value if isinstance(value, list) else [value]
    return sum(map(len, pieces)), pieces


def _short(where: str, field: str, wanted: int, left: int) -> NoReturn:
    raise MalformedMessage(f"{where}: {field} announces {wanted}, but only {left} bytes are left")


def _many(where: str, field: str) -> NoReturn:
    raise MalformedMessage(
        f"{where}: with {field} it has more than {REQUEST_ELEMENTS_MAX:,} elements in its lists; ask for them in several requests"
    )


def _bad(where: str, problem: str) -> NoReturn:
    raise MalformedMessage(f"{where}: {problem}")


def _refuse(where: str, field: str, version: int, what: str = "the value set") -> NoReturn:
    raise UnencodableMessage(f"{where} v{version} cannot carry {what} of {field}")


__all__ = ["decode", "decode_from", "decoder", "encode", "encode_chunks", "encoder"]
