"""Every resource that is served and every error code of it, over HTTP, on both stores."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from tests.integration.registry.conftest import Client

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
WIDER = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
BROKEN = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"c","type":"int"}]}'


async def test_register_and_read_back(client: Client) -> None:
    """A new schema is version 1 with id 1; every way of reading it back tells the same."""
    made = await client.register("s", RECORD.replace(":", ": "))
    assert made.status == 200
    assert {name: made.body[name] for name in ("id", "version", "schema")} == {"id": 1, "version": 1, "schema": RECORD}
    assert len(made.body["guid"]) == 36
    assert "subject" not in made.body

    version = (await client.get("/subjects/s/versions/1")).body
    assert version == {**made.body, "subject": "s"}
    assert {"references", "metadata", "ruleSet", "deleted"}.isdisjoint(version)
    for name in ("latest", "LATEST", "-1"):
        assert (await client.get(f"/subjects/s/versions/{name}")).body == version
    assert (await client.get("/subjects/s/versions/1/schema")).body == json.loads(RECORD)
    assert (await client.get("/subjects")).body == ["s"]
    assert (await client.get("/subjects/s/versions")).body == [1]
    assert (await client.get("/subjects/s/versions/1/referencedby")).body == []
    assert (await client.post("/subjects/s", {"schema": RECORD})).body == version
    by_id = (await client.get("/schemas/ids/1")).body
    assert (by_id["schema"], by_id["guid"]) == (RECORD, version["guid"])
    assert "id" not in by_id
    assert (await client.get("/schemas/ids/1?fetchMaxId=TRUE&subject=s")).body["maxId"] == 1
    assert (await client.get("/schemas/ids/1?subject=s")).body["version"] == 1
    assert (await client.get("/schemas/ids/1/schema")).body == json.loads(RECORD)
    assert (await client.get("/schemas/ids/1/subjects")).body == ["s"]
    assert (await client.get("/schemas/ids/1/versions")).body == [{"subject": "s", "version": 1}]
    assert (await client.get(f"/schemas/guids/{version['guid']}")).body["schema"] == RECORD
    assert (await client.get(f"/schemas/guids/{version['guid']}/ids")).body == [{"context": ".", "id": 1}]
    assert (await client.get("/schemas")).body == [version]


async def test_the_same_schema_has_one_id(client: Client) -> None:
    """Again under the subject: nothing new. Under another: its version 1, the same id. Another schema: the next id."""
    assert (await client.register("s", RECORD)).body["id"] == 1
    assert (await client.register("s", f" {RECORD} ")).body["version"] == 1
    assert (await client.register("t", RECORD)).body["id"] == 1
    assert {name: (await client.register("s", WIDER)).body[name] for name in ("id", "version")} == {
        "id": 2,
        "version": 2,
    }
    assert (await client.register("s", RECORD)).body["version"] == 1
    assert (await client.get("/schemas/ids/1/subjects")).body == ["s", "t"]
    assert (await client.register("u", RECORD, metadata={"properties": {"owner": "x"}})).body["id"] == 3


async def test_normalize(client: Client) -> None:
    """`normalize=true`, in any case, and the setting of the same name: another spelling is the same schema."""
    schema = '{"type":"int","b":1,"a":2}'
    other = '{"type":"int","a":2,"b":1}'
    assert (await client.post("/subjects/s/versions?normalize=True", {"schema": schema})).body["schema"] == other
    assert (await client.post("/subjects/s/versions?normalize=False", {"schema": schema})).body["version"] == 2
    assert (await client.post("/subjects/s?normalize=TRUE", {"schema": schema})).body["version"] == 1
    assert (await client.put("/config/t", {"normalize": True})).body == {"normalize": True}
    assert (await client.register("t", schema)).body["schema"] == other


NAMES = ("a/b", "a:b", "ünïcödé-値", "a b+c", "100%", "a?b#c", "versions", "%2F", "a/", "...")


@pytest.mark.slow
async def test_names_of_subjects(client: Client) -> None:
    """Slashes, colons, spaces, any alphabet, percent signs: the name comes back as it went in."""
    for subject in NAMES:
        path = f"/subjects/{quote(subject, safe='')}"
        assert (await client.register(subject, RECORD)).status == 200
        assert (await client.get("/subjects")).body == [subject]
        assert (await client.get(f"{path}/versions/1")).body["subject"] == subject
        assert (await client.post(path, {"schema": RECORD})).body["subject"] == subject
        config = f"/config/{quote(subject, safe='')}"
        assert (await client.put(config, {"compatibility": "full"})).body == {"compatibility": "FULL"}
        assert (await client.get(config)).body == {"compatibilityLevel": "FULL"}
        assert (await client.delete(path)).body == [1]
        assert (await client.get("/subjects")).body == []


@pytest.mark.slow
async def test_what_is_not_there(client: Client) -> None:
    """404 with the code that says what is missing."""
    await client.register("s", RECORD)
    for method, path, body, code in (
        ("GET", "/subjects/x/versions", None, 40401),
        ("GET", "/subjects/x/versions/1", None, 40401),
        ("GET", "/subjects/x/versions/latest/schema", None, 40401),
        ("GET", "/subjects/x/versions/1/referencedby", None, 40401),
        ("POST", "/subjects/x", {"schema": RECORD}, 40401),
        ("DELETE", "/subjects/x", None, 40401),
        ("DELETE", "/subjects/x/versions/1", None, 40401),
        ("GET", "/subjects/s/versions/2", None, 40402),
        ("GET", "/subjects/s/versions/2/schema", None, 40402),
        ("DELETE", "/subjects/s/versions/2", None, 40402),
        ("POST", "/compatibility/subjects/s/versions/2", {"schema": RECORD}, 40402),
        ("POST", "/compatibility/subjects/x/versions/1", {"schema": RECORD}, 40402),
        ("POST", "/subjects/s", {"schema": WIDER}, 40403),
        ("GET", "/schemas/ids/99", None, 40403),
        ("GET", "/schemas/ids/0", None, 40403),
        ("GET", "/schemas/ids/-5", None, 40403),
        ("GET", f"/schemas/ids/{'9' * 40}", None, 40403),
        ("GET", f"/schemas/ids/{'0' * 12}{'9' * 30}", None, 40403),
        ("GET", "/schemas/ids/99/schema", None, 40403),
        ("GET", "/schemas/ids/99/subjects", None, 40403),
        ("GET", "/schemas/ids/99/versions", None, 40403),
        ("GET", "/schemas/guids/00000000-0000-0000-0000-000000000000", None, 40403),
        ("GET", "/schemas/guids/x", None, 40403),
        ("GET", "/config/x", None, 40408),
        ("DELETE", "/config/x", None, 40401),
        ("GET", "/mode/x", None, 40409),
        ("DELETE", "/mode/x", None, 40401),
        ("GET", "/schemas/ids/x", None, 404),
        ("GET", "/nothing", None, 404),
        ("GET", "/subjects/s/nothing", None, 404),
        ("GET", "/dek-registry/v1/keks", None, 404),
        ("GET", "/subjects?limit=x", None, 404),
    ):
        answer = await client.call(method, path, body)
        assert (answer.status, answer.code) == (404, code), (method, path)
    assert (await client.get("/subjects/x/versions")).body["message"] == "Subject 'x' not found."
    assert (await client.get("/subjects/s/versions/2")).body["message"] == "Version 2 not found."
    assert (await client.get("/schemas/ids/99")).body["message"] == "Schema 99 not found"
    assert (await client.post("/subjects/s", {"schema": WIDER})).body["message"] == "Schema not found"
    assert (await client.get("/schemas/guids/x/ids")).body == []


async def test_wrong_methods(client: Client) -> None:
    """405, in the same shape."""
    for method, path in (
        ("PUT", "/subjects"),
        ("GET", "/subjects/s"),
        ("PATCH", "/config"),
        ("DELETE", "/schemas/ids/1"),
        ("OPTIONS", "/mode"),
    ):
        answer = await client.call(method, path)
        assert (answer.status, answer.code) == (405, 405), (method, path)


REFUSED: list[tuple[Any, int]] = [
    ({"schema": ""}, 42201),
    ({"schema": None}, 42201),
    ({}, 42201),
    ({"schema": "{}"}, 42201),
    ({"schema": '"undefined"'}, 42201),
    ({"schema": RECORD, "schemaType": "NOTHING"}, 42201),
    ({"schema": RECORD, "references": [{"name": "n", "subject": "x", "version": 1}]}, 42201),
    ({"schema": RECORD, "references": [{"name": "n", "subject": "x", "version": -1}]}, 42201),
    ({"schema": RECORD, "version": 7}, 42201),
    ({"schema": RECORD, "id": 7}, 42205),
    ({"schema": RECORD, "ruleSet": {"domainRules": [{"name": "not a name"}]}}, 42210),
    ({"schema": f'"{"x" * 1_000_001}"'}, 42209),
]


async def test_schemas_that_are_refused(client: Client) -> None:
    """422 with the code that says why, and nothing is kept."""
    for body, code in REFUSED:
        answer = await client.post("/subjects/s/versions", body)
        assert (answer.status, answer.code) == (422, code), body
    assert (await client.get("/subjects")).body == []


async def test_compare_and_set(client: Client) -> None:
    """A version in the body is the one that comes next, or that of the same schema."""
    assert (await client.register("s", RECORD, version=1)).body["version"] == 1
    assert (await client.register("s", RECORD, version=1)).body["version"] == 1
    refused = await client.register("s", WIDER, version=3)
    assert refused.code == 42201
    assert "Version is not one more than previous version" in refused.body["message"]
    assert (await client.register("s", WIDER, version=-1)).body["version"] == 2


async def test_bad_versions(client: Client) -> None:
    """42202 with Confluent's words."""
    await client.register("s", RECORD)
    for version in ("0", "-2", "2147483648", "x", "1.5", "%20", f"1{'0' * 400}"):
        for method in ("GET", "DELETE"):
            answer = await client.call(method, f"/subjects/s/versions/{version}")
            assert (answer.status, answer.code) == (422, 42202)
            assert 'Allowed values are between [1, 2^31-1] and the string "latest"' in answer.body["message"]
        assert (await client.post(f"/compatibility/subjects/s/versions/{version}", {"schema": RECORD})).code == 42202


