"""Every verdict on Avro schemas against Confluent's own Java client: accepted or not, text, incompatibilities, levels, GUIDs."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.conformance.registry.oracle import Refused, RegistryOracle
from tests.conformance.registry.schemas import mutated, pairs, schemas

from busway_registry.domain.avro.canonical import canonical
from busway_registry.domain.avro.parser import AvroError, parse
from busway_registry.domain.compatibility.avro import incompatibilities
from busway_registry.domain.compatibility.check import Earlier, explain
from busway_registry.domain.compatibility.levels import Level
from busway_registry.domain.schemas import Artifact, Reference, SchemaRequest, build

pytestmark = [pytest.mark.java, pytest.mark.slow]

RUN = settings(
    max_examples=1200,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SEED = 20261121
"""The same schemas in every run."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[RegistryOracle]:
    """One JVM for the whole module."""
    with RegistryOracle() as running:
        yield running


def agree_on_text(oracle: RegistryOracle, text: str) -> bool:
    """Whether both accept it; they must agree, and write it alike."""
    try:
        ours = parse(text)
    except AvroError as problem:
        with pytest.raises(Refused):
            print(f"we refuse {text}: {problem}; Java: {oracle.parse(text)}")
        return False
    reading = oracle.parse(text)
    assert canonical(ours.schema) == reading.canonical
    if reading.normalized is not None:
        assert canonical(ours.schema, normalize=True) == reading.normalized
    return True


def agree_on_pair(oracle: RegistryOracle, reader: str, writer: str) -> None:
    breaches = [
        (breach.kind, breach.path, breach.info)
        for breach in incompatibilities(parse(reader).schema, parse(writer).schema)
    ]
    if [breach for breach in breaches if "matches multiple fields" in breach[2]]:
        with pytest.raises(Refused, match="matches multiple fields"):
            oracle.compare(reader, writer)
        assert len(breaches) == 1
    else:
        assert breaches == oracle.compare(reader, writer)


def test_random_schemas_and_pairs(oracle: RegistryOracle) -> None:
    """Random schemas, and ones grown out of them: both sides accept the same, write the same, and find the same breaches."""

    @RUN
    @seed(SEED)
    @given(pairs())
    def run(pair: tuple[Any, Any]) -> None:
        texts = [json.dumps(schema) for schema in pair]
        accepted = [text for text in texts if agree_on_text(oracle, text)]
        if len(accepted) == 2:
            agree_on_pair(oracle, texts[0], texts[1])
            agree_on_pair(oracle, texts[1], texts[0])

    run()


def test_random_damage(oracle: RegistryOracle) -> None:
    """Schemas with up to eight random changes: both sides accept the same ones."""

    @RUN
    @seed(SEED)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        agree_on_text(oracle, json.dumps(data.draw(mutated(data.draw(schemas()), most=8))))

    run()


