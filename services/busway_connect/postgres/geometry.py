"""PostgreSQL's geometric types as Debezium's structs with WKB.

Here: schemas and functions, text → struct.
Not here: PostGIS.
"""

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from busway_connect.schema import Field, Schema

_FLOAT64: Final = Schema(type="float64")
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|Infinity|NaN)", re.IGNORECASE)
_Point = tuple[float, float]
_LINE_STRING: Final = 2
_POLYGON: Final = 3


def _struct(name: str, doc: str, version: int, **fields: Schema) -> Schema:
    members = tuple(Field(name=member, schema=schema) for member, schema in fields.items())
    return Schema(type="struct", name=f"io.debezium.data.geometry.{name}", version=version, doc=doc, fields=members)


POINT: Final = _struct(
    "Point",
    "Geometry (POINT)",
    1,
    x=_FLOAT64,
    y=_FLOAT64,
    wkb=Schema(type="bytes", optional=True),
    srid=Schema(type="int32", optional=True),
)
GEOMETRY: Final = _struct(
    "Geometry",
    "Geometry",
    2,
    wkb=Schema(type="bytes"),
    srid=Schema(type="int32", optional=True),
    extensions=Schema(type="map", optional=True, key_schema=Schema(type="string"), value_schema=Schema(type="string")),
)
LINE: Final = _struct("Line", "Geometry (LINE)", 1, a=_FLOAT64, b=_FLOAT64, c=_FLOAT64)
CIRCLE: Final = _struct("Circle", "Geometry (CIRCLE)", 1, center=POINT, radius=_FLOAT64)


def _numbers(text: str) -> list[float]:
    return [float(number) for number in _NUMBER.findall(text)]


def _points(text: str) -> list[_Point]:
    numbers = _numbers(text)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _pack(points: Sequence[_Point]) -> bytes:
    return b"".join(struct.pack("<dd", *point) for point in points)


def _line_string(points: Sequence[_Point]) -> bytes:
    return struct.pack("<BII", 1, _LINE_STRING, len(points)) + _pack(points)


def _polygon(ring: Sequence[_Point]) -> bytes:
    return struct.pack("<BIII", 1, _POLYGON, 1, len(ring)) + _pack(ring)


def _geometry(wkb: bytes, kind: str, **extensions: str) -> dict[str, Any]:
    return {"wkb": wkb, "srid": None, "extensions": {"type": kind, **extensions}}


def _point_of(x: float, y: float) -> dict[str, Any]:
    return {"x": x, "y": y, "wkb": struct.pack("<BIdd", 1, 1, x, y), "srid": None}


def point(text: str) -> dict[str, Any]:
    """`(x,y)`."""
    return _point_of(*_numbers(text))


def box(text: str) -> dict[str, Any]:
    """`(x1,y1),(x2,y2)`: two corners."""
    (left, bottom), (right, top) = _points(text)
    ring = [(left, bottom), (left, top), (right, top), (right, bottom), (left, bottom)]
    return _geometry(_polygon(ring), "box")


def lseg(text: str) -> dict[str, Any]:
    """`[(x1,y1),(x2,y2)]`."""
    return _geometry(_line_string(_points(text)), "lseg")


def path(text: str) -> dict[str, Any]:
    """`[(x,y),…]` when open, `((x,y),…)` when closed."""
    return _geometry(_line_string(_points(text)), "path", closed="false" if text.startswith("[") else "true")


def polygon(text: str) -> dict[str, Any]:
    """`((x,y),…)`."""
    ring = _points(text)
    return _geometry(_polygon(ring if ring[0] == ring[-1] and len(ring) > 1 else [*ring, ring[0]]), "polygon")


def line(text: str) -> dict[str, Any]:
    """`{A,B,C}`."""
    a, b, c = _numbers(text)
    return {"a": a, "b": b, "c": c}


def circle(text: str) -> dict[str, Any]:
    """`<(x,y),r>`."""
    x, y, radius = _numbers(text)
    return {"center": _point_of(x, y), "radius": radius}


READERS: Final[dict[str, tuple[Schema, Callable[[str], Any], str]]] = {
    "point": (POINT, point, "(0,0)"),
    "box": (GEOMETRY, box, "(0,0),(1,1)"),
    "lseg": (GEOMETRY, lseg, "[(0,0),(1,0)]"),
    "path": (GEOMETRY, path, "[(0,0),(1,0)]"),
    "polygon": (GEOMETRY, polygon, "((0,0),(1,0),(0,1))"),
    "line": (LINE, line, "{0,1,0}"),
    "circle": (CIRCLE, circle, "<(0,0),0>"),
}
"""By type: schema, reader, and text for a missing NOT NULL value."""