async def test_bad_subjects(client: Client) -> None:
    """42208."""
    for subject in ("%20", "a%0Ab", "%00", "%ff", "a%C3", "__GLOBAL", "x" * 1025, ":.ctx:s"):
        assert (await client.post(f"/subjects/{subject}/versions", {"schema": RECORD})).code == 42208
        assert (await client.put(f"/config/{subject}", {"compatibility": "NONE"})).code == 42208


async def test_incompatible(client: Client) -> None:
    """409 with the place, the cause and the earlier version; forced or at level NONE it goes through."""
    await client.register("s", RECORD)
    refused = await client.register("s", BROKEN)
    assert (refused.status, refused.code) == (409, 409)
    message = refused.body["message"]
    assert message.startswith(
        'Schema being registered is incompatible with an earlier schema for subject "s", details: ['
    )
    for part in ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1", "{oldSchemaVersion:1}", "compatibility:'BACKWARD'"):
        assert part in message
    assert (await client.get("/subjects/s/versions")).body == [1]
    assert (await client.post("/subjects/s/versions?force=true", {"schema": BROKEN})).body["version"] == 2
    await client.put("/config/s", {"compatibility": "NONE"})
    assert (await client.register("s", '"string"')).body["version"] == 3


async def test_compatibility(client: Client) -> None:
    """Against one version, the latest, or all that the level names; explained in full when asked."""
    path = "/compatibility/subjects/s/versions"
    assert (await client.post(f"{path}/latest", {"schema": RECORD})).body == {"is_compatible": True}
    assert (await client.post(path, {"schema": RECORD})).body == {"is_compatible": True}
    await client.register("s", RECORD)
    await client.register("s", WIDER)
    for version, schema, verdict in (
        ("1", BROKEN, False),
        ("latest", BROKEN, False),
        ("latest", WIDER, True),
        ("-1", RECORD, True),
    ):
        assert (await client.post(f"{path}/{version}", {"schema": schema})).body == {"is_compatible": verdict}
        verbose = (await client.post(f"{path}/{version}?verbose=TRUE", {"schema": schema})).body
        assert (verbose["is_compatible"], bool(verbose["messages"])) == (verdict, not verdict)
    assert (await client.post(path, {"schema": BROKEN})).body == {"is_compatible": False}
    assert (await client.post(path, {"schema": "{}"})).code == 42201
    explained = await client.post(f"{path}?verbose=true", {"schema": "{}"})
    assert (explained.status, explained.body["is_compatible"]) == (200, False)
    assert "no type" in explained.body["messages"][0]
    await client.delete("/subjects/s/versions/2")
    assert (await client.post(f"{path}/2", {"schema": RECORD})).code == 40402
    await client.put("/config/s", {"compatibility": "NONE"})
    assert (await client.post(path, {"schema": '"int"'})).body == {"is_compatible": True}
    assert (await client.post(f"{path}/1", {"schema": '"int"'})).body == {"is_compatible": True}