ODD_TEXTS = [
    "",
    " ",
    "{}",
    "[]",
    "null",
    "1",
    '"string" 1',
    '"string" "string"',
    '{"type": "string"} }',
    '"string" // a comment',
    '/* a comment */ {"type": /**/ "string"}',
    '"string" /* without an end',
    '"string" /*/',
    '{"type": "string", "doc": "http://not.a.comment/*neither*/"}',
    "'string'",
    '{"type": "string",}',
    '{type: "string"}',
    '{"type": "string", "type": "int"}',
    '{"type": {"type": "string"}}',
    '{"type": ["null", "string"]}',
    '{"type": "record", "name": "R"}',
    '{"type": "record", "name": "R", "fields": {}}',
    '{"type": "record", "name": "int", "fields": []}',
    '{"type": "record", "name": "a.int", "fields": [{"name": "f", "type": ["null", "a.int"]}]}',
    '{"type": "error", "name": "E", "fields": []}',
    '{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}',
    '{"type": "enum", "name": "E", "symbols": ["A"], "default": null}',
    '{"type": "enum", "name": "E"}',
    '{"type": "fixed", "name": "F", "size": -1}',
    '{"type": "fixed", "name": "F", "size": 1.0}',
    '{"type": "array"}',
    '{"type": "map", "values": null}',
    '["null", "null"]',
    '["null", ["string"]]',
    '[{"type": "array", "items": "int"}, {"type": "array", "items": "string"}]',
    '[{"type": "bytes"}, {"type": "bytes", "logicalType": "decimal", "precision": 4}]',
    '{"type": "record", "name": "Ünïcödé", "fields": [{"name": "日本", "type": "int"}]}',
    '{"type": "record", "name": "R\U0001f600", "fields": []}',
    '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "float", "default": " 1.5e3f "}]}',
    '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "double", "default": "-Infinity"}]}',
    '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "double", "default": "one"}]}',
    '{"type": "record", "name": "R", "fields": [{"name": "f", "type": ["double"], "default": "NaN"}]}',
    '{"type": "record", "name": "R", "fields": [{"name": "f", "type": ["double"], "default": "1.5"}]}',
    '{"type": "record", "name": "R", "fields": [{"name": "f", "type": {"type": "map", "values": "float"}, "default": {"k": "NaN"}}]}',
    '{"type": "record", "name": "R", "fields": [{"name": "s", "default": {}, "type": {"type": "record", "name": "S", "fields": '
    '[{"name": "f", "type": "float", "default": "NaN"}]}}]}',
    '{"type": "record", "name": "R", "fields": [{"name": "s", "default": {"f": "NaN"}, "type": {"type": "record", "name": "S", '
    '"fields": [{"name": "f", "type": "float", "default": "NaN"}]}}]}',
    '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "long", "default": 1.0}]}',
    '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "string", "order": "Descending"}]}',
    '{"type": "record", "name": "R", "aliases": ["1"], "fields": []}',
    '{"type": "record", "name": "R", "namespace": "n", "aliases": ["F", ".F", "n.F"], "fields": []}',
    '{"type": "record", "name": "R", "aliases": ["F", ".F"], "fields": []}',
    '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "int", "aliases": ["1 2"]}]}',
    '{"type": "bytes", "logicalType": "decimal", "precision": 2147483648, "scale": 1, "a": 1}',
    '{"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1, "a": 1}',
    '{"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5, "scale": 1, "a": 1}',
    '{"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid", "a": 1}',
    '{"type": "fixed", "name": "F", "size": 15, "logicalType": "uuid", "a": 1}',
    '{"type": "string", "logicalType": "uuid", "avro.java.string": "String"}',
    '{"type": "string", "logicalType": "uuid", "avro.java.string": null}',
    '{"type": "bytes", "java-class": "x", "logicalType": "decimal", "precision": 4}',
    '{"type": "long", "java-key-class": "x", "java-element-class": 1, "logicalType": "timestamp-millis"}',
    '\ufeff"string"',
    '"string"\u00a0',
    '"string"\x00',
]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts(oracle: RegistryOracle, text: str) -> None:
    """The corners of JSON and of the grammar, one by one."""
    agree_on_text(oracle, text)


