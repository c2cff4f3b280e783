"""`busway.web`: a real HTTP server beside a real app; bodies, refusals, event streams, health and metrics."""

import asyncio
import dataclasses
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.support.patience import patient
from tests.support.programs import held_ports

from busway import App, BuswayError, Exponential, Extension, Producer, Retry
from busway.web import (
    CannotListen,
    Feed,
    Metrics,
    Refused,
    Web,
    application,
    event_stream,
    json_response,
    read_json,
    serving,
)

pytestmark = pytest.mark.slow
SECONDS = patient(20)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A place on a ride."""

    at: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.at < 0:
            raise ValueError("before the beginning")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ride:
    """A ride."""

    ride_id: str
    stops: list[Stop]


async def _ride(request: Request) -> Response:
    return json_response(await read_json(request, Ride, max_bytes=200), 201)


async def _refused(request: Request) -> Response:
    raise Refused(404, "there is no ride 7")


async def _no_bus(request: Request) -> Response:
    raise BuswayError("no broker can be reached")


def site(*more: Route) -> Starlette:
    """A small application."""
    return application([Route("/rides", _ride, methods=["POST"]), Route("/7", _refused), Route("/bus", _no_bus), *more])


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    """A client of `site`."""
    async with serving(site()) as url, httpx2.AsyncClient(base_url=url) as http_client:
        yield http_client


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b'{"ride_id": "a"}', 422, "the body: Object missing required field `stops`"),
        (b'{"ride_id": "a", "stops": [{"at": 1}, {"at": "x"}]}', 422, "stops[1].at: Expected `int`, got `str`"),
        (b'{"ride_id": "a", "stops": [{"at": -1}]}', 422, "stops[0]: before the beginning"),
        (b"[]", 422, "the body: Expected `object`, got `array`"),
        (b"{", 400, "the body is no JSON"),
        (b'{"ride_id": "\xff", "stops": []}', 400, "the body is no JSON"),
        (b"[" * 199, 422, "the body"),
        (b" " * 201, 413, "the body is larger than 200 bytes"),
    ],
)
async def test_bodies_that_do_not_fit(client: httpx2.AsyncClient, body: bytes, status: int, text: str) -> None:
    """Each is refused with its reason and, where there is one, the field."""
    answer = await client.post("/rides", content=body)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(text)


async def test_answers_are_json(client: httpx2.AsyncClient) -> None:
    """What fits comes back typed; every refusal is of one form, Starlette's own and the bus's too."""
    answer = await client.post("/rides", json={"ride_id": "a", "stops": [{"at": 1}]})
    assert (answer.status_code, answer.json()) == (201, {"ride_id": "a", "stops": [{"at": 1, "name": ""}]})
    assert answer.headers["content-type"] == "application/json"
    for path, status, text in (
        ("/7", 404, "there is no ride 7"),
        ("/nowhere", 404, "Not Found"),
        ("/bus", 503, "no broker can be reached"),
        ("/rides", 405, "Method Not Allowed"),
    ):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()) == (status, {"error": text})
    assert answer.headers["allow"] == "POST"


async def test_addresses_that_cannot_be_served() -> None:
    """A taken port, an address that others reach, a host that is not ours, a number that is no port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{port}: Address already in use; stop"):
            async with serving(site(), port=port):
                pass
    for host, port, text in (
        ("0.0.0.0", 0, "host 0.0.0.0 is reachable by others"),
        ("127.0.0.1", 70_000, "port 70000 is not"),
    ):
        with pytest.raises(CannotListen, match=text):
            async with serving(site(), host=host, port=port):
                pass
    async with serving(site(), host="0.0.0.0", insecure=True) as url:
        port = int(url.rpartition(":")[2])
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{port}/7")).status_code == 404


async def test_an_application_whose_lifespan_fails_cannot_be_served() -> None:
    """A clear error, and not the end of the process."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(CannotListen, match="its lifespan failed"):
        async with serving(broken):
            pass


class Lines:
    """The events of a stream as they come."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> str:
        """The next line that is not empty."""
        async with asyncio.timeout(SECONDS):
            while not (line := await anext(self._lines)):
                pass
            return line