async def test_config(client: Client) -> None:
    """The subject's level, else the registry's; absent keeps, null clears; unknown fields are passed over."""
    assert (await client.get("/config")).body == {"compatibilityLevel": "BACKWARD"}
    assert (await client.put("/config", {"compatibility": "forward", "later": 1})).body == {"compatibility": "FORWARD"}
    assert (await client.get("/config")).body == {"compatibilityLevel": "FORWARD"}
    assert (await client.get("/config/s?defaultToGlobal=True")).body == {"compatibilityLevel": "FORWARD"}
    assert (await client.get("/config/s")).code == 40408
    await client.put("/config/s", {"compatibility": "FULL", "normalize": True})
    await client.put("/config/s", {"normalize": "False"})
    assert (await client.get("/config/s")).body == {"compatibilityLevel": "FULL", "normalize": False}
    await client.put("/config/s", {"compatibility": None, "normalize": None})
    assert (await client.get("/config/s")).body == {"compatibilityLevel": "FORWARD"}
    await client.put("/config/s", {"compatibility": "NONE"})
    assert (await client.delete("/config/s")).body == {"compatibilityLevel": "NONE"}
    assert (await client.delete("/config/s")).code == 40401
    assert (await client.delete("/config")).body == {"compatibilityLevel": "FORWARD"}
    assert (await client.get("/config")).body == {"compatibilityLevel": "BACKWARD"}
    for body, code in (
        ({"compatibility": "SIDEWAYS"}, 42203),
        ({"compatibility": 1}, 42203),
        ({"normalize": []}, 400),
        ({"alias": "t"}, 42205),
    ):
        assert (await client.put("/config/s", body)).code == code


