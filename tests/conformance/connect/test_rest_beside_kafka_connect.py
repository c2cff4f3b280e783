"""Our REST API and Kafka Connect 4.3.1's: the same requests, the same answers.

Both workers run on one Busway broker with Kafka's own FileStream connectors on either side. Status and JSON are equal but for what is
named here:

* a body that cannot be read, an unknown field, a wrong `initial_state`, an offset below zero, a partition of null, a validate call without a
  known class: 400 here, as the client is at fault; 500 there.
* `task.class` is among a task's settings there; here there is no such class.
* `FileStreamSource` takes standard input without a `file` there; here `file` is required, as a worker has no standard input of use.
* `offsets.storage.topic` and `/admin/loggers` are not served; the lists of plugins and settings have the same shape and other members.
"""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.integration.cli.conftest import Up, start
from tests.support.kafka_connect import KafkaConnect
from tests.support.patience import patient

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]
SECONDS = patient(30.0)
MISSING = [
    ("GET", ""),
    ("GET", "/status"),
    ("GET", "/config"),
    ("PUT", "/pause"),
    ("PUT", "/resume"),
    ("PUT", "/stop"),
    ("POST", "/restart"),
    ("DELETE", ""),
    ("GET", "/tasks"),
    ("GET", "/tasks/0/status"),
    ("POST", "/tasks/0/restart"),
    ("GET", "/offsets"),
    ("DELETE", "/offsets"),
    ("GET", "/topics"),
    ("PUT", "/topics/reset"),
]


class Side:
    """One of the two."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.name = name
        self.url = url
        self.folder = folder
        self.http = httpx2.Client(base_url=url, timeout=SECONDS)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status, and JSON with what must differ taken out."""
        text = None if body is None else (body if isinstance(body, str) else json.dumps(body))
        if text is not None:
            text = text.replace("FOLDER", str(self.folder))
        headers = {"Content-Type": "application/json"} if text is not None else {}
        answer = self.http.request(method, path, content=text, headers=headers)
        said = answer.text.replace(str(self.folder), "FOLDER").replace(self.url.partition("//")[2], "WORKER")
        return answer.status_code, same_words(json.loads(said)) if said else None

    def wait(self, path: str, wanted: Any) -> None:
        """Returns when the answer is that."""
        end = time.monotonic() + SECONDS
        while (body := self.ask("GET", path)[1]) != wanted:
            assert time.monotonic() < end, f"{self.name}: {body} is not {wanted}"
            time.sleep(0.05)


def same_words(body: Any) -> Any:
    """Without versions and the names of Java's classes."""
    if isinstance(body, dict):
        hidden = {"version", "commit", "kafka_cluster_id", "task.class"}
        return {
            name: "…" if name in hidden - {"task.class"} else same_words(value)
            for name, value in body.items()
            if name != "task.class"
        }
    return [same_words(item) for item in body] if isinstance(body, list) else body


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka Connect and ours on one broker."""
    folder = tmp_path_factory.mktemp("connect")
    broker = Up(
        folder / "bus",
        "--override",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "--override",
        "group.initial.rebalance.delay.ms=0",
        command="broker",
    )
    ours = start(
        "connect", "-b", broker.bootstrap, "--port", "0", "--json",
        *itertools.chain(*(("-o", override) for override in ("offset.flush.interval.ms=200", "offset.storage.partitions=1", "status.storage.partitions=1", "plugin.modules=busway_connect.file_stream"))),
    )  # fmt: skip
    try:
        assert ours.stdout is not None
        url = json.loads(ours.stdout.readline())["connect"]
        with KafkaConnect(broker.bootstrap) as theirs:
            pair = []
            for name, address in (("kafka", theirs.url), ("ours", url)):
                place = folder / name
                place.mkdir()
                (place / "in.txt").write_text("one\ntwo\nthree\n")
                pair.append(Side(name, address, place))
            yield pair[0], pair[1]
            for side in pair:
                side.http.close()
    finally:
        ours.terminate()
        ours.communicate(timeout=SECONDS)
        broker.stop()


def both(sides: tuple[Side, Side], method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """The same answer from both."""
    kafka, ours = (side.ask(method, path, body) for side in sides)
    assert ours == kafka, f"{method} {path}"
    return ours


SOURCE = {"connector.class": "FileStreamSource", "file": "FOLDER/in.txt"}


def running(name: str, kind: str, state: str = "RUNNING", *, task: bool = True) -> dict[str, Any]:
    """A status."""
    about = {"state": state, "worker_id": "WORKER", "version": "…"}
    return {"name": name, "connector": about, "tasks": [{"id": 0, **about}] if task else [], "type": kind}


def test_a_connector_that_is_not_there(sides: tuple[Side, Side]) -> None:
    """Each path's own words."""
    for method, path in MISSING:
        both(sides, method, f"/connectors/none{path}")
    both(sides, "PATCH", "/connectors/none/offsets", {"offsets": [{"partition": {"a": 1}, "offset": {"b": 1}}]})
    both(sides, "PATCH", "/connectors/none/config", {"a": "b"})


