"""The HTTP server of registry, Connect and services: addresses that cannot be had, and stopping under requests, on real sockets."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.support.patience import patient

from busway.net.http_connections import Patience
from busway.net.http_server import serving
from busway.net.listening import CannotListen, bind
from busway.web import application
from busway.web import serving as serving_web
from busway_connect.config import WorkerConfig
from busway_connect.server import ConnectServer
from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer

Server = Callable[[str, int], AbstractAsyncContextManager[object]]
SECONDS = patient(5.0)
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
SERVERS: dict[str, Server] = {
    "the registry": lambda host, port: RegistryServer(
        RegistryConfig(database="memory:", host=host, port=port, insecure=True)
    ),
    "the worker": lambda host, port: ConnectServer(WorkerConfig(host=host, port=port, insecure=True)),
    "the service": lambda host, port: serving_web(application([]), host=host, port=port, insecure=True),
}


async def refusal(who: str, host: str, port: int) -> str:
    """Why that server does not start."""
    with pytest.raises(CannotListen) as refused:
        async with SERVERS[who](host, port):
            pass
    assert refused.value.__cause__ is None
    return str(refused.value)


@pytest.mark.parametrize("who", SERVERS)
async def test_addresses_that_cannot_be_had(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence with the remedy: a taken port, a host name that does not exist or is another machine's, a port that needs root."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert await refusal(who, "127.0.0.1", port) == (
            f"{who} cannot listen on 127.0.0.1:{port}: Address already in use; stop what holds the port, or choose another"
        )
    for host in ("nobody.invalid", "a" * 64, "nul\0"):
        text = await refusal(who, host, 0)
        assert text.startswith(f"{who} cannot listen on {host}:0: the host does not resolve (")
        assert text.endswith("); give an address of this machine, such as 127.0.0.1")
    assert await refusal(who, "192.0.2.1", 0) == (  # RFC 5737: an address for documentation
        f"{who} cannot listen on 192.0.2.1:0: Cannot assign requested address; no interface of this machine has that address; "
        "127.0.0.1 serves this machine alone"
    )

    def refuse(bound: socket.socket, address: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket.socket, "bind", refuse)  # the tests may run as root, who may have any port
    assert await refusal(who, "127.0.0.1", 80) == (
        f"{who} cannot listen on 127.0.0.1:80: Permission denied; this user may not have that port; choose one above 1023"
    )


class Site:
    """An application that answers on request, in two pieces."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.broken_off = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        self.asked.set()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"do", "more_body": True})
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.broken_off = True
            raise
        await send({"type": "http.response.body", "body": b"ne"})


@pytest.fixture
def site() -> Site:
    """A fresh one."""
    return Site()


@asynccontextmanager
async def connected(bound: socket.socket) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client's connection."""
    reader, writer = await asyncio.open_connection(*bound.getsockname())
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_a_request_under_way_is_answered_when_the_server_stops(site: Site) -> None:
    """Its answer is whole and its connection ends, the idle ones at once; no new client is let in."""
    bound = await bind("127.0.0.1", 0, subject="the site")
    address = bound.getsockname()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(site, bound))
        async with connected(bound) as (idle, _), connected(bound) as (reader, writer):
            writer.write(REQUEST)
            await site.asked.wait()
            stopping = asyncio.ensure_future(stack.pop_all().aclose())
            assert await idle.read() == b""
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*address)
            assert not stopping.done()
            site.go.set()
            assert (await reader.read()).endswith(b"\r\n\r\ndone")
            await stopping


async def test_a_request_that_came_just_before_the_stop_is_answered(site: Site) -> None:
    """It waits in the kernel when the server stops: on a new connection, or on one that was used before."""
    site.go.set()
    for used in (False, True):
        bound = await bind("127.0.0.1", 0, subject="the site")
        async with AsyncExitStack() as clients, AsyncExitStack() as server:
            await server.enter_async_context(serving(site, bound))
            if used:
                reader, writer = await clients.enter_async_context(connected(bound))
                writer.write(REQUEST)
                assert (await reader.readuntil(b"done")).endswith(b"\r\n\r\ndone")
            with socket.create_connection(bound.getsockname(), timeout=SECONDS) as new:
                # No turn of the loop from here to the stop.
                if used:
                    writer.write(REQUEST)
                else:
                    new.sendall(REQUEST)
                await server.aclose()
                answer = await reader.read() if used else new.recv(10_000)
                assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_request_that_does_not_end_is_broken_off(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """After the grace the client sees its connection end, and the handler is cancelled; the log says it without a traceback."""
    bound = await bind("127.0.0.1", 0, subject="the site")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(site, bound, grace_s=0.01))
        async with connected(bound) as (reader, writer):
            writer.write(REQUEST)
            await site.asked.wait()
            await stack.pop_all().aclose()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readuntil(b"done")
    assert site.broken_off
    assert "1 requests took longer than 0.01 s to end and are broken off" in caplog.text
    assert "Traceback" not in caplog.text