async def test_mode(client: Client) -> None:
    """Read-only refuses every write; the subject's mode goes before the registry's, but for the override."""
    assert (await client.get("/mode")).body == {"mode": "READWRITE"}
    await client.register("s", RECORD)
    assert (await client.put("/mode/s", {"mode": "readonly"})).body == {"mode": "READONLY"}
    assert (await client.get("/mode/s")).body == {"mode": "READONLY"}
    for method, path, body in (
        ("POST", "/subjects/s/versions", {"schema": WIDER}),
        ("DELETE", "/subjects/s", None),
        ("DELETE", "/subjects/s/versions/1", None),
        ("PUT", "/config/s", {"compatibility": "NONE"}),
        ("DELETE", "/config/s", None),
    ):
        refused = await client.call(method, path, body)
        assert (refused.status, refused.code) == (422, 42205), (method, path)
    assert (await client.register("t", RECORD)).status == 200
    assert (await client.post("/subjects/s", {"schema": RECORD})).status == 200
    assert (await client.delete("/mode/s")).body == {"mode": "READONLY"}
    await client.put("/mode", {"mode": "READONLY_OVERRIDE"})
    await client.put("/mode/s", {"mode": "READWRITE"})
    assert (await client.register("s", WIDER)).code == 42205
    assert (await client.put("/mode", {"mode": None})).body == {}
    assert (await client.get("/mode")).body == {"mode": "READWRITE"}
    assert (await client.get("/mode/x?defaultToGlobal=true")).body == {"mode": "READWRITE"}
    for body in ({"mode": "SIDEWAYS"}, {"mode": 1}, {}):
        assert (await client.put("/mode/s", body)).code == 42204


