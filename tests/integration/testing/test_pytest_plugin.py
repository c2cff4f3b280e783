"""The fixtures that a user of the SDK gets."""

import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.support.patience import patient

from busway import App, BadDeclaration, NotRunning, Retry
from busway.testing import pytest_plugin
from busway.testing.threaded import cluster_in_thread

pytestmark = pytest.mark.slow

TESTS = """
import asyncio
import dataclasses
import pytest
from busway import Admin, App, Producer

@dataclasses.dataclass
class Ride:
    zone: int

def service(name):
    app = App(name)
    rides = app.topic("rides", value=Ride, partitions=1)
    seen = []
    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        seen.append(ride.zone)
    return app, rides, seen

async def test_two_services_on_one_bus(busway_bus):
    one, rides, first = service("one")
    two, _, second = service("two")
    async with busway_bus(one) as bus, busway_bus(two, clock="manual") as other:
        await bus.send(rides, Ride(4))
        await bus.settle()
        await other.settle()
        await other.crash_broker()
        await bus.send(rides, Ride(5))
        await bus.settle()
        await other.settle()
        assert first == second == [4, 5]

def test_a_plain_test_has_a_fresh_cluster(busway_cluster):
    async def topics():
        async with Admin(busway_cluster.bootstrap_servers) as admin:
            return await admin.list_topics()
    assert asyncio.run(topics()) == []
    assert busway_cluster.schema_registry.startswith("http://127.0.0.1:")

@pytest.mark.busway(nodes=3)
async def test_a_node_of_three_is_killed(busway_cluster):
    async with Producer(busway_cluster.bootstrap_servers) as producer:
        for node in busway_cluster.node_ids:
            await producer.send_and_wait("rides", b"before")
            await busway_cluster.kill(node)
            await producer.send_and_wait("rides", b"after")
            await busway_cluster.restart(node)
        with pytest.raises(ValueError, match="4 is no member"):
            busway_cluster.partition(4)
        async with busway_cluster.partition(1, one_way=True):
            pass
        await busway_cluster.partition([1, 2], 3)
        await busway_cluster.heal()
        await producer.send_and_wait("rides", b"healed")
"""


def test_tests_of_a_user_run_on_the_fixtures(tmp_path: Path) -> None:
    """A test file of a foreign project, in a pytest of its own."""
    (tmp_path / "test_rides.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto",
         "--rootdir", str(tmp_path), "-c", "/dev/null", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, timeout=patient(60), check=False,
    )  # fmt: skip
    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_plugin_loads_nothing_before_it_is_used() -> None:
    """Every pytest of an environment loads it, most of them for tests that have nothing to do with a bus."""
    code = (
        "import sys, pytest; import busway.testing.pytest_plugin; "
        "print([name for name in sys.modules if name.startswith(('busway.app', 'busway_bus', 'busway_registry', 'sqlalchemy'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patient(60), check=True)
    assert ran.stdout.strip() == "[]", Path(pytest_plugin.__file__).name


def test_a_cluster_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the test's, not the thread's."""
    monkeypatch.setenv("TMPDIR", "/nowhere/to/be/found")
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/to/be/found")
    with pytest.raises(FileNotFoundError, match="nowhere"), cluster_in_thread():
        pass


async def test_an_app_that_runs_is_not_tested_a_second_time() -> None:
    """The first bus goes on; a test inside a test is a mistake that says so."""
    app = App("shop")
    async with app.test():
        with pytest.raises(NotRunning, match="app shop is running already"):
            async with app.test():
                pass
        assert app.is_running


async def handle_late(value: bytes) -> None: ...


async def test_what_is_declared_on_a_running_app_is_too_late() -> None:
    """Its serdes and its lanes are not there; the app says so, and takes it once it has stopped."""
    app = App("shop")
    async with app.test() as bus:
        late = app.topic("late", value=bytes, format="raw")
        with pytest.raises(BadDeclaration, match="topic late was not declared with app shop before it started"):
            await bus.records(late)
        with pytest.raises(BadDeclaration, match="topic late was not declared with app shop before it started"):
            await app.send(late, b"1")
        with pytest.raises(BadDeclaration, match=r"handler .*handle: app shop is running; subscribe before it starts"):

            @app.subscribe(late)
            async def handle(value: bytes) -> None: ...

    app.subscribe(late)(handle_late)


async def test_records_come_while_the_app_is_away() -> None:
    """The bus writes as another service does: while the app is stopped, and beside a crash."""
    app = App("shop")
    orders = app.topic("orders", value=str)
    handled: list[str] = []

    @app.subscribe(orders)
    async def handle(order: str) -> None:
        handled.append(order)

    async with app.test() as bus:
        await app.stop()
        await bus.send(orders, "while stopped", headers=[("h", b"1")])
        await bus.restart()
        await bus.settle()
        assert handled == ["while stopped"]
        crash = bus.crash(at="before-handler")
        for number in range(5):
            await bus.send(orders, f"{number}")
        await crash
        await bus.settle()
        assert handled[-5:] == ["0", "1", "2", "3", "4"]
        with pytest.raises(BadDeclaration, match="topic other is of app b; this bus sends those of shop"):
            await bus.send(App("b").topic("other", value=str), "1")


async def test_a_dead_letter_may_have_headers_that_are_no_text() -> None:
    """They are shown as they are; only the reasons are read as text."""
    app = App("shop")
    orders = app.topic("orders", value=bytes, format="raw")

    @app.subscribe(orders, retry=Retry(attempts=1))
    async def handle(order: bytes) -> None:
        raise ValueError("broken")

    async with app.test() as bus:
        await bus.send(orders, b"1", headers=[("signature", b"\xff\xfe")])
        await bus.settle()
        (letter,) = await bus.dead_letters(orders)
    assert letter.error == "ValueError: broken"
    assert ("signature", b"\xff\xfe") in letter.headers


async def test_a_bus_lets_its_app_go_as_it_was() -> None:
    """Addresses, waits and extensions are the app's own again."""

    @dataclasses.dataclass
    class Ride:
        zone: int

    app = App("rides", bootstrap_servers="elsewhere:9092")
    app.topic("rides", value=Ride, format="json", partitions=1)
    with cluster_in_thread() as cluster:
        from busway.testing.bus import bus_on

        sleep = app.sleep
        async with bus_on(cluster, app):
            assert app.bootstrap_servers == cluster.bootstrap_servers
        assert (app.bootstrap_servers, app.sleep, app.extensions) == ("elsewhere:9092", sleep, [])
