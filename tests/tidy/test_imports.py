"""Modules that an import of `busway` must not load: start-up time of services, commands and tests.

Here: lists of heavy modules, each import in a new process.
Not here: how long an import takes (`benchmarks/import_time.py`).
"""

import functools
import subprocess
import sys

import pytest
from tests.support.patience import patient

EXTRAS = {
    "aiosqlite", "alembic", "google", "h3", "numpy", "pandas", "prometheus_client", "psycopg", "pyarrow", "pyspark",
    "re2", "regex", "sqlalchemy", "starlette", "uvicorn", "uvloop", "watchfiles",
}  # fmt: skip
"""Packages of extras."""
HEAVY = EXTRAS | {
    "busway_bus", "busway_connect", "busway_registry", "busway_spark", "email", "fastavro", "html", "http.client",
    "httpx2", "importlib.metadata", "multiprocessing", "rich", "sqlite3", "typer", "unittest", "urllib.request",
    "xml.etree",
}  # fmt: skip
"""Packages that need tens of milliseconds, and the other parts of Busway."""
RUNNING = {
    "busway.admin.admin", "busway.app.handling.worker", "busway.app.queues.worker", "busway.app.serdes",
    "busway.app.tables.copartitioning", "busway.cluster.client", "busway.consumer", "busway.net.connection", "busway.producer",
    "busway.share", "busway_protocol.apis", "busway_protocol.messages", "msgspec",
}  # fmt: skip
"""What an `App` needs only once it starts."""
SERVICE = """
from busway import App
app = App("shop")
orders = app.topic("orders", value=str, format="json")
app.table("totals", value=int, format="json")
app.global_table("rates", value=int, format="json")
@app.subscribe(orders, guarantee="exactly_once")
async def handle(order: str) -> None: ...
@app.queue(orders)
async def work(order: str) -> None: ...
"""
CLIENTS = ("Admin", "App", "Consumer", "DeadLetters", "Producer", "SecurityOptions", "ShareConsumer", "Table")


@functools.cache
def loaded(statement: str) -> set[str]:
    """Import in a new process; the names of the loaded modules."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=True)
    return set(done.stdout.split())


def test_the_package_alone_loads_no_other_module() -> None:
    """`import busway` loads nothing of Busway beside it, no third-party package, and no asyncio."""
    modules = loaded("import busway")
    ours = {name for name in modules if name.startswith("busway")}
    assert ours == {"busway"}
    assert not modules & (HEAVY | {"asyncio", "cramjam", "dataclasses", "inspect", "json", "logging", "msgspec", "ssl"})


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_loads_no_heavy_module(name: str) -> None:
    """Neither an extra, nor an HTTP client, nor the Avro library, nor the broker."""
    assert not loaded(f"from busway import {name}") & HEAVY


@pytest.mark.parametrize("statement", ["from busway import App", SERVICE])
def test_an_app_loads_clients_and_workers_at_its_start_only(statement: str) -> None:
    """Declarations do without: they are what tests collect, and what `busway check` and `busway run` read first."""
    assert not loaded(statement) & RUNNING


def test_the_version_loads_no_command() -> None:
    """`busway --version` needs the command line's parser, not the commands and their clients."""
    modules = loaded(
        "import sys, busway.cli; sys.argv = ['busway', '--version']\ntry: busway.cli.main()\nexcept SystemExit: pass"
    )
    assert not modules & (RUNNING | {"busway.cli.services", "busway.cli.topics", "rich"})