def test_the_worker_itself(sides: tuple[Side, Side]) -> None:
    """Root, health, unknown paths and methods."""
    for method, path in [
        ("GET", "/"),
        ("GET", "/health"),
        ("GET", "/nothing"),
        ("POST", "/connectors/x"),
        ("PUT", "/connectors"),
    ]:
        both(sides, method, path)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"connector.class": "FileStreamSource", "file": "f"},
        {**SOURCE, "topic": "t", "name": "other"},
        {"connector.class": "FileStreamSink", "file": "f", "topics": "t", "errors.deadletterqueue.topic.name": "t"},
    ],
)
def test_settings_that_cannot_be(sides: tuple[Side, Side], config: dict[str, str]) -> None:
    """400 with the same text."""
    assert both(sides, "POST", "/connectors", {"name": "bad", "config": config})[0] == 400


@pytest.mark.parametrize(
    "config",
    [
        {"connector.class": "No.Such"},
        {**SOURCE, "topic": "t", "tasks.max": "zero"},
        {**SOURCE, "topic": "t", "errors.tolerance": "some"},
        {**SOURCE, "topic": "t", "value.converter": "No.Such"},
        {**SOURCE, "topic": "t", "transforms": "a"},
        {**SOURCE, "topic": "t", "transforms": "a", "transforms.a.type": "No.Such"},
        {"connector.class": "FileStreamSink", "file": "f"},
        {"connector.class": "FileStreamSink", "file": "f", "topics": "a", "topics.regex": "b"},
        {"connector.class": "FileStreamSink", "file": "f", "topics.regex": "("},
    ],
)
def test_settings_that_cannot_be_in_other_words(sides: tuple[Side, Side], config: dict[str, str]) -> None:
    """400 on both sides; the text names classes or counts one mistake twice there."""
    kafka, ours = (side.ask("POST", "/connectors", {"name": "bad", "config": config}) for side in sides)
    assert (kafka[0], ours[0]) == (400, 400), (kafka, ours)
    assert kafka[1].keys() == ours[1].keys() == {"error_code", "message"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/connectors", "{bad"),
        ("POST", "/connectors", []),
        ("POST", "/connectors", {"name": "x"}),
        ("POST", "/connectors", {"name": "x", "config": SOURCE, "extra": 1}),
        ("POST", "/connectors", {"name": "x", "config": SOURCE, "initial_state": "WRONG"}),
        ("POST", "/connectors", {"name": "x", "config": {"file": {"a": 1}}}),
        ("PUT", "/connector-plugins/No/config/validate", {"connector.class": "No"}),
    ],
)
def test_the_clients_fault_is_400_here(sides: tuple[Side, Side], method: str, path: str, body: Any) -> None:
    """The intended difference: 500 there."""
    kafka, ours = (side.ask(method, path, body) for side in sides)
    assert (kafka[0], ours[0]) == (500, 400), (kafka, ours)
    assert ours[1]["error_code"] == 400


