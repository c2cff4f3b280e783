"""Look-ups of names: shared, and in threads that nothing else needs."""

import asyncio
import socket
import threading
from typing import Any

import pytest
from tests.support.patience import patient
from tests.support.waiting import until

from busway.net import lookups


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
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9))]


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
        assert (await loop.getaddrinfo("here", 9))[0][4] == ("127.0.0.1", 9)
        names.may_answer.set()
        outcomes = await asyncio.gather(*connections, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError, socket.gaierror}
        assert names.asked == ["lost", "here"]
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("lost", 9)
    assert names.asked == ["lost", "here", "lost"]
