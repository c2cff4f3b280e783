"""How schemas are written: the canonical form in which they are kept and compared, and the normal form."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from tests.conformance.registry.schemas import schemas

from busway_registry.domain.avro.canonical import canonical
from busway_registry.domain.avro.json_text import dump_json
from busway_registry.domain.avro.parser import AvroError, parse

CANONICAL = {
    "a primitive in an object": ('{"type": "string"}', '"string"'),
    "its properties stay": ('{"x": 1, "type": "int", "logicalType": "date"}', '{"type":"int","x":1,"logicalType":"date"}'),
    "order of attributes": (
        '{"aliases": ["S"], "x": 1, "fields": [], "doc": "d", "namespace": "n", "name": "R", "type": "record"}',
        '{"type":"record","name":"R","namespace":"n","doc":"d","fields":[],"x":1,"aliases":["S"]}',
    ),
    "order in a field": (
        '{"type":"record","name":"R","fields":[{"x":1,"aliases":["g"],"order":"ignore","default":1,"doc":"d","type":"int","name":"f"}]}',
        '{"type":"record","name":"R","fields":[{"name":"f","type":"int","doc":"d","default":1,"order":"ignore","aliases":["g"],"x":1}]}',
    ),
    "ascending is not said": (
        '{"type":"record","name":"R","fields":[{"name":"f","type":"int","order":"ASCENDING"}]}',
        '{"type":"record","name":"R","fields":[{"name":"f","type":"int"}]}',
    ),
    "a full name is split": (
        '{"type":"fixed","name":"a.b.F","size":1}',
        '{"type":"fixed","name":"F","namespace":"a.b","size":1}',
    ),
    "the namespace around is not said": (
        '{"type":"record","name":"n.R","fields":[{"name":"f","type":{"type":"fixed","name":"n.F","size":1}},{"name":"g","type":"n.F"}]}',
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":{"type":"fixed","name":"F","size":1}},{"name":"g","type":"F"}]}',
    ),
    "no namespace inside one": (
        '{"type":"record","name":"n.R","fields":[{"name":"f","type":{"type":"fixed","name":"F","namespace":"","size":1}}]}',
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":{"type":"fixed","name":"F","namespace":"","size":1}}]}',
    ),
    "a name like a kind of type stays full": (
        '{"type":"record","name":"n.R","fields":[{"name":"f","type":{"type":"fixed","name":"n.map","size":1}},{"name":"g","type":"n.map"}]}',
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":{"type":"fixed","name":"map","size":1}},{"name":"g","type":"n.map"}]}',
    ),
    "aliases are shortened": (
        '{"type":"enum","name":"n.E","symbols":["A"],"default":"A","aliases":["n.X","m.Y","Z"]}',
        '{"type":"enum","name":"E","namespace":"n","symbols":["A"],"default":"A","aliases":["X","m.Y","Z"]}',
    ),
    "Java's numbers": (
        '{"type":"int","a":1e20,"b":1.50,"c":1e-5,"d":-0.0,"e":10000000.0,"f":100,"g":123456789012345678901}',
        '{"type":"int","a":1.0E20,"b":1.5,"c":1.0E-5,"d":-0.0,"e":1.0E7,"f":100,"g":123456789012345678901}',
    ),
    "characters": ('{"type":"int","x":"\\u00e9\\/\\u001f\\u2028\\\\u001f"}', '{"type":"int","x":"é/\\u001F\u2028\\\\u001f"}'),
    "empty documentation stays": ('{"type":"fixed","name":"F","doc":"","size":1}', '{"type":"fixed","name":"F","doc":"","size":1}'),
}  # fmt: skip

NORMAL = {
    "properties are sorted, deeply": (
        '{"type":"map","values":"int","z":{"b":1,"a":[{"d":1,"c":2}]},"a":2}',
        '{"type":"map","values":"int","a":2,"z":{"a":[{"c":2,"d":1}],"b":1}}',
    ),
    "a known logical type comes first": (
        '{"type":"bytes","a":1,"scale":2,"precision":9,"logicalType":"decimal"}',
        '{"type":"bytes","logicalType":"decimal","precision":9,"scale":2,"a":1}',
    ),
    "an unknown one does not": ('{"type":"bytes","logicalType":"x","a":1}', '{"type":"bytes","a":1,"logicalType":"x"}'),
    "nor a decimal that cannot be": (
        '{"type":"fixed","name":"F","size":1,"logicalType":"decimal","precision":9,"a":1}',
        '{"type":"fixed","name":"F","size":1,"a":1,"logicalType":"decimal","precision":9}',
    ),
    "aliases are sorted by full name": (
        '{"type":"enum","name":"n.E","symbols":[],"aliases":["z.A","Y","n.X"]}',
        '{"type":"enum","name":"E","namespace":"n","symbols":[],"aliases":["X","Y","z.A"]}',
    ),
    "field aliases too; order, doc and default stay": (
        '{"type":"record","name":"R","fields":[{"name":"f","type":"int","aliases":["b","a"],"doc":"","order":"descending","default":1}]}',
        '{"type":"record","name":"R","fields":[{"name":"f","type":"int","doc":"","default":1,"order":"descending","aliases":["a","b"]}]}',
    ),
    "defaults are spelt by their type": (
        '{"type":"record","name":"R","fields":[{"name":"f","type":"double","default":1},{"name":"g","type":["float"],"default":0.10}]}',
        '{"type":"record","name":"R","fields":[{"name":"f","type":"double","default":1.0},{"name":"g","type":["float"],"default":0.1}]}',
    ),
    "empty documentation of a type goes": ('{"type":"fixed","name":"F","doc":"","size":1}', '{"type":"fixed","name":"F","size":1}'),
}  # fmt: skip


@pytest.mark.parametrize(("text", "written"), CANONICAL.values(), ids=CANONICAL)
def test_canonical(text: str, written: str) -> None:
    """Compact, in Java's order, nothing dropped; and its own canonical form."""
    assert canonical(parse(text).schema) == written
    assert canonical(parse(written).schema) == written


