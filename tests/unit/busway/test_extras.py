"""What an installation lacks is named in one line, with the command that installs it: in every import, command and demo."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import busway
from busway.extras import EXTRAS, MissingExtra, need

ROOT = Path(__file__).parents[3]
IMPORTED = {
    "time-machine": "time_machine",
    "prometheus-client": "prometheus_client",
    "protobuf": "google.protobuf",
    "opentelemetry-api": "opentelemetry",
}
"""By package, where it is imported under another name."""

BARE = """
import contextlib, io, json, sys

class Barred:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in barred:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

barred = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Barred())
found = []
for command in json.loads(sys.argv[2]):
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        try:
            if command[0] == "import":
                exec(" ".join(command[1:]))
            else:
                from busway.cli import main
                sys.argv = ["busway", *command]
                main()
        except SystemExit:
            pass
        except ImportError as missing:
            err.write(f"{type(missing).__name__}: {missing}")
    found.append(err.getvalue().strip())
print(json.dumps(found))
"""


def bare(barred: set[str], commands: list[list[str]]) -> list[str]:
    """What imports and commands write where these packages are not installed."""
    done = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(sorted(barred)), json.dumps(commands)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    texts: list[str] = json.loads(done.stdout.splitlines()[-1])
    return texts


@pytest.mark.slow
def test_nothing_installed() -> None:
    """The core alone: each door to an extra names it; none opens a port or makes a directory first."""
    commands = {
        "import from busway.web import Web": ("busway.web", "web"),
        "import from busway.sql import Sql": ("busway.sql", "sql"),
        "up": ("busway up", "registry"),
        "registry": ("busway registry", "registry"),
        "connect": ("busway connect", "connect"),
        "run --reload shop:app": ("--reload", "web"),
        "run --http 8000 tests.integration.app.counting:app": ("--http", "web"),
        "outbox status shop:app": ("busway outbox", "sql"),
        "outbox relay shop:app": ("busway outbox", "sql"),
        "spark offload": ("busway spark", "spark"),
        "demo gettaxi": ("busway demo gettaxi", "demo"),
        **{f"demo {name}": (f"busway demo {name}", "examples") for name in ("movieflix", "mybank")},
    }
    barred = {name.partition(".")[0] for names in EXTRAS.values() for name in names}
    texts = bare(barred, [command.split() for command in commands])
    for (command, (what, extra)), text in zip(commands.items(), texts, strict=True):
        wanted = rf"(busway|MissingExtra): {re.escape(what)} needs the {extra} extra: pip install 'busway\[{extra}\]' \(.+ not installed\)"
        assert re.fullmatch(wanted, text), f"{command}: {text}"


@pytest.mark.slow
def test_all_but_one() -> None:
    """What is missing is named, and only that."""
    texts = bare({"prometheus_client"}, [["import", "import", "busway.web"], ["import", "import", "busway.sql"]])
    assert texts == [
        "MissingExtra: busway.web needs the web extra: pip install 'busway[web]' (prometheus_client is not installed)",
        "",
    ]
    texts = bare({"h3", "psycopg"}, [["demo", "gettaxi"], ["connect"]])
    assert [text.rpartition("(")[2] for text in texts] == [
        "h3 is not installed)",
        "psycopg is not installed)",
    ]


async def test_a_test_bus_names_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it starts anything."""
    monkeypatch.setitem(sys.modules, "alembic", None)
    with pytest.raises(MissingExtra, match=r"app\.test\(\) needs the registry extra: .*alembic is not installed"):
        async with busway.App("shop").test():
            pass


def test_the_table_is_that_of_the_distribution() -> None:
    """Each extra asks for the packages that it installs; `all` is enough for the examples, and so for every demo."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional: dict[str, list[str]] = project["optional-dependencies"]

    def packages(extra: str) -> set[str]:
        named = set()
        for requirement in optional[extra]:
            parts = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", requirement)
            assert parts is not None
            name, inner = parts.groups("")
            if name == "busway":
                named |= {package for part in inner.split(",") for package in packages(part)}
            elif name != "uvloop":
                named.add(IMPORTED.get(name, name))
        return named

    for extra, names in EXTRAS.items():
        assert set(names) == packages(extra), extra
    assert packages("all") >= packages("examples") | packages("spark")


def test_an_extra_that_is_there_is_not_missed() -> None:
    """This installation has those of the tests."""
    for extra in ("web", "sql", "registry", "connect", "examples"):
        need(extra, "this test")


def test_the_version_is_told() -> None:
    """That of the distribution."""
    assert busway.__version__ == version("busway")