HASTY = Patience(request_s=0.02, bytes_per_s=1_000_000)
HALF_SENT = {
    "nothing of the body": b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n",
    "half of the body": b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n{",
    "half of a chunk": b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n1",
    "half of the head": b"POST / HTTP/1.1\r\nHost: he",
    "a byte": b"G",
    "a request and a half": REQUEST + b"GET / HTTP/1.1\r\n",
}


async def whole_body(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers when a request has come to its end."""
    if scope["type"] == "lifespan":
        raise NotImplementedError
    size, more = 0, True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        size, more = size + len(event["body"]), event["more_body"]
    text = str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


@pytest.mark.parametrize("sent", HALF_SENT.values(), ids=HALF_SENT)
async def test_half_a_request(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A connection that does not go on is closed, with an answer where one is due; the others are served, idle ones stay."""
    bound = await bind("127.0.0.1", 0, subject="the site")
    async with (
        serving(whole_body, bound, patience=HASTY),
        connected(bound) as (idle, asking),
        connected(bound) as (reader, writer),
    ):
        asking.write(REQUEST)
        assert (await idle.readuntil(b"\r\n\r\n0")).startswith(b"HTTP/1.1 200")
        writer.write(sent)
        said = await reader.read()
        assert said.endswith(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n") or (
            said == b"" and b"\r\n\r\n" in sent
        )
        assert said.startswith(b"HTTP/1.1 200") == sent.startswith(REQUEST)
        asking.write(REQUEST)
        assert (await idle.readuntil(b"\r\n\r\n0")).startswith(b"HTTP/1.1 200")
    assert "1 connections are closed: their clients neither ended a request nor read an answer" in caplog.text


async def test_a_request_that_goes_on() -> None:
    """It has the time that its length takes: what counts is how fast it comes."""
    bound = await bind("127.0.0.1", 0, subject="the site")
    patience = Patience(request_s=0.001, bytes_per_s=1)
    async with (
        serving(whole_body, bound, patience=patience),
        connected(bound) as (other, asking),
        connected(bound) as (reader, writer),
    ):
        writer.write(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\n")
        for _ in range(4):
            for _ in range(4):  # in all longer than it is given at the beginning
                asking.write(REQUEST)
                await other.readuntil(b"\r\n\r\n0")
            writer.write(b"x")
        assert (await reader.readuntil(b"\r\n\r\n4")).startswith(b"HTTP/1.1 200")


async def test_an_answer_that_nobody_reads() -> None:
    """Its connection is closed, and what was left of it let go."""
    size = 64 * 1024 * 1024
    left = asyncio.Event()

    async def generous(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(size).encode())]})
        await send({"type": "http.response.body", "body": bytes(size)})
        left.set()

    bound = await bind("127.0.0.1", 0, subject="the site")
    async with serving(generous, bound, patience=HASTY):
        with socket.create_connection(bound.getsockname(), timeout=SECONDS) as deaf:
            deaf.sendall(REQUEST)
            await left.wait()
        async with connected(bound) as (reader, writer):
            writer.write(REQUEST)
            await reader.readuntil(b"\r\n\r\n")


async def test_too_many_connections(site: Site) -> None:
    """The one that has kept quiet for the longest makes room; where all are being answered, the new one goes."""
    bound = await bind("127.0.0.1", 0, subject="the site")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(site, bound, patience=Patience(connections=2)))
        first, _ = await stack.enter_async_context(connected(bound))
        busy = []
        for _ in range(2):
            reader, writer = await stack.enter_async_context(connected(bound))
            site.asked.clear()
            writer.write(REQUEST)
            await site.asked.wait()
            busy.append(reader)
        unavailable = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        assert await first.read() == unavailable
        fourth, _ = await stack.enter_async_context(connected(bound))
        assert await fourth.read() == unavailable
        site.go.set()
        for reader in busy:
            assert (await reader.readuntil(b"done")).startswith(b"HTTP/1.1 200")


async def test_two_lengths() -> None:
    """Refused: a proxy in front may read the other one, and take a part of this request for the next (RFC 9112, 6.1)."""
    bound = await bind("127.0.0.1", 0, subject="the site")
    async with serving(whole_body, bound), connected(bound) as (reader, writer):
        writer.write(
            b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX"
        )
        said = await reader.read()
        assert said.startswith(b"HTTP/1.1 400")
        assert b"Content-Length and Transfer-Encoding exclude each other" in said


async def test_an_address_by_name_or_of_ipv6() -> None:
    """Both can be had, and the URL has brackets where it needs them."""
    for host, shown in (("localhost", "localhost"), ("::1", "[::1]")):
        async with serving_web(application([]), host=host) as url:
            assert url.rpartition(":")[0] == f"http://{shown}"