ENUM = '{"type":"enum","name":"E","symbols":["A"],"default":"A"}'
ODD_PAIRS = [
    (f'{{"type":"record","name":"R","fields":[{{"name":"a","type":"int"}},{{"name":"e","type":{ENUM}}}]}}', '{"type":"record","name":"R","fields":[]}'),
    (f'{{"type":"record","name":"R","fields":[{{"name":"e","type":{ENUM}}},{{"name":"f","type":"E"}}]}}', '{"type":"record","name":"R","fields":[]}'),
    (f'["null",{{"type":"record","name":"R","fields":[{{"name":"e","type":{ENUM}}}]}}]', '["null",{"type":"record","name":"R","fields":[]}]'),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer"), ODD_PAIRS)
def test_odd_pairs(oracle: RegistryOracle, reader: str, writer: str) -> None:
    """Pairs that random ones seldom hit."""
    agree_on_pair(oracle, reader, writer)


@pytest.mark.parametrize("level", list(Level))
def test_levels(oracle: RegistryOracle, level: Level) -> None:
    """Random histories at each level: the same verdict, and the same kinds of breaches in the same order."""

    @settings(RUN, max_examples=150)
    @seed(SEED)
    @given(st.lists(pairs(), min_size=1, max_size=2))
    def run(history: list[tuple[Any, Any]]) -> None:
        texts = []
        for schema in history:
            for text in map(json.dumps, schema):
                try:
                    parse(text)
                except AvroError:
                    continue
                texts.append(text)
        if not texts:
            return
        *earlier, new = texts
        messages = oracle.check(level.value, new, earlier)
        known = [Earlier(version=number, artifact=artifact(text)) for number, text in enumerate(earlier, 1)]
        explained = explain(artifact(new), [], known[::-1], level)
        assert bool(explained) == bool(messages), (texts, explained, messages)
        if not any("matches multiple" in message for message in messages):
            assert kinds(explained) == kinds(messages), (texts, explained, messages)

    run()


def artifact(text: str) -> Artifact:
    return build(SchemaRequest(text=text), [], normalize=False)


def kinds(messages: list[str]) -> list[str]:
    return [message.partition("errorType:'")[2].partition("'")[0] for message in messages if "errorType" in message]


REQUESTS: list[dict[str, Any]] = [
    {"schema": '"string"'},
    {"schema": '"string"', "references": [{"name": "n", "subject": "s", "version": 258}]},
    {"schema": '"string"', "metadata": {"properties": {"b": "2", "a": "1"}}},
    {
        "schema": '"string"',
        "metadata": {"tags": {"z": ["q", "p"], "a": []}, "properties": {"é": "ü"}, "sensitive": ["y", "x"]},
    },
    {
        "schema": '"string"',
        "ruleSet": {
            "migrationRules": [{"name": "m", "kind": "TRANSFORM", "mode": "UPGRADE", "type": "JSONATA", "expr": "$"}],
            "domainRules": [
                {
                    "name": "d",
                    "doc": "what it is for",
                    "kind": "CONDITION",
                    "mode": "WRITE",
                    "type": "CEL",
                    "tags": ["T2", "T1"],
                    "params": {"k2": "v2", "k1": "v1"},
                    "expr": "true",
                    "onSuccess": "NONE",
                    "onFailure": "DLQ",
                    "disabled": True,
                },
                {"name": "e", "disabled": False},
            ],
        },
    },
    {"schema": '"string"', "metadata": {"properties": {"a": "1"}}, "ruleSet": {"domainRules": [{"name": "d"}]}},
]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_guid(oracle: RegistryOracle, request_: dict[str, Any]) -> None:
    """The bytes behind a GUID are those that Confluent's own classes feed to MD5."""
    artifact_made = Artifact(
        text=request_["schema"],
        schema_type="AVRO",
        references=tuple(Reference(**reference) for reference in request_.get("references", [])),
        metadata=request_.get("metadata"),
        rule_set=request_.get("ruleSet"),
    )
    assert artifact_made.guid.hex == oracle.guid_bytes(request_)


def test_references(oracle: RegistryOracle) -> None:
    """Types from references are named, not written out, in both forms."""
    inner = '{"type":"record","name":"Inner","namespace":"a","fields":[{"name":"f","type":"int"}]}'
    for text in (
        '{"type":"record","name":"Outer","namespace":"a","fields":[{"name":"x","type":"Inner"},{"name":"y","type":"a.Inner"}]}',
        '{"type":"record","name":"Outer","namespace":"b","fields":[{"name":"x","type":["null","a.Inner"]}]}',
        '"a.Inner"',
        '["null","a.Inner"]',
    ):
        ours, java = parse(text, [inner]), oracle.parse(text, {"a.Inner": inner})
        assert canonical(ours.schema, referenced=ours.referenced) == java.canonical
        assert canonical(ours.schema, normalize=True, referenced=ours.referenced) == java.normalized
    with pytest.raises(Refused):
        oracle.parse(inner, {"a.Inner": inner})
    with pytest.raises(AvroError, match="redefine"):
        parse(inner, [inner])


def test_types_inside_references(oracle: RegistryOracle) -> None:
    """Where we part from Java on purpose: it writes out a type that stands inside a reference, and then cannot read its own text
    beside that reference; we name it.
    """
    outer = '{"type":"record","name":"n.O","fields":[{"name":"i","type":{"type":"fixed","name":"I","size":1}}]}'
    text = '["null","n.I"]'
    ours = parse(text, [outer])
    assert canonical(ours.schema, referenced=ours.referenced) == text
    java = oracle.parse(text, {"n.O": outer}).canonical
    assert java == '["null",{"type":"fixed","name":"I","namespace":"n","size":1}]'
    with pytest.raises(Refused, match="Can't redefine"):
        oracle.parse(java, {"n.O": outer})
    assert oracle.parse(text, {"n.O": outer}).normalized is None
