"""Sources in transactions here and in Kafka Connect 4.3.1: the same answers, and each goes on behind the offsets of the other.

Both workers keep their offsets in one topic and give the connector one name, so that what one has committed is where the other begins.
"""

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.connect.test_rest_beside_kafka_connect import SECONDS, SOURCE, Side, both, running
from tests.integration.cli.conftest import Up, start
from tests.support.connect_worker import records_of
from tests.support.kafka_connect import KafkaConnect

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]
OURS = (
    "offset.flush.interval.ms=200", "offset.storage.topic=kafka-connect-offset", "offset.storage.partitions=1",
    "status.storage.partitions=1", "plugin.modules=busway_connect.file_stream", "exactly.once.source.support=enabled",
)  # fmt: skip


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker."""
    options = ("listeners=PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms=0")
    broker = Up(
        tmp_path_factory.mktemp("connect") / "bus",
        *itertools.chain(*(("--override", option) for option in options)),
        command="broker",
    )
    yield broker.bootstrap
    broker.stop()


@pytest.fixture(scope="module")
def sides(bus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka Connect and ours, both enabled, on one file."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "in.txt").write_text("one\ntwo\nthree\n")
    with KafkaConnect(bus, {"exactly.once.source.support": "enabled"}) as theirs:
        options = itertools.chain(*(("-o", option) for option in OURS))
        ours = start("connect", "-b", bus, "--port", "0", "--json", *options)
        try:
            assert ours.stdout is not None
            url = json.loads(ours.stdout.readline())["connect"]
            pair = Side("kafka", theirs.url, folder), Side("ours", url, folder)
            yield pair
            for side in pair:
                side.http.close()
        finally:
            ours.terminate()
            ours.communicate(timeout=SECONDS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"transaction.boundary": "never"},
        {"transaction.boundary": "connector"},
        {"transaction.boundary.interval.ms": "-1"},
        {"transaction.boundary.interval.ms": "soon"},
        {"exactly.once.support": "never"},
    ],
)
def test_settings_that_cannot_be(sides: tuple[Side, Side], wrong: dict[str, str]) -> None:
    """Each is refused in the same words."""
    path = "/connector-plugins/FileStreamSource/config/validate"
    (name,) = wrong
    said: list[Any] = []
    for side in sides:
        status, validation = side.ask("PUT", path, {**SOURCE, "topic": "t", "name": "x", **wrong})
        assert (status, validation["error_count"]) == (200, 1)
        said += [config["value"]["errors"] for config in validation["configs"] if config["value"]["name"] == name]
    assert said[0] == said[1]
    assert both(sides, "POST", "/connectors", {"name": "bad", "config": {**SOURCE, "topic": "t", **wrong}})[0] == 400


def test_the_validation_names_the_same_settings(sides: tuple[Side, Side]) -> None:
    """Their group, order, type and default."""
    path = "/connector-plugins/FileStreamSource/config/validate"
    named: list[Any] = []
    for side in sides:
        validation = side.ask("PUT", path, {**SOURCE, "topic": "t", "name": "x", "exactly.once.support": "Required"})[1]
        assert validation["error_count"] == 0
        wanted = [config for config in validation["configs"] if config["definition"]["group"] == "Exactly Once Support"]
        parts = ("name", "type", "default_value", "importance", "group")
        named.append([{part: config["definition"][part] for part in parts} for config in wanted])
    assert sorted(named[0], key=str) == sorted(named[1], key=str)


async def test_each_goes_on_behind_the_offsets_of_the_other(bus: str, sides: tuple[Side, Side]) -> None:
    """A line of each in turn, with boundaries of every kind: all lines are there once, for readers of committed records."""
    lines = ["one", "two", "three"]
    file = sides[0].folder / "in.txt"
    boundaries = ({"transaction.boundary": "interval", "transaction.boundary.interval.ms": "100"}, {})
    for turn, (boundary, side) in enumerate(itertools.product(boundaries, sides)):
        if turn:
            lines.append(f"line {turn}")
            with file.open("a") as out:
                out.write(f"{lines[-1]}\n")
        config = {**SOURCE, "topic": "lines", "exactly.once.support": "required", **boundary}
        assert side.ask("PUT", "/connectors/x/config", config)[0] in {200, 201}
        side.wait("/connectors/x/status", running("x", "source"))
        where = {"partition": {"filename": "FOLDER/in.txt"}, "offset": {"position": file.stat().st_size}}
        side.wait("/connectors/x/offsets", {"offsets": [where]})
        assert side.ask("DELETE", "/connectors/x")[0] == 204
        deadline = time.monotonic() + SECONDS
        while side.ask("GET", "/connectors")[1] != []:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    lines_read = [
        json.loads(record.value or b"")["payload"] for record in await records_of(bus, "lines", "read_committed")
    ]
    assert lines_read == lines