async def test_metadata_is_inherited(client: Client) -> None:
    """What a new version leaves out it takes from the latest one; what it brings is its own; again is the same version."""
    await client.put("/config", {"compatibility": "NONE"})
    owner = {"properties": {"owner": "x"}}
    rules = {"domainRules": [{"name": "r", "type": "CEL", "expr": "true"}]}
    await client.register("s", RECORD, metadata=owner, ruleSet=rules)
    made = await client.register("s", WIDER)
    assert (made.body["version"], made.body["metadata"]) == (2, owner)
    assert made.body["ruleSet"]["domainRules"][0]["name"] == "r"
    assert (await client.get("/subjects/s/versions/2")).body["metadata"] == owner
    assert (await client.register("s", WIDER)).body["version"] == 2
    assert (await client.post("/subjects/s", {"schema": WIDER})).body["version"] == 2
    other = {"properties": {"owner": "y", "confluent:version": "1"}}
    made = await client.register("s", WIDER, metadata=other)
    assert (made.body["version"], made.body["metadata"]["properties"]["confluent:version"]) == (3, "3")
    assert "ruleSet" in made.body
    assert (await client.register("s", WIDER)).body["version"] == 3
    assert (await client.register("s", '"int"')).body["metadata"]["properties"] == {
        "owner": "y",
        "confluent:version": "4",
    }
    await client.put("/mode/t", {"mode": "IMPORT"})
    assert "metadata" not in (await client.register("t", RECORD, id=90)).body


async def test_latest_with_metadata(client: Client) -> None:
    """The newest version that has all the properties; soft-deleted ones if asked for."""
    await client.put("/config", {"compatibility": "NONE"})
    for text, properties in ((RECORD, {"a": "1", "b": "2"}), (WIDER, {"a": "1", "b": "3"}), ('"int"', {"a": "2"})):
        await client.register("s", text, metadata={"properties": properties})
    for query, version in (("key=a&value=1", 2), ("key=a&value=1&key=b&value=2", 1), ("key=a&value=2", 3), ("", 3)):
        assert (await client.get(f"/subjects/s/metadata?{query}")).body["version"] == version
    assert (await client.get("/subjects/s/metadata?key=a&value=9")).code == 40403
    assert (await client.get("/subjects/x/metadata?key=a&value=1")).code == 40401
    await client.delete("/subjects/s/versions/3")
    assert (await client.get("/subjects/s/metadata")).body["version"] == 2
    assert (await client.get("/subjects/s/metadata?deleted=true")).body["version"] == 3


async def test_import(client: Client) -> None:
    """Ids and versions as the client gives them; an id is never given to a second schema, and counting goes on above."""
    await client.register("s", RECORD)
    assert (await client.put("/mode/s", {"mode": "IMPORT"})).code == 42205
    assert (await client.put("/mode", {"mode": "IMPORT"})).code == 42205
    assert (await client.put("/mode/t", {"mode": "IMPORT"})).status == 200
    assert (await client.register("t", WIDER)).code == 42205
    assert (await client.register("t", WIDER, id=1)).code == 42205
    assert (await client.register("t", WIDER, id=100, version=5)).body["version"] == 5
    assert (await client.register("t", BROKEN, id=100)).code == 42205
    assert (await client.register("t", RECORD, id=2)).code == 42207
    assert (await client.register("t", WIDER, id=101)).code == 42207
    assert (await client.register("t", WIDER, id=100)).body["version"] == 5
    spaced = '{"type":"int","b":1,"a":2}'
    await client.put("/config/t", {"normalize": True})
    assert (await client.post("/subjects/t/versions?normalize=true", {"schema": spaced, "id": 90})).body[
        "schema"
    ] == spaced
    await client.delete("/subjects/t/versions/6")
    assert (await client.register("t", '"int"', id=99, version=3)).body["id"] == 99
    assert (await client.get("/subjects/t/versions")).body == [3, 5]
    assert (await client.register("u", '"long"')).body["id"] == 101
    assert (await client.register("t", '"float"', id=2**31 - 1)).body["id"] == 2**31 - 1
    refused = await client.register("u", '"double"')
    assert (refused.code, "no more ids" in refused.body["message"]) == (42205, True)
    for number in (2**31, -7, "1", True, [], 1.5):
        assert (await client.register("t", '"bytes"', id=number)).code == 400


