"""PostgreSQL's geometric types as Debezium's structs; the same values beside Debezium are in tests/conformance."""

import struct

import pytest

from busway_connect.postgres.geometry import READERS, box, circle, line, lseg, path, point, polygon


def points(wkb: bytes, header: str) -> list[tuple[float, float]]:
    """The points behind a WKB header."""
    return list(struct.iter_unpack("<dd", wkb[struct.calcsize(header) :]))


def test_points_and_lines() -> None:
    """Infinity and exponents as PostgreSQL prints them."""
    value = point("(1.5,-2e3)")
    assert (value["x"], value["y"], value["srid"]) == (1.5, -2000.0, None)
    assert struct.unpack("<BIdd", value["wkb"]) == (1, 1, 1.5, -2000.0)
    assert line("{0,-1,Infinity}") == {"a": 0.0, "b": -1.0, "c": float("inf")}
    assert circle("<(1,2),3>")["radius"] == 3.0


def test_rings_are_closed() -> None:
    """A box has five points, a polygon ends where it begins."""
    ring = points(box("(2,3),(0,1)")["wkb"], "<BIII")
    assert len(ring) == 5
    assert ring[0] == ring[-1]
    assert points(polygon("((0,0),(1,0),(0,1))")["wkb"], "<BIII") == [(0, 0), (1, 0), (0, 1), (0, 0)]
    assert len(points(polygon("((0,0),(1,0),(0,0))")["wkb"], "<BIII")) == 3


def test_a_path_says_whether_it_is_closed() -> None:
    """By its brackets."""
    assert path("[(0,0),(1,0)]")["extensions"] == {"type": "path", "closed": "false"}
    assert path("((0,0),(1,0))")["extensions"] == {"type": "path", "closed": "true"}
    assert points(lseg("[(0,0),(1,2)]")["wkb"], "<BII") == [(0, 0), (1, 2)]


@pytest.mark.parametrize("name", READERS)
def test_every_type_reads_the_text_for_a_missing_value(name: str) -> None:
    """The struct has the schema's fields."""
    schema, read, missing = READERS[name]
    assert {field.name for field in schema.fields} == set(read(missing))
