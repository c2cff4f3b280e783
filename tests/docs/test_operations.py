"""The code of docs/OPERATIONS.md runs as it stands there, and its commands exist."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from busway import Admin, Consumer, NewTopic, Producer
from busway.cli import COMMANDS
from busway_bus.testing.local_cluster import LocalCluster

PAGE = (Path(__file__).parents[2] / "docs" / "OPERATIONS.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
async def test_the_code() -> None:
    """The service has its extension, and the bare clients forward a record."""
    service, clients = blocks("python")
    names: dict[str, object] = {}
    exec(service, names)  # the page's own code
    assert [type(extension).__name__ for extension in names["app"].extensions] == ["Tracing"]  # type: ignore[attr-defined]
    exec(clients, names)
    async with LocalCluster() as cluster, Producer(cluster.bootstrap_servers) as producer:
        where = cluster.bootstrap_servers
        async with Admin(where) as admin:
            await admin.create_topics([NewTopic("orders"), NewTopic("orders.done")])
        forwarding = asyncio.ensure_future(names["forward"](where))  # type: ignore[operator]
        async with Consumer("orders.done", bootstrap_servers=where, auto_offset_reset="earliest") as consumer:
            received = asyncio.ensure_future(consumer.getone())
            while not received.done():  # the group begins at the end of its topic
                await producer.send_and_wait("orders", b"x")
                await asyncio.wait([received], timeout=0.2)
            assert (await received).value == b"x"
        forwarding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forwarding


def test_the_commands() -> None:
    """Each command of its console blocks and spans is there."""
    texts = [*blocks("console"), *re.findall(r"`([^`\n]+)`", PAGE)]
    named = {name for text in texts for name in re.findall(r"(?:^|\s)busway ([a-z]+)", text)}
    assert named
    assert named <= set(COMMANDS)


def test_a_line_of_the_log() -> None:
    """It is JSON."""
    (line,) = blocks("json")
    assert set(json.loads(line)) == {"time", "level", "logger", "message", "worker"}