async def test_soft_deletion(client: Client) -> None:
    """A deleted version is hidden, not gone: its id still reads, those who ask for deleted ones see it."""
    await client.register("s", RECORD)
    await client.register("s", WIDER)
    assert (await client.delete("/subjects/s/versions/latest")).body == 2
    assert (await client.get("/subjects/s/versions")).body == [1]
    assert (await client.get("/subjects/s/versions?deleted=true")).body == [1, 2]
    assert (await client.get("/subjects/s/versions?deletedOnly=true")).body == [2]
    assert (await client.get("/subjects/s/versions/latest")).body["version"] == 1
    assert (await client.get("/subjects/s/versions/2")).code == 40402
    assert (await client.get("/subjects/s/versions/2?deleted=True")).body["deleted"] is True
    assert (await client.get("/schemas/ids/2")).body["schema"] == WIDER
    assert (await client.get("/schemas/ids/2/subjects")).body == []
    assert (await client.get("/schemas/ids/2/subjects?deleted=true")).body == ["s"]
    assert (await client.post("/subjects/s", {"schema": WIDER})).code == 40403
    assert (await client.post("/subjects/s?deleted=true", {"schema": WIDER})).body["version"] == 2
    assert (await client.delete("/subjects/s/versions/2")).code == 40406
    assert (await client.delete("/subjects/s/versions/1?permanent=true")).code == 40407
    assert (await client.register("s", WIDER)).body["version"] == 3
    assert (await client.get("/subjects/s/versions?deleted=true")).body == [1, 3]
    assert (await client.get("/schemas/ids/2/versions")).body == [{"subject": "s", "version": 3}]


async def test_permanent_deletion(client: Client) -> None:
    """In two steps; then versions start again at 1, and ids do not."""
    await client.register("s", RECORD)
    await client.register("s", WIDER)
    await client.put("/config/s", {"compatibility": "NONE"})
    await client.put("/mode/s", {"mode": "READWRITE"})
    assert (await client.delete("/subjects/s?permanent=true")).code == 40405
    assert (await client.delete("/subjects/s")).body == [1, 2]
    assert (await client.get("/subjects")).body == []
    assert (await client.get("/subjects?deleted=true")).body == ["s"]
    assert (await client.get("/subjects?deletedOnly=true")).body == ["s"]
    assert (await client.delete("/subjects/s")).code == 40404
    assert (await client.get("/subjects/s/versions")).code == 40401
    assert (await client.delete("/subjects/s/versions/1?permanent=true")).body == 1
    assert (await client.delete("/subjects/s?permanent=true")).body == [2]
    assert (await client.get("/subjects?deleted=true")).body == []
    assert (await client.get("/schemas/ids/1")).code == 40403
    assert (await client.get("/config/s")).code == 40408
    assert (await client.get("/mode/s")).code == 40409
    again = await client.register("s", '"int"')
    assert (again.body["version"], again.body["id"]) == (1, 3)


async def test_references(client: Client) -> None:
    """Types of other subjects, by number or latest; a version that is referred to cannot go."""
    inner = '{"type":"record","name":"Inner","namespace":"n","fields":[{"name":"x","type":"int"}]}'
    outer = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"n.Inner"}]}'
    await client.register("inner", inner)
    made = await client.register("outer", outer, references=[{"name": "n.Inner", "subject": "inner", "version": -1}])
    references = [{"name": "n.Inner", "subject": "inner", "version": 1}]
    assert made.body["references"] == references
    assert made.body["schema"] == outer
    assert (await client.register("outer", outer)).code == 42201
    assert (await client.register("outer", outer, references=references)).body["version"] == 1
    assert (await client.get("/subjects/inner/versions/1/referencedby")).body == [2]
    for path in ("/subjects/inner", "/subjects/inner/versions/1"):
        refused = await client.delete(path)
        assert refused.code == 42206
        assert refused.body["message"].startswith(
            "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=inner,version=1}"
        )
    wider = outer.replace("]}", ',{"name":"j","type":["null","n.Inner"],"default":null}]}')
    assert (await client.register("outer", wider, references=references)).body["version"] == 2
    assert (await client.post("/compatibility/subjects/outer/versions", {"schema": '"int"'})).body == {
        "is_compatible": False
    }
    await client.delete("/subjects/outer")
    assert (await client.get("/subjects/inner/versions/1/referencedby")).body == []
    assert (await client.get("/subjects/inner/versions/1/referencedby?deleted=true")).body == [2, 3]
    assert (await client.delete("/subjects/inner")).body == [1]


