"""`busway dlq` against `busway up`: for people and for programs, exit codes, one line for an error."""

import asyncio
import json

import pytest
from tests.integration.cli.conftest import Up

from busway import App, Exponential, Producer, Retry

pytestmark = pytest.mark.slow
DLT = "dlq.rides.surge.dlt"


def put_aside(up: Up, count: int) -> None:
    """Dead letters of a handler that fails on every record, in Avro."""
    from dataclasses import dataclass

    @dataclass
    class Ride:
        ride_id: int
        zone: str

    app = App("surge", bootstrap_servers=up.bootstrap, schema_registry=up.registry, commit_interval_s=0.01)
    rides = app.topic("dlq.rides", value=Ride, partitions=1)
    done = asyncio.Event()
    left = count

    @app.subscribe(rides, retry=Retry(attempts=1, backoff=Exponential(0)))
    async def handle(ride: Ride) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()
        raise ValueError(f"no zone {ride.zone}")

    async def work() -> None:
        async with app:
            for number in range(count):
                await rides.send(Ride(number, f"Z{number % 2}"), key=f"k{number % 2}", headers=[("h", b"1")])
            await done.wait()

    asyncio.run(work())


def test_dlq(up: Up) -> None:
    """Listed, shown, replayed in part, discarded, and nothing left."""
    listed = up.run("dlq", "list")
    assert (listed.out, listed.err) == ("topic\tgroup\thandler\terror\trecords\topen\tnewest\n", "no dead letters\n")
    put_aside(up, 6)
    (row,) = up.run("dlq", "list", "--json").json
    assert row.pop("newest").endswith("+00:00")
    handler = row.pop("handler")
    assert handler.endswith("put_aside.<locals>.handle")
    assert row == {"topic": DLT, "group": "surge", "error": "builtins.ValueError", "records": 6, "open": 6}
    assert f"{DLT}\tsurge\t{handler}\tValueError\t6\t6\t" in up.run("dlq", "list", "--group", "surge").out
    assert up.run("dlq", "list", "--group", "nobody", "--json").json == []

    letters = up.run("dlq", "show", DLT, "--key", "k1", "--limit", "2", "--json").json
    assert [(letter["offset"], letter["original"], letter["value"], letter["key"]) for letter in letters] == [
        (1, "dlq.rides-0@1", {"ride_id": 1, "zone": "Z1"}, "k1"),
        (3, "dlq.rides-0@3", {"ride_id": 3, "zone": "Z1"}, "k1"),
    ]
    assert letters[0] | {"put_aside": ""} == {
        "partition": 0,
        "offset": 1,
        "original": "dlq.rides-0@1",
        "handler": handler,
        "error": "builtins.ValueError",
        "message": "no zone Z1",
        "attempts": 1,
        "group": "surge",
        "put_aside": "",
        "done": False,
        "key": "k1",
        "value": {"ride_id": 1, "zone": "Z1"},
        "headers": [["h", "1"]],
    }
    text = up.run("dlq", "show", DLT, "--partition", "0", "--offset", "2", "--stack").out
    assert "message   no zone Z0\n" in text
    assert "stack\nTraceback (most recent call last):\n" in text
    assert "Traceback" not in up.run("dlq", "show", DLT).out

    assert up.run("dlq", "replay", DLT, "--error", "Z0", "--dry-run").err == f"would replay 3 of {DLT}\n"
    done = up.run("dlq", "replay", DLT, "--error", "Z0", "--limit", "2", "--rate", "1000", "--json").json
    assert done == {"topic": DLT, "replayed": 2, "refused": []}
    assert up.run("dlq", "list", "--topic", DLT, "--json").json[0]["open"] == 4
    assert up.run("dlq", "discard", DLT, stdin="n\n").code == 1
    assert up.run("dlq", "discard", DLT, "--key", "k1", "-y").out == f"discarded 3 of {DLT}\n"
    assert up.run("dlq", "replay", DLT).out == f"replayed 1 of {DLT}\n"
    assert up.run("dlq", "replay", DLT).out == f"replayed 0 of {DLT}\n"
    assert up.run("dlq", "show", DLT).out == "no dead letters\n"
    assert len(up.run("dlq", "show", DLT, "--all", "--json").json) == 6
    back = [
        json.loads(line)
        for line in up.run("consume", "dlq.rides", "--from-beginning", "--until-end", "--json").out.splitlines()[6:]
    ]
    assert [(letter["value"]["ride_id"], letter["key"], letter["headers"]) for letter in back] == [
        (
            number,
            "k0",
            [
                ["h", "1"],
                ["busway_replay-for-group", "surge"],
                ["busway_replay-for-handler", handler],
                ["busway_replay-of", f"{DLT}-0@{number}"],
            ],
        )
        for number in (0, 2, 4)
    ]


def test_what_dlq_refuses(up: Up) -> None:
    """One line, exit code 1."""

    async def foreign() -> None:
        async with Producer(up.bootstrap) as producer:
            await producer.send_and_wait("other.dlt", b"\xff")
            await producer.send_and_wait("plain", b"good", partition=0)

    asyncio.run(foreign())
    for arguments, text in (
        (("show", "nowhere.dlt"), "topic nowhere.dlt"),
        (("replay", "nowhere.dlt"), "topic nowhere.dlt"),
        (("show", DLT, "--offset", "3"), "--offset 3: offsets are of a partition; give --partition too"),
        (("show", DLT, "--limit", "0"), "--limit 0: give 1 or more"),
        (("list", "--topic", DLT, "--group", "surge"), "give --topic or --group"),
        (("replay", "other.dlt"), "1 cannot be replayed and stay open; other.dlt-0 offset 0: its headers do not say"),
        (("show", "plain"), "plain is no dead-letter topic: plain-0 offset 0 has no header"),
        (("discard", "plain", "--yes"), "plain is no dead-letter topic: plain-0 offset 0 has no header"),
        (("list", "--topic", "plain"), "plain is no dead-letter topic: plain-0 offset 0 has no header"),
        (("show", "other.dlt", "--partition", "0", "--offset", "9"), "other.dlt-0 offset 9: there is no dead letter; "),
        (
            ("replay", "other.dlt", "--partition", "99", "--offset", "0"),
            "other.dlt-99 offset 0: there is no dead letter",
        ),
        (("discard", "other.dlt", "--partition", "0", "--offset", "9", "-y"), "other.dlt-0 offset 9: there is no"),
        (("replay", "other.dlt", "--rate", "0"), "rate: 0 is no number above 0"),
        (("replay", "other.dlt", "--rate", "inf"), "rate: inf is no number above 0"),
        (("replay", "other.dlt", "--rate", "nan"), "rate: nan is no number above 0"),
    ):
        done = up.run("dlq", *arguments)
        assert done.code == 1, arguments
        assert done.err.startswith(f"busway: {text}"), done.err
        assert done.err.count("\n") == 1
    assert up.run("dlq", "show", "other.dlt", "--json").json[0]["value"] == "base64:/w=="
    assert "plain.replayed" not in up.run("groups", "list").out
    # What another tool has put into a dead-letter topic can be discarded, and is then there, done.
    place = ("other.dlt", "--partition", "0", "--offset", "0")
    assert up.run("dlq", "discard", *place, "-y").out == "discarded 1 of other.dlt\n"
    assert up.run("dlq", "replay", *place).out == "replayed 0 of other.dlt\n"
