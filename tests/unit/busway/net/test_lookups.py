"""Look-ups of names: shared, and in threads that nothing else needs."""

import asyncio
import gc
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from tests.support.patience import patient
from tests.support.waiting import until

from busway.errors import ConnectionFailed
from busway.net import lookups
from busway.net.connection import Connection
from busway.net.probing import is_reached, is_refused


class Names:
    """A name server that does not answer for `lost` before it may."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked: list[str] = []

    def look_up(self, host: str, *_: Any) -> list[Any]:
        self.asked.append(host)
        if host == "lost":
            self.may_answer.wait(patient(30))
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]


async def test_a_lost_name_holds_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is asked for, and given up; other names and other work go on. Later it is asked for again."""
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", loop.getaddrinfo, raising=False)
    lookups.share(loop)
    connections = [asyncio.ensure_future(loop.create_connection(asyncio.Protocol, "lost", 9)) for _ in range(100)]
    async with asyncio.timeout(patient(20)):
        await until(lambda: names.asked == ["lost"])
        for connection in connections[:50]:
            connection.cancel()
        assert await loop.run_in_executor(None, lambda: 7) == 7
        assert (await loop.getaddrinfo("here", 9))[1][4] == ("127.0.0.1", 9)
        names.may_answer.set()
        outcomes = await asyncio.gather(*connections, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError, socket.gaierror}
        assert names.asked == ["lost", "here"]
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("lost", 9)
    assert names.asked == ["lost", "here", "lost"]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_lost_host_holds_one_thread_on_every_loop(
    monkeypatch: pytest.MonkeyPatch, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """However many of its ports are connected to, or probed. A name with several addresses is reached at any of them."""
    names = Names()

    async def connecting() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
        lookups.share(loop)
        others: list[Any] = [
            Connection("lost", number, client_id="x", timeout_s=patient(20)).connect() for number in (1, 2)
        ]
        attempts = [asyncio.ensure_future(other) for other in (*others, is_reached("lost", 3, patient(20)))]
        async with asyncio.timeout(patient(20)):
            await until(lambda: names.asked == ["lost"])
            assert await is_reached("here", port, patient(10))
            names.may_answer.set()
            outcomes = await asyncio.gather(*attempts, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes[:2]] == [ConnectionFailed] * 2
            assert outcomes[2] is False
            assert names.asked == ["lost", "here"]
            server.close()
            await server.wait_closed()
            assert await is_refused("here", port, patient(10))
        monkeypatch.undo()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(connecting())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("address", ["127.0.0.1", b"127.0.0.1", "::1", "::1%1"])
def test_an_address_needs_no_thread(
    monkeypatch: pytest.MonkeyPatch, new_loop: Callable[[], asyncio.AbstractEventLoop], address: str | bytes
) -> None:
    """It is reached while lost names hold all of them. What looks like an address and is none, is a name."""
    threads: list[str] = []
    look_up = socket.getaddrinfo

    def noted(*args: Any) -> list[Any]:
        threads.append(threading.current_thread().name)
        return look_up(*args)

    async def connecting() -> None:
        own = lookups.Lookups()
        monkeypatch.setattr(socket, "getaddrinfo", noted)
        entries = await own.getaddrinfo(address, 9, type=socket.SOCK_STREAM)
        assert entries[0][4][:2] == (look_up(address, 9, type=socket.SOCK_STREAM)[0][4][0], 9)
        assert threads == [threading.current_thread().name]
        with pytest.raises(socket.gaierror):
            await own.getaddrinfo("256.0.0.1.invalid", 9)
        assert threads[1].startswith("busway-names")

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(connecting())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_loop_that_is_over_is_freed(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """With its look-ups."""
    loop = new_loop()
    lookups.share(loop)
    loop.close()
    left = weakref.ref(loop)
    del loop
    gc.collect()
    assert left() is None