async def test_an_event_stream(caplog: pytest.LogCaptureFixture) -> None:
    """First what is, then what changes, the newest of each key; comments in between; it ends at once with the server."""
    feed: Feed[dict[str, int]] = Feed()
    go = asyncio.Event()

    async def live(request: Request) -> Response:
        return event_stream(
            request,
            feed.listening(),
            key=lambda event: event["id"],
            first=lambda: "hello",
            pause_s=0.01,
            keep_alive_s=0.05,
        )

    server = serving(site(Route("/live", live)))
    async with httpx2.AsyncClient() as client:
        async with server as url, client.stream("GET", f"{url}/live") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = Lines(response)
            assert await lines.next() == "retry: 1000"
            assert await lines.next() == 'data: "hello"'
            for change in ({"id": 1, "x": 1}, {"id": 2, "x": 1}, {"id": 1, "x": 2}):
                feed.put(change)
            while (line := await lines.next()).startswith(":"):
                go.set()
            assert json.loads(line.removeprefix("data: ")) == [{"id": 1, "x": 2}, {"id": 2, "x": 1}]
            assert await lines.next() == ": nothing new"
        assert "are broken off" not in caplog.text  # as after its grace
    assert not feed._listeners


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """What time it is."""
        return self.now_s


def figures(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Name and label values → value."""
    return {
        (sample.name, tuple(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def rides_app() -> tuple[App, Any, asyncio.Event, asyncio.Event]:
    """An app whose handler waits on request and fails on request."""
    app = App("surge", commit_interval_s=0.01)
    rides = app.topic("rides", value=dict, format="json", partitions=1)
    begun, go = asyncio.Event(), asyncio.Event()

    @app.subscribe(rides, retry=Retry(attempts=2, backoff=Exponential(0)))
    async def handle(ride: dict) -> None:  # type: ignore[type-arg]
        if ride.get("wait"):
            begun.set()
            await go.wait()
        if ride.get("fail"):
            raise ValueError("no such zone")

    return app, rides, begun, go


async def test_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    """Scraped and parsed: every outcome, retries, dead letters, durations, offsets and lag, exactly; the app's own pages beside them."""
    app, rides, begun, go = rides_app()

    async def hello(request: Request) -> Response:
        return PlainTextResponse("hello")

    clock = Clock()
    web = app.extend(Web(site(Route("/", hello)), port=0, metrics=Metrics(clock=clock)))
    async with app.test() as bus:
        assert web.url is not None
        assert capsys.readouterr().out == f"surge {web.url}\n"
        for ride in ({"id": 1}, {"id": 2, "fail": True}, {"id": 3}):
            await bus.send(rides, ride, "a")
        await bus.settle()
        await bus.send(rides, {"id": 4, "wait": True}, "a")
        await begun.wait()
        async with httpx2.AsyncClient(base_url=web.url) as client, asyncio.timeout(SECONDS):
            while True:
                answer = await client.get("/metrics")
                samples = figures(answer.text)
                if (
                    samples.get(("busway_committed_offset", ("0", "rides"))) == 3
                    and ("busway_lag_records", ("0", "rides")) in samples
                ):
                    break
                clock.now_s += 2  # so that the brokers are asked again
            assert (await client.get("/")).text == "hello"
            assert (await client.get("/health/live")).json() == {"live": True}
            assert (await client.post("/metrics")).status_code == 405
        go.set()
        await bus.settle()
    assert web.url is None
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    handler = next(labels[0] for name, labels in samples if name == "busway_handler_in_flight")
    assert handler.endswith("rides_app.<locals>.handle")
    wanted = {
        ("busway_handler_records_total", (handler, "handled", "rides")): 2,
        ("busway_handler_records_total", (handler, "retried", "rides")): 1,
        ("busway_handler_records_total", (handler, "dead_lettered", "rides")): 1,
        ("busway_handler_duration_seconds_count", (handler, "rides")): 4,
        ("busway_handler_retries_total", (handler, "rides")): 1,
        ("busway_dead_letters_total", (handler, "rides")): 1,
        ("busway_handler_in_flight", (handler,)): 1,
        ("busway_assigned_partitions", ()): 1,
        ("busway_rebalances_total", ()): 1,
        ("busway_committed_offset", ("0", "rides")): 3,
        ("busway_lag_records", ("0", "rides")): 1,
        ("busway_parked_records", ("0", "rides")): 0,
        ("busway_brokers_reachable", ()): 1,
    }
    assert {key: samples.get(key) for key in wanted} == wanted
    assert samples["busway_seconds_since_progress", ("0", "rides")] >= 0
    assert any(name == "busway_build_info" and labels[:2] == ("surge", "surge") for name, labels in samples)


class Commits(Extension):
    """Waits for the commit of a first record; where a reset began may be committed before."""

    def __init__(self) -> None:
        self.seen = asyncio.Event()

    async def committed(self, offsets: Any) -> None:
        """It is there."""
        if any(offsets.values()):
            self.seen.set()


async def test_a_record_that_cannot_be_read_is_counted() -> None:
    """It never reached a handler, and is among the dead letters all the same."""
    app, rides, _, _ = rides_app()
    metrics = app.extend(Metrics())
    async with app.test() as bus, Producer(app.bootstrap_servers) as producer:
        await producer.send_and_wait(rides.name, b"{")
        await bus.settle()
        samples = figures((await metrics.exposition()).decode())
    assert [value for (name, _), value in samples.items() if name == "busway_dead_letters_total"] == [1]


async def test_health_turns_red_on_a_stall_and_green_again() -> None:
    """A handler that hangs with lag: 503 that names the partition after the timeout; 200 when it gets on."""
    app, rides, begun, go = rides_app()
    clock = Clock()
    web = app.extend(Web(port=0, metrics=Metrics(stall_timeout_s=60, clock=clock)))
    commits = app.extend(Commits())

    async with httpx2.AsyncClient() as client:

        async def ready() -> tuple[int, list[str]]:
            answer = await client.get(f"{web.url}/health/ready")
            return answer.status_code, answer.json()["reasons"]

        async with app.test() as bus:
            await bus.send(rides, {"id": 1}, "a")
            await bus.settle()
            await commits.seen.wait()  # a commit is progress too
            assert await ready() == (200, [])
            await bus.send(rides, {"id": 2, "wait": True}, "a")
            await begun.wait()
            clock.now_s += 3600
            assert await ready() == (200, [])  # idle for an hour, and the record has just come
            clock.now_s += 61
            assert await ready() == (503, ["rides-0 is 1 records behind at offset 1 and has finished none for 3661 s"])
            go.set()
            await bus.settle()
            assert await ready() == (200, [])
        assert (await web.metrics.ready()).reasons == ("the app is not running",)


async def test_health_of_an_app_that_has_failed_and_of_one_without_handlers() -> None:
    """A handler without dead letters stops its app, which is reported; an app that only sends is ready at once."""
    app = App("strict")
    rides = app.topic("rides", value=dict, format="json", partitions=1)

    @app.subscribe(rides, retry=Retry(attempts=1), dead_letter=False)
    async def handle(ride: dict) -> None:  # type: ignore[type-arg]
        raise ValueError("no")

    metrics = app.extend(Metrics())
    async with app.test() as bus:
        await bus.send(rides, {"id": 1}, "a")
        with pytest.raises(BuswayError):
            await app.wait()
        (reason,) = (await metrics.ready()).reasons
        assert reason.startswith("the app has stopped: ")
        assert "failed on rides-0 offset 0 after 1 attempts" in reason

    sender = App("sender")
    sender.topic("rides", value=dict, format="json", partitions=1)
    metrics = sender.extend(Metrics())
    async with sender.test():
        assert (await metrics.ready()).ready


async def test_brokers_that_do_not_answer_turn_it_red() -> None:
    """Whether work gets done is not known then; figures are served all the same, without lag."""
    app, rides, _, _ = rides_app()
    metrics = app.extend(Metrics())
    async with app.test() as bus:
        await bus.send(rides, {"id": 1}, "a")
        await bus.settle()
        app.bootstrap_servers = "127.0.0.1:1"
        readiness = await metrics.ready()
        assert not readiness.ready
        assert "127.0.0.1:1" in readiness.reasons[0]
        parsed = figures((await metrics.exposition()).decode())
        assert parsed["busway_brokers_reachable", ()] == 0
        assert ("busway_lag_records", ("0", "rides")) not in parsed


async def test_a_port_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """BUSWAY_HTTP_PORT where the service names none; without it nothing is served; nonsense stops the start; a worker adds its number."""
    app = App("env")
    app.topic("rides", value=dict, format="json", partitions=1)
    web = app.extend(Web())
    async with app.test():
        assert web.url is None
    monkeypatch.setenv("BUSWAY_HTTP_PORT", "http")
    with pytest.raises(CannotListen, match="'http' is no address to serve HTTP on"):
        async with app.test():
            pass
    first, port = held_ports(2)
    monkeypatch.setenv("BUSWAY_HTTP_PORT", f"localhost:{first}")
    monkeypatch.setenv("BUSWAY_WORKER", "1")
    async with app.test():
        assert web.url == f"http://localhost:{port}"
