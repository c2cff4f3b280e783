"""`busway check` against `busway up`: what a start would meet, and nothing is changed by it."""

import json
import os
from pathlib import Path

import pytest
from tests.integration.cli.conftest import Done, Up, run

pytestmark = pytest.mark.slow
HERE = str(Path(__file__).parent)
FARE = {"type": "record", "name": "Fare", "fields": [{"name": "id", "type": "string"}]}


def check(up: Up, name: str, *arguments: str) -> Done:
    path = os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])
    return run("check", f"checked:{name}", *arguments, env={**up.env, "PYTHONPATH": path})


def by_subject(done: Done) -> dict[str, tuple[str, str]]:
    return {finding["subject"]: (finding["level"], finding["text"]) for finding in done.json}


def topics(up: Up) -> set[str]:
    return {row["topic"] for row in up.run("topics", "list", "--json").json}


def test_an_app_that_starts(up: Up) -> None:
    """Exit code 0; nothing is created or registered."""
    done = check(up, "good", "--json")
    assert done.code == 0
    assert by_subject(done) == {
        "topic good.rides": ("ok", "does not exist yet; the start creates it as declared"),
        "topic good.totals": ("ok", "does not exist yet; the start creates it for the table"),
        "topic good.pages": ("ok", "does not exist yet; the start creates it for the table"),
        "topic good.plain": (
            "warning",
            "does not exist; brokers with auto.create.topics.enable create it at its first use; create it first, or declare "
            "partitions=",
        ),
        "subject good.rides-value": ("ok", "the value's schema, Ride, is new and compatible; the start registers it"),
    }
    assert not topics(up) & {"good.rides", "good.totals", "good.pages", "good.plain"}
    assert up.run("schema", "list", "--json").json == []
    assert "ok       topic good.rides: does not exist yet" in check(up, "good").out


def test_an_app_that_does_not(up: Up, tmp_path: Path) -> None:
    """Each reason with its remedy; exit code 1."""
    up.run("topics", "create", "bad.fares", "-p", "2", "-c", "retention.ms=2000")
    up.run("topics", "create", "bad.zones", "-p", "2")
    up.run("topics", "create", "bad.reading", "-p", "2")
    up.run("topics", "create", "bad.both", "-p", "5")
    done = check(up, "bad", "--json")
    assert done.code == 1
    findings = by_subject(done)
    assert findings["topic bad.fares"] == (
        "warning",
        "it has 2 partitions, 3 are declared; retention.ms is 2000, 1000 is declared; the start does not change it: "
        "`busway topics alter bad.fares`, or the declaration",
    )
    assert findings["topic bad.zones"] == ("ok", "exists with 2 partitions")
    assert findings["topic bad.raeding"] == (
        "problem",
        "does not exist, and is read_only: its writer creates it; did you mean bad.reading? create it first, or declare "
        "partitions=",
    )
    level, text = findings["topic bad.refused"]
    assert (level, text.partition(": ")[0]) == ("problem", "does not exist, and the brokers would not create it")
    level, text = findings["table bad.both"]
    assert level == "problem"
    assert "but bad.both has 5, bad.fares has 2, bad.zones has 2; create" in text
    level, text = findings["subject bad.fares-value"]
    assert (level, text.partition(";")[0]) == (
        "problem",
        "the value's schema, Fare, is not registered, and the app registers none",
    )
    assert findings["subject bad.raeding-value"][0] == "warning"
    for subject in ("bad.fares-value", "bad.zones-value"):
        (tmp_path / "fare.avsc").write_text(json.dumps(FARE))
        assert up.run("schema", "register", subject, str(tmp_path / "fare.avsc")).code == 0
    findings = by_subject(check(up, "incompatible", "--json"))
    level, text = findings["subject bad.fares-value"]
    assert (level, text.rpartition("; ")[2]) == ("problem", "Ride is not compatible by BACKWARD")
    level, text = findings["subject bad.zones-value"]
    assert (level, text.rpartition("; ")[2]) == ("warning", "Fare may not read records of version 1")


def test_groups_of_another_kind(up: Up) -> None:
    """A queue whose name is that of a consumer group."""
    up.run("topics", "create", "c1")
    up.run("produce", "c1", "one")
    up.run("consume", "c1", "--from-beginning", "-n", "1", "--group", "good.queue")
    done = check(up, "good", "--json")
    assert done.code == 1
    assert by_subject(done)["queue good.queue"] == (
        "problem",
        "it is a group of the type consumer on the brokers; give the queue another group=",
    )


def test_servers_that_are_away(up: Up) -> None:
    """A line for the brokers and one for the registry."""
    done = check(up, "good", "-b", "127.0.0.1:1", "-r", "http://127.0.0.1:1", "--json")
    findings = by_subject(done)
    assert (done.code, list(findings)) == (1, ["brokers", "schema registry"])
    assert "no broker can be reached" in findings["brokers"][1]
    done = check(up, "absent")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "has no App called absent" in done.err


def test_a_registered_schema(up: Up, tmp_path: Path) -> None:
    """It is named with its id."""
    schema = {
        "type": "record",
        "name": "Ride",
        "fields": [{"name": "id", "type": "string"}, {"name": "zone", "type": "string", "default": "centre"}],
    }
    (tmp_path / "ride.avsc").write_text(json.dumps(schema))
    registered = up.run("schema", "register", "good.rides-value", str(tmp_path / "ride.avsc"), "--json").json
    text = by_subject(check(up, "good", "--json"))["subject good.rides-value"][1]
    assert text == f"the value's schema, Ride, is registered with id {registered['id']}"