def test_the_life_of_a_source(sides: tuple[Side, Side]) -> None:
    """Create, look at it from all sides, change, pause, resume, stop, offsets, restart, delete."""
    for side in sides:
        config = {**SOURCE, "topic": f"{side.name}-lines", "tasks.max": 1}
        status, response = side.ask("POST", "/connectors", {"name": "x", "config": config})
        assert status == 201
        assert response["tasks"] == []
        assert response["config"]["tasks.max"] == "1"
        side.wait("/connectors/x/status", running("x", "source"))
        side.wait(
            "/connectors/x/offsets",
            {"offsets": [{"partition": {"filename": "FOLDER/in.txt"}, "offset": {"position": 14}}]},
        )
        side.wait("/connectors/x/topics", {"x": {"topics": [f"{side.name}-lines"]}})
        status, response = side.ask(
            "POST", "/connectors", {"name": "y", "config": {**config, "topic": "t"}, "initial_state": "PAUSED"}
        )
        assert status == 201
        side.wait("/connectors/y/status", running("y", "source", "PAUSED", task=False))
        assert side.ask("DELETE", "/connectors/y")[0] == 204
        side.ask("PATCH", "/connectors/x/config", {"topic": "lines", "batch.size": "7"})
        side.wait("/connectors/x/tasks/0/status", {"id": 0, "state": "RUNNING", "worker_id": "WORKER", "version": "…"})
    both(sides, "POST", "/connectors", {"name": "x", "config": {**SOURCE, "topic": "lines"}})
    for path in ("", "/config", "/tasks", "/tasks/0/status", "/tasks/7/status"):
        assert both(sides, "GET", f"/connectors/x{path}")[0] == (404 if "7" in path else 200)
    both(sides, "GET", "/connectors")
    both(sides, "GET", "/connectors?expand=status&expand=info&expand=bad")
    both(sides, "PUT", "/connectors/x/config", {"name": "q", **SOURCE, "topic": "lines"})
    both(sides, "PATCH", "/connectors/x/config", {"batch.size": None})
    both(sides, "PATCH", "/connectors/x/config", {"topic": None})
    change = {"offsets": [{"partition": {"filename": "FOLDER/in.txt"}, "offset": {"position": 4}}]}
    assert both(sides, "PATCH", "/connectors/x/offsets", change)[0] == 400
    assert both(sides, "DELETE", "/connectors/x/offsets")[0] == 400
    for body in ({"offsets": []}, {}):
        assert both(sides, "PATCH", "/connectors/x/offsets", body)[0] == 400
    for action, state in (("pause", "PAUSED"), ("resume", "RUNNING")):
        assert both(sides, "PUT", f"/connectors/x/{action}") == (202, None)
        for side in sides:
            side.wait("/connectors/x/status", running("x", "source", state))
    assert both(sides, "POST", "/connectors/x/restart") == (204, None)
    assert both(sides, "POST", "/connectors/x/tasks/0/restart") == (204, None)
    both(sides, "POST", "/connectors/x/tasks/9/restart")
    for side in sides:
        side.wait("/connectors/x/status", running("x", "source"))
    restarted = both(sides, "POST", "/connectors/x/restart?includeTasks=true")
    assert restarted == (202, running("x", "source", "RESTARTING"))
    for side in sides:
        side.wait("/connectors/x/status", running("x", "source"))
    assert both(sides, "POST", "/connectors/x/restart?includeTasks=true&onlyFailed=true")[0] == 202
    assert both(sides, "PUT", "/connectors/x/stop") == (204, None)
    for side in sides:
        side.wait("/connectors/x/status", running("x", "source", "STOPPED", task=False))
        side.wait("/connectors/x/tasks", [])
    assert both(sides, "PATCH", "/connectors/x/offsets", change)[0] == 200
    assert both(sides, "GET", "/connectors/x/offsets")[1] == change
    assert both(sides, "DELETE", "/connectors/x/offsets")[0] == 200
    assert both(sides, "GET", "/connectors/x/offsets")[1] == {"offsets": []}
    assert both(sides, "PUT", "/connectors/x/topics/reset") == (202, None)
    for side in sides:
        side.wait("/connectors/x/topics", {"x": {"topics": []}})
    assert both(sides, "DELETE", "/connectors/x") == (204, None)
    assert both(sides, "GET", "/connectors/x")[0] == 404