async def test_a_subject_that_refers_to_itself(client: Client) -> None:
    """It can be deleted as a whole, unless another subject uses the same schema."""
    await client.put("/config/s", {"compatibility": "NONE"})
    await client.register("s", '{"type":"fixed","name":"F","size":1}')
    body = {"schema": '{"type":"array","items":"F"}', "references": [{"name": "F", "subject": "s", "version": 1}]}
    await client.post("/subjects/s/versions", body)
    await client.post("/subjects/t/versions", body)
    assert (await client.delete("/subjects/s")).code == 42206
    await client.delete("/subjects/t")
    assert (await client.delete("/subjects/s")).body == [1, 2]


async def test_lists(client: Client) -> None:
    """Sorted, by prefix, in pages; empty ones are lists too."""
    assert (await client.get("/subjects")).body == []
    assert (await client.get("/schemas")).body == []
    for name in ("b", "a2", "a1", "A"):
        await client.register(name, RECORD)
    await client.register("a1", WIDER)
    assert (await client.get("/subjects")).body == ["A", "a1", "a2", "b"]
    assert (await client.get("/subjects?subjectPrefix=a")).body == ["a1", "a2"]
    assert (await client.get("/subjects?subjectPrefix=:*:a&offset=1")).body == ["a2"]
    assert (await client.get("/subjects?offset=1&limit=2")).body == ["a1", "a2"]
    assert (await client.get("/subjects?offset=-1&limit=-1")).body == ["A", "a1", "a2", "b"]
    assert (await client.get("/subjects?limit=0")).body == ["A", "a1", "a2", "b"]
    assert (await client.get("/subjects/a1/versions?offset=1&limit=5")).body == [2]
    assert (await client.get("/subjects/a1/versions?offset=2")).body == []
    assert (await client.get("/schemas/ids/1/subjects?offset=1&limit=2")).body == ["a1", "a2"]
    assert (await client.get("/schemas/ids/1/versions?offset=3")).body == [{"subject": "b", "version": 1}]
    assert (await client.get("/subjects?subjectPrefix=%00")).body == []
    assert "subject" not in (await client.get("/schemas/ids/1?subject=%00")).body
    schemas = (await client.get("/schemas?subjectPrefix=a")).body
    assert [(entry["subject"], entry["version"]) for entry in schemas] == [("a1", 1), ("a1", 2), ("a2", 1)]
    schemas = (await client.get("/schemas?subjectPrefix=a&offset=1&limit=1")).body
    assert [(entry["subject"], entry["version"]) for entry in schemas] == [("a1", 2)]
    assert len((await client.get("/schemas?limit=5000")).body) == 5
    schemas = (await client.get("/schemas?subjectPrefix=a&latestOnly=true")).body
    assert [(entry["subject"], entry["version"]) for entry in schemas] == [("a1", 2), ("a2", 1)]


async def test_what_tools_ask_first(client: Client) -> None:
    """Liveness, types, contexts, identity, associations."""
    assert (await client.get("/")).body == {}
    assert (await client.post("/", {})).body == {}
    assert (await client.get("/schemas/types")).body == ["AVRO"]
    assert (await client.get("/contexts")).body == ["."]
    assert (await client.get("/v1/metadata/id")).body["scope"]["path"] == []
    assert "version" in (await client.get("/v1/metadata/version")).body
    path = "/associations/resources/-/topic?resourceType=topic&associationType=value"
    assert (await client.get(path)).body == []
    assert (await client.get("/subjects/")).body == []