@pytest.mark.parametrize(("text", "written"), NORMAL.values(), ids=NORMAL)
def test_normal(text: str, written: str) -> None:
    """Sorted where order means nothing; and its own normal form."""
    assert canonical(parse(text).schema, normalize=True) == written
    assert canonical(parse(written).schema, normalize=True) == written


def test_types_of_references_are_named() -> None:
    """They are not written out."""
    inner = '{"type":"fixed","name":"n.F","size":1}'
    parsed = parse('{"type":"array","items":["null",{"type":"n.F"}]}', [inner])
    assert canonical(parsed.schema, referenced=parsed.referenced) == '{"type":"array","items":["null","n.F"]}'


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(schemas())
def test_both_forms_are_fixed_points(schema: Any) -> None:
    """Reading what was written in either form, and writing it again, changes nothing."""
    try:
        parsed = parse(json.dumps(schema))
    except AvroError:
        assume(False)
    for normalize in (False, True):
        written = canonical(parsed.schema, normalize=normalize)
        try:
            again = parse(written)
        except AvroError:
            assert normalize  # Java's normal form loses namespaces; such a schema is then refused
            continue
        assert canonical(again.schema) == written


@pytest.mark.parametrize(
    ("number", "text"),
    [(5e-324, "4.9E-324"), (1.7976931348623157e308, "1.7976931348623157E308"), (0.001, "0.001"), (9999999.5, "9999999.5"), (-2.5e-7, "-2.5E-7"), (100.0, "100.0")],
)  # fmt: skip
def test_doubles(number: float, text: str) -> None:
    """`Double.toString`, with the fewest digits that name the number."""
    assert dump_json(number) in {text, "5.0E-324"}  # JDK 19 and newer write the least double so


def test_aliases_that_are_written_alike() -> None:
    """`F` is in the namespace, `.F` in none: two names, one spelling. Java writes both, and one in normal form."""
    text = '{"type":"record","name":"R","namespace":"n","fields":[],"aliases":["F",".F","n.F"]}'
    assert canonical(parse(text).schema).endswith('"aliases":["F","F"]}')
    assert canonical(parse(text).schema, normalize=True).endswith('"aliases":["F"]}')