def test_the_life_of_a_sink(sides: tuple[Side, Side]) -> None:
    """Its offsets are those of its group, and are changed by topic and partition."""
    kafka, ours = sides
    for side in sides:
        config = {**SOURCE, "topic": f"{side.name}-feed"}
        side.ask("POST", "/connectors", {"name": f"{side.name}-feed", "config": config})
        name = f"{side.name}-sink"
        config = {"connector.class": "FileStreamSink", "file": "FOLDER/out.txt", "topics": f"{side.name}-feed"}
        assert side.ask("POST", "/connectors", {"name": name, "config": config})[0] == 201
        where = {"kafka_partition": 0, "kafka_topic": f"{side.name}-feed"}
        side.wait(f"/connectors/{name}/offsets", {"offsets": [{"partition": where, "offset": {"kafka_offset": 3}}]})
        side.wait(f"/connectors/{name}/topics", {name: {"topics": [f"{side.name}-feed"]}})
        assert side.ask("PUT", f"/connectors/{name}/stop")[0] == 204
        side.wait(f"/connectors/{name}/status", running(name, "sink", "STOPPED", task=False))
        # Kafka's group still has its member for a moment after the task is gone from the status.
        deadline = time.monotonic() + SECONDS
        change = {"offsets": [{"partition": where, "offset": {"kafka_offset": 1}}]}
        while side.ask("PATCH", f"/connectors/{name}/offsets", change)[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert side.ask("GET", f"/connectors/{name}/offsets")[1] == change
    for partition, offset in [
        ({"kafka_topic": "t"}, {"kafka_offset": 1}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"x": 1}),
    ]:
        body = {"offsets": [{"partition": partition, "offset": offset}]}
        answers = [side.ask("PATCH", f"/connectors/{side.name}-sink/offsets", body) for side in sides]
        assert answers[0] == answers[1]
    for side in sides:
        assert side.ask("DELETE", f"/connectors/{side.name}-sink/offsets")[0] == 200
        assert side.ask("GET", f"/connectors/{side.name}-sink/offsets") == (200, {"offsets": []})
        for name in ("sink", "feed"):
            assert side.ask("DELETE", f"/connectors/{side.name}-{name}")[0] == 204
    assert (kafka.folder / "out.txt").read_text() == (ours.folder / "out.txt").read_text() == "one\ntwo\nthree\n"


def test_plugins_and_validation_have_the_same_shape(sides: tuple[Side, Side]) -> None:
    """Members of each object are the same; which objects there are differs."""
    for path in ("/connector-plugins", "/connector-plugins/FileStreamSource/config"):
        kafka, ours = (side.ask("GET", path)[1] for side in sides)
        assert kafka[0].keys() == ours[0].keys()
    both(sides, "GET", "/connector-plugins/No/config")
    both(sides, "PUT", "/connector-plugins/FileStreamSource/config/validate", {"connector.class": "Other"})
    path = "/connector-plugins/FileStreamSource/config/validate"
    kafka, ours = (side.ask("PUT", path, {**SOURCE, "topic": "t"})[1] for side in sides)
    assert kafka.keys() == ours.keys()
    assert (kafka["name"], kafka["error_count"]) == (ours["name"], ours["error_count"])
    named = [{config["value"]["name"]: config for config in side["configs"]} for side in (kafka, ours)]
    assert named[0]["name"]["value"] == named[1]["name"]["value"]
    for name in named[0].keys() & named[1].keys():
        assert named[0][name].keys() == named[1][name].keys()
        assert named[0][name]["definition"].keys() == named[1][name]["definition"].keys()
        for part in ("type", "required", "group"):
            assert named[0][name]["definition"][part] == named[1][name]["definition"][part] or name == "file", (
                name,
                part,
            )
