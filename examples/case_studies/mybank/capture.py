"""The connector on the bank's tables.

What lives here: its settings for a server (`connector.json` with the address put in), handing them to Kafka Connect's REST API. What does
not: the connector.
"""

import json
from pathlib import Path
from typing import Final

import httpx2

NAME: Final = "mybank"
SETTINGS: Final = Path(__file__).parent / "connector.json"


class Refused(Exception):
    """The worker did not take the settings; says why."""


def settings(host: str, port: int, **more: str) -> dict[str, str]:
    """`connector.json` for a server there; `more` with `_` for `.`."""
    found: dict[str, str] = json.loads(SETTINGS.read_text())
    more = {name.replace("_", "."): text for name, text in more.items()}
    return {**found, "database.hostname": host, "database.port": str(port), **more}


async def install(connect: str, config: dict[str, str]) -> None:
    """Create the connector, or give it these settings.

    Raises:
        Refused: the worker does not take them.
    """
    async with httpx2.AsyncClient(base_url=connect, timeout=30) as client:
        answer = await client.put(f"/connectors/{NAME}/config", json=config)
        if answer.is_error:
            raise Refused(f"{connect} does not take the connector's settings: {answer.text}")


async def running(connect: str) -> bool:
    """Whether it captures."""
    async with httpx2.AsyncClient(base_url=connect, timeout=5) as client:
        answer = await client.get(f"/connectors/{NAME}/status")
        return not answer.is_error and [task["state"] for task in answer.json()["tasks"]] == ["RUNNING"]
