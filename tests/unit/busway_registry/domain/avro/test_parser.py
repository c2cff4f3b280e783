"""What is an Avro schema and what is not, row by row, and that nothing a client sends breaks the parser."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conformance.registry.schemas import mutated, schemas

from busway_registry.domain.avro.canonical import canonical
from busway_registry.domain.avro.parser import AvroError, parse
from busway_registry.domain.avro.schema import Record


def record(*fields: str, name: str = '"name": "R"') -> str:
    return f'{{"type": "record", {name}, "fields": [{", ".join(fields)}]}}'


def field(rest: str, name: str = "f") -> str:
    return f'{{"name": "{name}", {rest}}}'


REFUSED = {
    "default of another type": (record(field('"type": "int", "default": "1"')), "invalid default"),
    "default out of range": (record(field('"type": "int", "default": 2147483648')), "invalid default 2147483648"),
    "default beyond a long": (record(field('"type": "long", "default": 9223372036854775808')), "invalid default"),
    "default 1.0 for a long": (record(field('"type": "long", "default": 1.0')), "must fit long"),
    "truth value for an int": (record(field('"type": "int", "default": true')), "invalid default true"),
    "number for a boolean": (record(field('"type": "boolean", "default": 1')), "invalid default"),
    "default without a sub-field": (
        record(field(f'"type": {record(field(chr(34) + "type" + chr(34) + ": " + chr(34) + "int" + chr(34)), name=chr(34) + "name" + chr(34) + ": " + chr(34) + "S" + chr(34))}, "default": {{}}')),
        "invalid default {}",
    ),
    "default of the record being read": (record(field('"type": "R", "default": {}')), "invalid default"),
    "null where null is not first": (record(field('"type": ["int", "null"], "default": null')), "first branch"),
    "default of the second branch": (record(field('"type": ["null", "int"], "default": 1')), "first branch of the union, null"),
    "array default with a wrong item": (record(field('"type": {"type": "array", "items": "int"}, "default": ["1"]')), "must fit array"),
    "map default with a wrong value": (record(field('"type": {"type": "map", "values": "int"}, "default": {"k": "1"}')), "must fit map"),
    "text that is no number": (record(field('"type": "double", "default": "one"')), "must fit double"),
    "field twice": (record(field('"type": "int"'), field('"type": "int"')), "duplicate field f"),
    "symbol twice": ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "duplicate symbol A"),
    "branch twice": ('["int", "int"]', "duplicate in union: int"),
    "branch twice by logical type": ('["int", {"type": "int", "logicalType": "date"}]', "duplicate in union"),
    "two arrays": ('[{"type": "array", "items": "int"}, {"type": "array", "items": "long"}]', "duplicate in union: array"),
    "union in a union": ('["int", ["null"]]', "may not hold another union"),
    "name with a dash": (record(name='"name": "a-b"'), 'illegal name "a-b"'),
    "name with a digit first": (record(name='"name": "1a"'), "illegal name"),
    "empty name": (record(name='"name": ""'), "illegal name"),
    "name that ends with a dot": (record(name='"name": "a."'), "illegal name"),
    "no name": ('{"type": "record", "fields": []}', "has no name"),
    "name of a primitive": (record(name='"name": "string"'), "name of a primitive type"),
    "field name with a space": (record(field('"type": "int"', name="a b")), "not a valid name of a field"),
    "symbol with a dash": ('{"type": "enum", "name": "E", "symbols": ["A-B"]}', "illegal symbol"),
    "alias with a dash": (record(name='"name": "R", "aliases": ["a-b"]'), "illegal alias"),
    "aliases that are no array": (record(name='"name": "R", "aliases": "S"'), "not an array of names"),
    "redefinition": (
        record(field('"type": {"type": "fixed", "name": "F", "size": 1}'), field('"type": {"type": "fixed", "name": "F", "size": 1}', name="g")),
        "can't redefine: F",
    ),
    "undefined name": ('"Nothing"', "not a defined name"),
    "undefined name of a field": (record(field('"type": "x.Y"')), '"x.Y" is not a defined name'),
    "enum default that is no symbol": ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "not one of its symbols"),
    "enum without symbols": ('{"type": "enum", "name": "E"}', "no array of symbols"),
    "fixed without a size": ('{"type": "fixed", "name": "F"}', "needs a size"),
    "negative size": ('{"type": "fixed", "name": "F", "size": -1}', "needs a size"),
    "array without items": ('{"type": "array"}', "has no items"),
    "map without values": ('{"type": "map"}', "has no values"),
    "record without fields": ('{"type": "record", "name": "R"}', "no array of fields"),
    "field without a type": (record('{"name": "f"}'), "R.f: no type"),
    "field that is no object": (record('"f"'), "not an object"),
    "unknown order": (record(field('"type": "int", "order": "up"')), "order is ascending"),
    "no type": ("{}", "no type"),
    "a schema wrapped in a type": ('{"type": {"type": "string"}}', "not wrapped"),
    "a number": ("1", "a schema is a name, an object or an array"),
    "dangling text": ('"string" "string"', "not JSON"),
    "a comment behind": ('"string" // text', "comments go inside"),
    "a comment without an end": ('"string" /* text', "no end"),
    "not JSON": ("{", "not JSON"),
    "nothing": ("", "not JSON"),
    "NaN": ('{"type": "string", "x": NaN}', "NaN is not JSON"),
    "a number without bounds": ('{"type": "string", "x": 1e400}', "out of range"),
    "five thousand digits": (f'{{"type": "string", "x": {"9" * 5000}}}', "too many digits"),
    "half of a surrogate pair": ('{"type": "string", "x": "\\ud800"}', "surrogate"),
    "deep schema": ('{"type": "array", "items": ' * 80 + '"int"' + "}" * 80, "nested"),
    "deep JSON": ("[" * 100_000, "nested"),
    "deep property": ('{"type": "string", "x": ' + "[" * 400 + "]" * 400 + "}", "nested"),
}  # fmt: skip

ACCEPTED = {
    "illegal namespace": record(name='"name": "R", "namespace": "a-b"'),
    "scale above precision": '{"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5}',
    "unknown logical type": '{"type": "string", "logicalType": "made-up"}',
    "logical type beside the type": record(field('"type": "int", "logicalType": "date"')),
    "comments": '/* a */ {"type": // b\n "string", "doc": "http://no/*comment*/"}',
    "letters of any alphabet": record(field('"type": "int"', name="größe"), name='"name": "日本"'),
    "text for a float": record(field('"type": "float", "default": "1.5"')),
    "text that no JSON number can be": record(field('"type": "double", "default": "-Infinity"')),
    "empty union": "[]",
    "empty enum": '{"type": "enum", "name": "E", "symbols": []}',
    "empty fixed": '{"type": "fixed", "name": "F", "size": 0}',
    "recursion": record(field('"type": ["null", "R"], "default": null')),
    "recursion in its namespace": record(field('"type": {"type": "array", "items": "R"}'), name='"name": "R", "namespace": "n"'),
    "name with its namespace": record(field('"type": "a.b.R"'), name='"name": "a.b.R"'),
    "white space around": ' \n\t"string"\r\n ',
}  # fmt: skip


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, why: str) -> None:
    """Each is refused, and the reason is reported."""
    with pytest.raises(AvroError) as refusal:
        parse(text)
    assert why in str(refusal.value)


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(text: str) -> None:
    """Each is accepted, as Java accepts it."""
    parse(text)


def test_references() -> None:
    """A type of a reference is known by its full name, and by its short one inside its namespace; they may build on one another."""
    first = '{"type": "enum", "name": "a.E", "symbols": ["A"]}'
    second = '{"type": "record", "name": "a.S", "fields": [{"name": "e", "type": "E"}]}'
    parsed = parse(record(field('"type": "a.S"')), [first, second])
    assert parsed.referenced == {"a.E", "a.S"}
    with pytest.raises(AvroError, match="not a defined name"):
        parse(record(field('"type": "S"')), [first, second])
    with pytest.raises(AvroError, match="not a defined name"):
        parse(record(field('"type": "a.S"')), [second])


@pytest.mark.parametrize("text", ["/*/" * 300_000, '"\\' * 500_000, '\\"' * 500_000, "//" * 500_000, '"' * 999_999])
def test_a_megabyte_of_nonsense(text: str) -> None:
    """Text made to keep a regular expression busy is refused at once."""
    with pytest.raises(AvroError):
        parse(text)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size", "default", "aliases", "order", "namespace", "x"]),
        inner | st.sampled_from(["record", "enum", "fixed", "array", "map", "int", "R"]),
        max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip
QUICK = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@QUICK
@given(ANY_JSON)
def test_any_json_is_a_schema_or_an_error(value: Any) -> None:
    """Arbitrary JSON is accepted or refused with `AvroError`; nothing else happens."""
    _accept_or_refuse(json.dumps(value))


@pytest.mark.slow
@QUICK
@given(st.data())
def test_damaged_schemas_are_schemas_or_errors(data: st.DataObject) -> None:
    """Valid schemas with many changes too; and what is accepted can be written and read again."""
    text = json.dumps(data.draw(mutated(data.draw(schemas()), most=10)))
    if _accept_or_refuse(text):
        again = canonical(parse(text).schema)
        assert canonical(parse(again).schema) == again


@QUICK
@given(st.text(max_size=40))
def test_any_text_is_a_schema_or_an_error(text: str) -> None:
    """Arbitrary text as well."""
    _accept_or_refuse(text)


def _accept_or_refuse(text: str) -> bool:
    try:
        parsed = parse(text)
    except AvroError:
        return False
    canonical(parsed.schema)
    canonical(parsed.schema, normalize=True)
    return True


@pytest.mark.slow
@pytest.mark.timeout(20)
def test_defaults_cost_what_they_are_long() -> None:
    """Each `{}` in a default is looked at once, however many fields it leaves out; so is each digit of a number in quotes."""
    fields = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(2000)]
    wide = {"type": "record", "name": "Wide", "fields": fields}
    empty = {"name": "a", "type": {"type": "array", "items": wide}, "default": [{}] * 20_000}
    parsed = parse(json.dumps({"type": "record", "name": "R", "fields": [empty]})).schema
    assert isinstance(parsed, Record)
    assert len(parsed.fields[0].default) == 20_000
    digits = {"name": "a", "type": "double", "default": "1" * 200_000 + "x"}
    with pytest.raises(AvroError, match="invalid default"):
        parse(json.dumps({"type": "record", "name": "R", "fields": [digits]}))


def test_defaults_of_records() -> None:
    """What is left out has a default of its own, what is there fits, and what is no field is passed over."""
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}]
    inner = {"type": "record", "name": "Inner", "fields": fields}
    for default, fits in (({"a": 1}, True), ({"a": 1, "x": []}, True), ({"b": 1}, False), ({"a": 1, "b": ""}, False)):
        text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "i", "type": inner, "default": default}]})
        if fits:
            parse(text)
        else:
            with pytest.raises(AvroError, match="invalid default"):
                parse(text)
