"""What makes two schemas the same, their GUIDs, and the metadata and rules that go with them."""

from typing import Any

import pytest

from busway_registry.domain import contracts
from busway_registry.domain.errors import RegistryError
from busway_registry.domain.schemas import Artifact, Reference, SchemaRequest, build
from busway_registry.domain.subjects import LATEST, check_subject, parse_version

RULE = {"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true", "onFailure": "DLQ"}


def made(text: str = '"string"', *, normalize: bool = False, **more: Any) -> Artifact:
    return build(SchemaRequest(text=text, **more), [], normalize=normalize)


GUID = "095d71cf12556b9d5e330ad575b3df5d"
"""Of `"string"`, by Confluent's Java classes; tests/conformance/registry compares many more."""


def test_identity() -> None:
    """Schemas that are written differently and mean the same are the same; everything that counts tells them apart."""
    plain = made('{"type": "string"}')
    assert plain == made('"string"')
    others = [
        made('{"type":"string","x":1}'),
        made(metadata={"properties": {"a": "1"}}),
        made(metadata={"properties": {"a": "2"}}),
        made(metadata={"tags": {"a": ["1"]}}),
        made(metadata={"sensitive": ["a"]}),
        made(rule_set={"domainRules": [RULE]}),
        made(rule_set={"migrationRules": [RULE]}),
        made(rule_set={"domainRules": [{**RULE, "disabled": True}]}),
        made(references=(Reference(name="n", subject="s", version=1),)),
        made(references=(Reference(name="n", subject="s", version=2),)),
    ]
    assert len({schema.fingerprint for schema in [plain, *others]}) == len(others) + 1
    assert plain.guid.hex == GUID


def test_normal_form_sorts_references() -> None:
    """By name, and each once."""
    first, other = Reference(name="b", subject="s", version=1), Reference(name="a", subject="t", version=1)
    assert made(references=(first, other, first), normalize=True).references == (other, first)
    assert made(references=(first, other)).references == (first, other)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (SchemaRequest(text="  "), "empty"),
        (SchemaRequest(text='"x"'), "not a defined name"),
        (SchemaRequest(text='"int"', schema_type="PROTOBUF"), "PROTOBUF is not served"),
    ],
)
def test_refused(request_: SchemaRequest, why: str) -> None:
    """42201, with the reason."""
    with pytest.raises(RegistryError, match=why) as refusal:
        build(request_, [], normalize=False)
    assert refusal.value.code == 42201
    assert refusal.value.status == 422


def test_metadata_is_written_one_way() -> None:
    """Sorted, each name once, what is empty or unknown left out, numbers as text."""
    assert contracts.metadata(
        {"tags": {"b": ["y", "x", "y"], "a": []}, "properties": {"p": 1, "o": True}, "sensitive": [], "new": 1}
    ) == {"tags": {"a": [], "b": ["x", "y"]}, "properties": {"o": "true", "p": "1"}}
    assert contracts.metadata({}) is None
    assert contracts.metadata(None) is None


@pytest.mark.parametrize(
    "value",
    [
        [],
        "x",
        {"tags": []},
        {"tags": {"a": "b"}},
        {"tags": {"a": [[]]}},
        {"properties": {"a": None}},
        {"sensitive": {}},
    ],
)
def test_metadata_of_another_shape(value: Any) -> None:
    """400, as Confluent's JSON parser answers."""
    with pytest.raises(RegistryError) as refusal:
        contracts.metadata(value)
    assert refusal.value.code == 400


def test_rules_get_their_defaults() -> None:
    """A transformation on writing and reading, unless it says otherwise."""
    assert contracts.rule_set(
        {"domainRules": [{"name": "r", "tags": ["b", "a"], "params": {}, "disabled": False}]}
    ) == {"domainRules": [{"name": "r", "kind": "TRANSFORM", "mode": "WRITEREAD", "tags": ["a", "b"]}]}
    assert contracts.rule_set({"migrationRules": [], "later": 1}) is None


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"domainRules": [{"name": "1r"}]}, 42210),
        ({"domainRules": [{}]}, 42210),
        ({"domainRules": [RULE, RULE]}, 42210),
        ({"domainRules": [{**RULE, "kind": "OTHER"}]}, 42210),
        ({"domainRules": [{**RULE, "mode": "UPGRADE"}]}, 42210),
        ({"migrationRules": [RULE]}, 42210),
        ({"domainRules": {}}, 400),
        ({"domainRules": ["r"]}, 400),
        ({"domainRules": [{"name": ["r"]}]}, 400),
        ({"domainRules": [{"name": "r", "params": []}]}, 400),
        ("x", 400),
    ],
)
def test_bad_rules(value: Any, code: int) -> None:
    """42210 for what no rule may be, 400 for another shape."""
    with pytest.raises(RegistryError) as refusal:
        contracts.rule_set(value)
    assert refusal.value.code == code


@pytest.mark.parametrize("text", ["1", "0001", "2147483647"])
def test_versions(text: str) -> None:
    """From 1 to 2^31-1."""
    assert parse_version(text) == int(text)


@pytest.mark.parametrize("text", ["latest", "LATEST", "-1"])
def test_latest(text: str) -> None:
    """In any case, and as a number."""
    assert parse_version(text) == LATEST


@pytest.mark.parametrize("text", ["0", "-2", "2147483648", "1.0", "", "one", "\uff11", "0" * 20 + "9" * 20, "9" * 5000])
def test_bad_versions(text: str) -> None:
    """42202, however long."""
    with pytest.raises(RegistryError) as refusal:
        parse_version(text)
    assert refusal.value.code == 42202


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "a\x00", "\x7f", "__GLOBAL", "__EMPTY", "x" * 1025, ":.ctx:s", ":.:"]
)
def test_bad_subjects(name: str) -> None:
    """42208."""
    with pytest.raises(RegistryError) as refusal:
        check_subject(name)
    assert refusal.value.code == 42208


@pytest.mark.parametrize("name", ["a", "a b", "a/b", "a:b", "日本-value", "x" * 1024, "..", "%"])
def test_subjects(name: str) -> None:
    """Nearly anything is a name; the prefix of the default context is taken off."""
    assert check_subject(name) == name
    assert check_subject(f":.:{name}") == name
