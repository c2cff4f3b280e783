"""Requests on one connection: each ends, whatever the other side sends."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from tests.support.patience import patient

from busway.errors import ConnectionFailed, RequestTimedOut
from busway.net.connection import Connection, _Protocol
from busway_protocol.apis import ApiKey, api
from busway_protocol.messages.metadata import MetadataRequest

BROKEN = {
    "shorter than a header": b"\x00\x00",
    "tagged fields that do not end": b"\x00\x00\x00\x01\xff",
    "another number": b"\x00\x00\x00\x09\x00",
    "no message": b"\x00\x00\x00\x01\x00",
}


class Transport:
    """A connection that takes everything."""

    def writelines(self, chunks: Iterable[bytes]) -> None: ...

    def abort(self) -> None: ...


def connected(timeout_s: float) -> Connection:
    """Return a connection that speaks the newest Metadata, over a `Transport`."""
    connection = Connection("a", 1, client_id="x", timeout_s=timeout_s)
    inside = cast("Any", connection)
    inside._transport = Transport()
    inside._ranges = {ApiKey.METADATA: (0, api(ApiKey.METADATA).max_version)}
    return connection


async def ended(request: "asyncio.Future[Any]") -> BaseException | None:
    """Return what a request ended with."""
    async with asyncio.timeout(patient(10)):
        await asyncio.wait({request})
    return request.exception()


async def begun(connection: Connection) -> "asyncio.Future[Any]":
    """Send a request, and return its future."""
    request = asyncio.ensure_future(connection.request(MetadataRequest(topics=None)))
    await asyncio.sleep(0)
    assert connection.waiting == 1
    return request


@pytest.mark.parametrize("frame", BROKEN.values(), ids=BROKEN)
async def test_a_response_that_cannot_be_read_ends_its_request(frame: bytes) -> None:
    """At once, with the connection, and with a later request."""
    connection = connected(timeout_s=patient(60))
    request = await begun(connection)
    _Protocol(connection).data_received(len(frame).to_bytes(4, "big") + frame)
    assert isinstance(await ended(request), ConnectionFailed)
    assert not connection.open
    with pytest.raises(ConnectionFailed):
        await connection.request(MetadataRequest(topics=None))


async def test_a_request_ends_with_its_time() -> None:
    """Also if it is not among those that the connection ends."""
    for is_known in (True, False):
        connection = connected(timeout_s=0.01)
        request = await begun(connection)
        if not is_known:
            cast("Any", connection)._waiting.clear()
        assert isinstance(await ended(request), RequestTimedOut)
