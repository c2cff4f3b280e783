"""Confluent's Java RestService (7.5.3) on a walk through the registry."""

import asyncio

import pytest

from tests.conformance.registry.oracle import RegistryOracle

pytestmark = [pytest.mark.java, pytest.mark.foreign, pytest.mark.slow]

FIRST = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
SECOND = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
BAD = '{"type":"record","name":"R","fields":[{"name":"c","type":"int"}]}'

STEPS = {
    "register": 1,
    "register again": 1,
    "register second": 2,
    "register bad": 409,
    "register nonsense": 42201,
    "look up": 2,
    "look up unknown": 40403,
    "look up no subject": 40401,
    "compatible": [],
    "incompatible": True,
    "text": SECOND,
    "versions": [1, 2],
    "subjects": True,
    "types": ["AVRO"],
    "config": "BACKWARD",
    "no config": 40408,
    "put config": "NONE",
    "get config": "NONE",
    "bad config": 42203,
    "register bad at none": 3,
    "delete config": "NONE",
    "mode": "READWRITE",
    "read only": "READONLY",
    "register read only": 42205,
    "mode again": "READONLY",
    "delete version": 1,
    "deleted version": 40402,
    "delete": [2, 3],
    "delete again": 40404,
    "delete for good": [1, 2, 3],
    "delete nothing": 40401,
}


@pytest.mark.parametrize("subject", ["ratings-value", "a/b:c d"])
async def test_rest_service(registry_url: str, subject: str) -> None:
    """Each step gives the client what it expects: a result of its type, or the error code that it knows."""

    def run() -> dict[str, object]:
        with RegistryOracle() as java:
            return java.rest_round(registry_url, subject, [FIRST, SECOND, BAD])

    assert await asyncio.to_thread(run) == STEPS
