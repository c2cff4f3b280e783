"""confluent-kafka's registry client and its Avro serializers, unchanged and with their defaults."""

import asyncio
import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = [pytest.mark.foreign, pytest.mark.slow]

RECORD = json.dumps(
    {
        "type": "record",
        "name": "Rating",
        "namespace": "movies",
        "fields": [{"name": "user", "type": "long"}, {"name": "stars", "type": "double"}],
    }
)
WIDER = RECORD.replace('"double"}', '"double"}, {"name": "title", "type": ["null", "string"], "default": null}')
BROKEN = RECORD.replace('"double"}', '"double"}, {"name": "title", "type": "string"}')
VALUE = SerializationContext("ratings", MessageField.VALUE)


def code_of(call: Any, *arguments: Any, **named: Any) -> tuple[int, int]:
    with pytest.raises(SchemaRegistryError) as refusal:
        call(*arguments, **named)
    return refusal.value.http_status_code, refusal.value.error_code


async def test_records_there_and_back(registry_url: str) -> None:
    """Serialize with schema 1, evolve, serialize with schema 2; each reader reads both, by the id in the prefix."""

    def run() -> None:
        with SchemaRegistryClient({"url": registry_url}) as client:
            first = AvroSerializer(client, RECORD)({"user": 1, "stars": 4.5}, VALUE)
            second = AvroSerializer(client, WIDER)({"user": 2, "stars": 3.0, "title": "Ü"}, VALUE)
            assert (first[:5], second[:5]) == (b"\0\0\0\0\1", b"\0\0\0\0\2")
            old, new, own = AvroDeserializer(client, RECORD), AvroDeserializer(client, WIDER), AvroDeserializer(client)
            assert old(second, VALUE) == {"user": 2, "stars": 3.0}
            assert new(first, VALUE) == {"user": 1, "stars": 4.5, "title": None}
            assert own(second, VALUE) == {"user": 2, "stars": 3.0, "title": "Ü"}
            assert client.get_subjects() == ["ratings-value"]
            latest = {"use.latest.version": True, "auto.register.schemas": False}
            assert AvroSerializer(client, conf=latest)({"user": 3, "stars": 1.0, "title": None}, VALUE)[4] == 2
            with SchemaRegistryClient({"url": registry_url}) as fresh:
                assert AvroDeserializer(fresh)(second, VALUE)["title"] == "Ü"
            with pytest.raises(SchemaRegistryError, match="TYPE_MISMATCH"):
                AvroSerializer(client, BROKEN)({"user": 1, "stars": 1.0, "title": ""}, VALUE)

    await asyncio.to_thread(run)


async def test_the_client(registry_url: str) -> None:
    """Register, look up, check, configure, refer, delete: each call of the client, and the errors it knows."""

    def run() -> None:
        with SchemaRegistryClient({"url": registry_url}) as client:
            narrow, wide, bad = (Schema(text, "AVRO") for text in (RECORD, WIDER, BROKEN))
            assert client.register_schema("s", narrow) == 1
            assert client.register_schema("s", narrow, normalize_schemas=True) == 1
            assert client.test_compatibility("s", wide)
            assert not client.test_compatibility("s", bad)
            assert code_of(client.register_schema, "s", bad) == (409, 409)
            assert code_of(client.register_schema, "s", Schema("{}", "AVRO")) == (422, 42201)
            made = client.register_schema_full_response("s", wide)
            assert (made.schema_id, made.subject, made.version) == (2, "s", 2)
            assert client.get_schema(2).schema_str == json.dumps(json.loads(WIDER), separators=(",", ":"))
            assert client.get_schema_by_guid(made.guid).schema_str == client.get_schema(2).schema_str
            assert client.lookup_schema("s", wide).version == 2
            assert client.get_latest_version("s").schema_id == 2
            assert client.get_version("s", 1).schema_id == 1
            assert client.get_versions("s") == [1, 2]
            assert code_of(client.get_version, "s", 9) == (404, 40402)
            assert code_of(client.get_latest_version, "t") == (404, 40401)
            assert code_of(client.get_schema, 99) == (404, 40403)

            assert client.get_compatibility() == "BACKWARD"
            assert code_of(client.get_compatibility, "s") == (404, 40408)
            assert client.set_compatibility("s", "FULL")["compatibility"] == "FULL"
            assert client.get_compatibility("s") == "FULL"
            assert client.get_config("s").compatibility_level == "FULL"
            assert code_of(client.set_compatibility, "s", "SIDEWAYS") == (422, 42203)

            reference = SchemaReference("movies.Rating", "s", 2)
            listed = Schema('{"type":"array","items":"movies.Rating"}', "AVRO", [reference])
            assert client.register_schema("list", listed) == 3
            resolved = client.get_latest_version("list").schema.references[0]
            assert (resolved.name, resolved.subject, resolved.version) == ("movies.Rating", "s", 2)
            context = SerializationContext("list", MessageField.VALUE)
            sent = AvroSerializer(client, listed)([{"user": 1, "stars": 2.0, "title": None}], context)
            assert AvroDeserializer(client)(sent, context) == [{"user": 1, "stars": 2.0, "title": None}]
            assert code_of(client.delete_version, "s", 2) == (422, 42206)

            assert client.delete_subject("list") == [1]
            assert code_of(client.delete_version, "s", 2) == (
                422,
                42206,
            )  # the serializer registered it for its topic too
            assert client.delete_subject("list-value") == [1]
            assert client.delete_version("s", 1) == 1
            assert client.delete_subject("s") == [2]
            assert code_of(client.delete_subject, "s") == (404, 40404)
            assert client.delete_subject("s", permanent=True) == [1, 2]
            assert client.get_subjects() == []

    await asyncio.to_thread(run)


@pytest.mark.parametrize("subject", ["a/b", "a:b", "日本 value", "100%"])
async def test_names_of_subjects(registry_url: str, subject: str) -> None:
    """As the client encodes them."""

    def run() -> None:
        with SchemaRegistryClient({"url": registry_url}) as client:
            assert client.register_schema(subject, Schema(RECORD, "AVRO")) == 1
            assert client.get_subjects() == [subject]
            assert client.get_latest_version(subject).version == 1
            assert client.delete_subject(subject) == [1]
            assert client.delete_subject(subject, permanent=True) == [1]

    await asyncio.to_thread(run)
