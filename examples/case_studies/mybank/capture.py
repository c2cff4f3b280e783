"""The connector on the bank's tables. `python -m mybank.capture http://localhost:8083` installs it for the database in `MYBANK_DATABASE`.

Here: its settings for a server (`connector.json` with the address put in), handing them to Kafka Connect's REST API.
Not here: the connector.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

import httpx2
from sqlalchemy import make_url

from mybank.ledger import URL

NAME: Final = "mybank"
SETTINGS: Final = Path(__file__).parent / "connector.json"


class Refused(Exception):
    """The worker did not take the settings; says why."""


def settings(host: str, port: int, **more: str) -> dict[str, str]:
    """`connector.json` for a server there; `more` with `_` for `.`."""
    template: dict[str, str] = json.loads(SETTINGS.read_text())
    more = {name.replace("_", "."): text for name, text in more.items()}
    return {**template, "database.hostname": host, "database.port": str(port), **more}


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


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m mybank.capture", description="Install the connector, or change it."
    )
    parser.add_argument("connect", help="Kafka Connect's REST API, for instance http://localhost:8083")
    parser.add_argument(
        "--password",
        help="password of the database, or a reference such as '${env:BANK_PASSWORD}', so that it is not among the settings; "
        "default: the one in MYBANK_DATABASE, or else PGPASSWORD, as psql takes it",
    )
    given = parser.parse_args()
    database = make_url(URL)
    config = settings(
        database.host or "localhost",
        database.port or 5432,
        database_user=database.username or "postgres",
        database_dbname=database.database or "postgres",
        database_password=given.password or database.password or os.environ.get("PGPASSWORD", ""),
    )
    try:
        asyncio.run(install(given.connect, config))
    except Refused as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    except httpx2.HTTPError as problem:
        sys.stderr.write(f"{given.connect} cannot be reached: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
