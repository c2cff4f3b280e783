"""What several suites share: a PostgreSQL server for the session, an empty database on it for each test, programs that end with it, and the table of
what foreign clients did, whichever process ran their tests."""

import os
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import psycopg
import pytest
from xdist.scheduler import LoadFileScheduling

from tests.interop.client_report import CLIENT_REPORT, ClientReport
from tests.support.ordering import slow_first
from tests.support.pending_tasks import pending_tasks
from tests.support.postgres import Postgres
from tests.support.programs import end_spawned

TOGETHER = ("tests/integration/client", "tests/interop/share_groups")
"""Folders whose tests share brokers of Apache Kafka for the session: one process runs them all."""
SLOW_FIRST = "BUSWAY_SLOW_FIRST"
"""Set in the processes of `--dist worksteal`."""
TOOK_TOO_LONG = "Timeout"
"""The first word of pytest-timeout's failure."""
ALONE = ("tests/interop/judges",)
"""Folders whose tests share nothing, and take longest."""


class Scheduling(LoadFileScheduling):
    """One process runs a file; a folder, where its tests share a broker; a test that shares nothing goes to a free process."""

    def _split_scope(self, nodeid: str) -> str:
        place = nodeid.partition("::")[0]
        folder = folder_of(place)
        return nodeid if folder in ALONE else folder or place


def folder_of(place: str) -> str | None:
    """The folder of a file, if it is one that is not taken file by file."""
    return next((each for each in (*TOGETHER, *ALONE) if place.startswith(f"{each}/")), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """For `--dist loadfile`."""
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest begins first, where several processes keep the order: `--no-loadscope-reorder`, `--dist worksteal`."""
    if not config.getoption("loadscopereorder", True):
        items.sort(key=lambda item: folder_of(item.nodeid) is None)
    # The processes of a run have no option `dist`.
    if os.environ.get("PYTEST_XDIST_WORKER_COUNT") and os.environ.get(SLOW_FIRST):
        workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        items[:] = slow_first(items, lambda item: item.get_closest_marker("slow") is not None, workers)


def pytest_configure(config: pytest.Config) -> None:
    """Open the report of the clients; tell the processes of a run how tests go to them."""
    if config.getoption("dist", None) == "worksteal":
        os.environ[SLOW_FIRST] = "1"
    config.stash[CLIENT_REPORT] = ClientReport()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that took too long says where its tasks wait."""
    report = yield
    if call.excinfo is not None and str(call.excinfo.value).startswith(TOOK_TOO_LONG):
        report.sections.append(("pending tasks", pending_tasks()))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes hands its report to the one that started it."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["client_report"] = session.config.stash[CLIENT_REPORT].notes_of_all()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Which takes it over."""
    if notes := getattr(node, "workeroutput", {}).get("client_report"):
        node.config.stash[CLIENT_REPORT].take_over(notes)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table."""
    lines = config.stash[CLIENT_REPORT].table()
    if lines:
        terminalreporter.section("foreign clients")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One server for all tests that leave it running."""
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> Postgres:
    """That server, its database as empty as a new one."""
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres_server


@pytest.fixture
async def programs_end() -> AsyncIterator[None]:
    """Programs that the test started are killed where it did not see them end, because it failed or took too long."""
    yield
    await end_spawned()
