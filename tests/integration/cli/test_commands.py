"""Every command against `busway up`: what it prints for people and for programs, its exit code, one line for an error."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest
from tests.integration.cli.conftest import SECONDS, Up, run, start

from busway import Admin, Consumer, ShareConsumer

pytestmark = pytest.mark.slow
SCHEMA = {"type": "record", "name": "Ride", "fields": [{"name": "id", "type": "string"}]}
FLOAT = {"type": "record", "name": "Ride", "fields": [{"name": "id", "type": "double"}]}


def test_topics(up: Up) -> None:
    """Created, listed, described, changed, deleted."""
    assert (
        up.run("topics", "create", "a1", "-p", "2", "-c", "retention.ms=5000").out == "created a1 with 2 partitions\n"
    )
    assert {"topic": "a1", "partitions": 2, "replicas": 1} in up.run("topics", "list", "--json").json
    assert "a1\t2\t1" in up.run("topics", "list").out.splitlines()
    up.run("topics", "alter", "a1", "-p", "3", "-c", "retention.ms=7000")
    topic = up.run("topics", "describe", "a1", "--json").json
    assert [
        (partition["partition"], partition["first_offset"], partition["end_offset"])
        for partition in topic["partitions"]
    ] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert topic["configs"] == {"retention.ms": "7000"}
    assert up.run("topics", "alter", "a1", "--delete-config", "retention.ms", "--json").json == {"topic": "a1"}
    assert "retention.ms" not in up.run("topics", "describe", "a1").err
    head = "partition\tleader\treplicas\tisr\tfirst_offset\tend_offset"
    assert up.run("topics", "describe", "a1").out.splitlines()[0] == head
    assert up.run("topics", "delete", "a1", stdin="n\n").code == 1
    assert up.run("topics", "delete", "a1", "-y", "--json").json == {"deleted": ["a1"]}
    assert all(topic["topic"] != "a1" for topic in up.run("topics", "list", "--json").json)


def test_features(up: Up) -> None:
    """Described, checked, lowered, turned off and raised; what is refused is reported in the broker's words."""
    rows = {feature["feature"]: feature for feature in up.run("features", "describe", "--json").json}
    assert (rows["group.version"]["lowest"], rows["group.version"]["highest"]) == (0, 1)
    assert up.run("features", "describe").out.startswith("feature\tlowest\thighest\tfinalized\tepoch\n")

    def level() -> int:
        finalized = {
            feature["feature"]: feature["finalized"] for feature in up.run("features", "describe", "--json").json
        }
        return int(finalized["transaction.version"])

    assert level() == 2
    checked = up.run("features", "downgrade", "transaction.version=1", "--dry-run")
    assert (checked.out, level()) == ("can be lowered: transaction.version to 1\n", 2)
    assert up.run("features", "downgrade", "transaction.version=1").out == "lowered: transaction.version to 1\n"
    assert level() == 1
    off = up.run("features", "disable", "transaction.version", "group.version", "--json")
    assert off.json == {"levels": {"transaction.version": 0, "group.version": 0}, "changed": True}
    assert level() == 0
    up.run("features", "upgrade", "transaction.version=2", "group.version=1")
    assert level() == 2
    refused = up.run("features", "upgrade", "kraft.version=1")
    assert refused.code == 1
    assert "kraft.version. Local controller 1 does not support this feature." in refused.err
    assert up.run("features", "upgrade", "group.version").err.endswith("give FEATURE=LEVEL, such as group.version=1\n")
    assert "given twice" in up.run("features", "upgrade", "a=1", "a=2").err


def test_reading_a_topic_that_is_not_there_makes_none(up: Up) -> None:
    """A slip of the finger is reported, with the name that was meant, and leaves nothing behind."""
    assert up.run("topics", "create", "greetings").code == 0
    done = up.run("consume", "greetigns", "--until-end")
    assert (done.code, done.err) == (1, "busway: topic greetigns does not exist; did you mean greetings?\n")
    done = up.run("consume", "greetings", "zzz", "--json")
    assert json.loads(done.err) == {"error": "topic zzz does not exist; busway topics create zzz makes it"}
    done = up.run("topics", "describe", "zzz")
    assert done.err.startswith("busway: topic zzz: ")
    assert done.err.endswith("(UNKNOWN_TOPIC_OR_PARTITION); `busway topics list` lists the topics there are\n")
    names = [topic["topic"] for topic in up.run("topics", "list", "--json").json]
    assert "greetings" in names
    assert not {"greetigns", "zzz"} & set(names)


def test_produce_and_consume(up: Up) -> None:
    """Lines, arguments, keys, headers, bytes that are no text; all of it, the end, a number of records."""
    assert up.run("produce", "b1", stdin="one\r\ntwo\nthree").err == "3 records acknowledged\n"
    assert up.run("produce", "b1", "four", "-k", "k", "-H", "h=1", "-H", "h=2", "--json").json == {
        "topic": "b1",
        "records": 1,
    }
    assert up.run("produce", "b1", "--key-separator", ":", stdin="a:b:c\n").code == 0
    assert up.run("produce", "b1", stdin=b"\xff\x00\n").code == 0
    lines = up.run("consume", "b1", "--from-beginning", "--until-end").out.splitlines()
    assert lines == ["one", "two", "three", "four", "b:c", "base64:/wA="]
    records = [
        json.loads(line) for line in up.run("consume", "b1", "--from-beginning", "-n", "5", "--json").out.splitlines()
    ]
    assert [(record["offset"], record["key"], record["value"]) for record in records][2:] == [
        (2, None, "three"),
        (3, "k", "four"),
        (4, "a", "b:c"),
    ]
    assert records[3]["headers"] == [["h", "1"], ["h", "2"]]
    assert up.run("produce", "b1", "one").err == "1 record acknowledged\n"
    assert up.run("consume", "b1", "--since", "2200-01-01", "--until-end").out == ""
    assert len(up.run("consume", "b1", "--since", "2001-01-01", "--until-end").out.splitlines()) == 7


def test_lines_are_sent_as_they_are_typed(up: Up) -> None:
    """The second line need not come for the first to be there."""

    async def first() -> bytes | None:
        async with Consumer("b2", bootstrap_servers=up.bootstrap, auto_offset_reset="earliest") as consumer:
            async with asyncio.timeout(SECONDS):
                return (await consumer.getone()).value

    producing = start("produce", "b2", env=up.env)
    assert producing.stdin is not None
    producing.stdin.write("typed\n")
    producing.stdin.flush()
    assert asyncio.run(first()) == b"typed"
    producing.send_signal(signal.SIGINT)
    _, err = producing.communicate(timeout=SECONDS)
    assert (producing.returncode, "Traceback" in err) == (130, False)


def test_avro(up: Up, tmp_path: Path) -> None:
    """JSON lines through a schema, read back as JSON; a line that does not fit is named."""
    file = tmp_path / "ride.avsc"
    file.write_text(json.dumps(SCHEMA))
    assert up.run("produce", "c1", "--avro", str(file), stdin='{"id": "r1"}\n').code == 0
    assert up.run("consume", "c1", "--from-beginning", "--until-end").out == '{"id": "r1"}\n'
    away = up.run("consume", "c1", "--from-beginning", "--until-end", "-r", "http://127.0.0.1:1")
    assert away.out.startswith("base64:")
    assert away.err.startswith("busway: keys and values in Avro are shown as they came: the schema registry at ")
    assert away.err.count("\n") == 1
    up.run("produce", "c2", "plain")
    both = up.run("consume", "c1", "c2", "--from-beginning", "--until-end").out.splitlines()
    assert sorted(both) == ['c1\t{"id": "r1"}', "c2\tplain"]
    for line in ('{"id": 1}', "{", "5", "[]"):
        done = up.run("produce", "c1", "--avro", str(file), stdin=f'{{"id": "r2"}}\n{line}\n')
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert done.err.startswith("busway: line 2 does not fit the schema: ")


def test_a_share_group_with_dead_letters(up: Up) -> None:
    """It is shown where they go, to people in a line of its own; without, nothing and null."""
    assert up.run("features", "upgrade", "share.version=2").out == "raised: share.version to 2\n"
    up.run("produce", "q1", stdin="1\n")

    async def join(group: str, **settings: str) -> None:
        async with Admin(up.bootstrap) as admin:
            await admin.alter_group_configs(group, {"share.auto.offset.reset": "earliest", **settings})
        async with ShareConsumer("q1", bootstrap_servers=up.bootstrap, group_id=group) as consumer:
            while not await consumer.getmany(timeout_ms=SECONDS * 1000):
                pass

    asyncio.run(join("qd", **{"errors.deadletterqueue.topic.name": "dlq.q1"}))
    asyncio.run(join("qn"))
    said = up.run("groups", "describe", "qd").err.splitlines()
    assert said[0].startswith("qd: Empty, share")
    assert said[1] == "the broker writes the group's dead letters to dlq.q1"
    assert up.run("groups", "describe", "qd", "--json").json["dead_letters"] == "dlq.q1"
    assert "the broker puts" not in up.run("groups", "describe", "qn").err
    assert up.run("groups", "describe", "qn", "--json").json["dead_letters"] is None
    done = up.run("features", "downgrade", "share.version=1")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "group qd has errors.deadletterqueue.topic.name" in done.err


def test_groups(up: Up) -> None:
    """Listed, described with lag, reset when no member reads, deleted."""
    up.run("produce", "d1", stdin="1\n2\n3\n4\n")
    assert up.run("consume", "d1", "-g", "dg", "--from-beginning", "-n", "3").out == "1\n2\n3\n"
    assert "dg" in [group["group"] for group in up.run("groups", "list", "--json").json]
    assert "dg\tconsumer\tEmpty" in up.run("groups", "list").out.splitlines()
    group = up.run("groups", "describe", "dg", "--json").json
    assert (group["state"], group["partitions"][0]["committed"], group["partitions"][0]["lag"]) == ("Empty", 3, 1)
    described = up.run("groups", "describe", "dg")
    head, row = described.out.splitlines()
    assert described.err.startswith("dg: Empty, consumer, shared by uniform, epoch ")
    assert head == "topic\tpartition\tcommitted\tend\tlag\tmember\tclient"
    assert row == "d1\t0\t3\t4\t1\t-\t-"
    assert "nothing was changed" in up.run("groups", "reset", "dg", "-t", "d1", "--to", "earliest").out
    assert up.run("groups", "describe", "dg", "--json").json["partitions"][0]["committed"] == 3
    up.run("groups", "reset", "dg", "-t", "d1", "--to", "99", "--execute")
    assert up.run("groups", "describe", "dg", "--json").json["partitions"][0]["committed"] == 4
    up.run("groups", "reset", "dg", "-t", "d1", "--to", "1", "--execute", "--json")
    reading = start("consume", "d1", "-g", "dg", env=up.env)
    try:
        assert reading.stdout is not None
        assert reading.stdout.readline() == "2\n"
        done = up.run("groups", "reset", "dg", "-t", "d1", "--to", "earliest", "--execute")
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert up.run("groups", "delete", "dg", "-y").code == 1
    finally:
        reading.send_signal(signal.SIGINT)
        _, err = reading.communicate(timeout=SECONDS)
    assert (reading.returncode, err) == (130, "")
    kept = up.run("groups", "delete", "dg", stdin="n\n")
    assert (kept.code, kept.out) == (1, "")
    assert kept.err.endswith("busway: nothing was changed; --yes answers this question\n")
    assert up.run("groups", "delete", "dg", "--yes", "--json").json == {"deleted": ["dg"]}


def test_groups_reset_by_kafkas_rules(up: Up) -> None:
    """To a moment, by a duration, by a shift, for some partitions or all topics; what is clipped is reported."""
    up.run("topics", "create", "r1", "-p", "2")
    for number in range(2):
        up.run("produce", "r1", "-k", "kj"[number], stdin="1\n2\n3\n")
    assert up.run("consume", "r1", "-g", "rg", "--from-beginning", "-n", "6").code == 0

    def reset(*rule: str) -> tuple[dict[int, int], str]:
        done = up.run("groups", "reset", "rg", *rule, "--execute", "--json")
        assert done.code == 0, done.err
        return {row["partition"]: row["to"] for row in done.json}, done.err

    assert reset("-t", "r1", "--to-datetime", "2001-01-31T12:00:00.000+02:00") == ({0: 0, 1: 0}, "")
    ends, _ = reset("--all-topics", "--to", "latest")
    assert sum(ends.values()) == 6
    assert reset("-t", "r1", "--to-datetime", "2200-01-01T00:00:00") == (ends, "")
    assert reset("-t", "r1", "--by-duration", "P1DT1H") == ({0: 0, 1: 0}, "")
    assert reset("-t", "r1", "--by-duration", "PT0S") == (ends, "")
    full = max(ends, key=lambda number: ends[number])
    assert reset("-t", f"r1:{full}", "--shift-by", "-1") == ({full: ends[full] - 1}, "")
    moved, said = reset("-t", f"r1:{full}", "--shift-by", "999")
    assert moved == {full: ends[full]}
    assert f"r1-{full} has offsets 0 to {ends[full]}: {ends[full] + 998} becomes {ends[full]}" in said
    committed = up.run("groups", "describe", "rg", "--json").json["partitions"]
    assert {row["partition"]: row["committed"] for row in committed} == ends


def test_consume_commits_where_it_began_and_leaves_when_it_is_terminated(up: Up) -> None:
    """Before it has read anything; SIGTERM is like Ctrl-C, and records of the meantime are read by the next one."""
    up.run("topics", "create", "latest", "-p", "1")
    reading = start("consume", "latest", "-g", "lg", env=up.env)
    try:
        while '"committed": 0' not in up.run("groups", "describe", "lg", "--json").out:
            assert reading.poll() is None
        reading.send_signal(signal.SIGTERM)
        _, err = reading.communicate(timeout=SECONDS)
    finally:
        reading.kill()
    assert (reading.returncode, err) == (143, "")
    assert up.run("groups", "describe", "lg", "--json").json["state"] == "Empty"
    up.run("produce", "latest", stdin="1\n2\n")
    assert up.run("consume", "latest", "-g", "lg", "-n", "2").out == "1\n2\n"


def test_schema(up: Up, tmp_path: Path) -> None:
    """Registered, listed, shown, compared, levels, deleted."""
    good, bad = tmp_path / "good.avsc", tmp_path / "bad.avsc"
    good.write_text(json.dumps(SCHEMA))
    bad.write_text(json.dumps(FLOAT))
    registered = up.run("schema", "register", "e1-value", str(good), "--json").json
    assert up.run("schema", "register", "e1-value", str(good)).out == f"e1-value has id {registered['id']}\n"
    assert {"subject": "e1-value", "versions": [1]} in up.run("schema", "list", "--json").json
    assert "e1-value\t1" in up.run("schema", "list").out.splitlines()
    schema = up.run("schema", "get", "e1-value", "-v", "1", "--json").json
    assert json.loads(schema["schema"]) == SCHEMA
    assert json.loads(up.run("schema", "get", "e1-value").out) == SCHEMA
    assert up.run("schema", "check", "e1-value", str(good)).out == "compatible with e1-value\n"
    refused = up.run("schema", "check", "e1-value", str(bad))
    assert refused.code == 1
    assert refused.err.startswith("busway: not compatible with e1-value:\n  keep the type, ")
    assert "{errorType" not in refused.err
    assert up.run("schema", "check", "e1-value", str(bad), "--json").json["compatible"] is False
    refused = up.run("schema", "register", "e1-value", str(bad))
    assert refused.err.startswith("busway: keep the type, ")
    assert refused.err.endswith("; the schema is not compatible with version 1 of e1-value by BACKWARD (409)\n")
    assert up.run("schema", "level", "e1-value").out == "BACKWARD\n"
    assert up.run("schema", "level", "e1-value", "--set", "NONE", "--json").json["compatibility"] == "NONE"
    assert up.run("schema", "register", "e1-value", str(bad)).code == 0
    assert (
        up.run("schema", "delete", "e1-value", "-y").out
        == "deleted versions 1, 2 of e1-value; --permanent removes them\n"
    )
    assert up.run("schema", "delete", "e1-value", "--permanent", "-y", "--json").json["versions"] == [1, 2]


FAILURES: list[tuple[list[str], str]] = [
    (["produce", "t", "x", "--partition", "9"], "partition 9 of t does not exist"),
    (["produce", "t", "x", "-b", "nonsense:port"], "'nonsense:port' is not host:port"),
    (["produce", "t", "x", "-b", "127.0.0.1:1"], "cannot connect to 127.0.0.1:1"),
    (["produce", "a/b", "x"], "topic a/b"),
    (["produce", "t", "x", "-H", "header"], "--header header: give name=value"),
    (["produce", "t", "no separator", "--key-separator", "="], "line 1 has no '=' between key and value"),
    (["produce", "t", "x", "--avro", "/nonexistent"], "No such file or directory: /nonexistent"),
    (["consume", "t", "-g", "g", "--until-end"], "--since and --until-end read without a group"),
    (["topics", "create", "t", "-c", "nonsense"], "--config nonsense: give name=value"),
    (["topics", "create", "t2", "-c", "no.such=1"], "no.such"),
    (["topics", "alter", "t"], "nothing to change"),
    (["topics", "alter", "nope", "-p", "3"], "nope"),
    (["topics", "describe", "nope"], "topic nope"),
    (["topics", "delete", "nope", "-y"], "nope"),
    (["groups", "describe", "nope"], "group nope"),
    (["groups", "reset", "nope", "-t", "t", "--to", "later"], "--to later: give earliest, latest or an offset"),
    (["groups", "reset", "nope", "-t", "t:99", "--to", "1"], "topic t has 1 partitions, and no 99"),
    (["groups", "reset", "nope", "-t", "t:a", "--to", "1"], "--topic t:a: give a topic, or some of its partitions"),
    (["groups", "reset", "nope", "--all-topics", "--to", "1"], "the group has committed offsets of, which are none"),
    (["groups", "reset", "nope", "-t", "t", "--all-topics", "--to", "1"], "give either --topic or --all-topics"),
    (["groups", "reset", "nope", "-t", "t"], "give one of --to, --to-datetime, --by-duration and --shift-by"),
    (["groups", "reset", "nope", "-t", "t", "--to", "1", "--shift-by", "1"], "give one of --to"),
    (["groups", "reset", "nope", "-t", "t", "--shift-by", "1"], "the group has committed no offset of t-0"),
    (["groups", "reset", "nope", "-t", "t", "--to-datetime", "noon"], "--to-datetime noon: give it as"),
    (["groups", "reset", "nope", "-t", "t", "--by-duration", "1 hour"], "--by-duration 1 hour: give it as"),
    (["schema", "get", "nope"], "'nope' not found"),
    (["schema", "get", "nope", "-v", "x"], "'x' is not a valid version"),
    (["schema", "list", "-r", "http://me:secret@127.0.0.1:1"], "http://127.0.0.1:1 does not answer"),
    (["schema", "list", "-r", "nonsense"], "'nonsense' is no address of a schema registry"),
    (["schema", "level", "nope", "--set", "SOME"], "Invalid compatibility level"),
    (["run", "nope:app"], "there is no module nope"),
    (["run", "json:dumps"], " has no App called dumps; it has none"),
    (["run", "json"], "give MODULE:APP"),
    (["run", "json:x", "--log-level", "loud"], "--log-level loud"),
    (["broker", "-o", "nonsense"], "--override nonsense: give name=value"),
    (["broker", "-o", "no.such.setting=1"], "no.such.setting"),
    (["broker", "-c", "/nonexistent"], "No such file or directory: /nonexistent"),
    (["broker", "--data", "/dev/null/x", "-o", "listeners=PLAINTEXT://127.0.0.1:0"], "/dev/null/x"),
    (["registry", "--compatibility", "SOME", "--port", "0"], "Invalid compatibility level"),
    (["demo", "nope"], "there is no case study nope"),
]


@pytest.fixture(scope="module")
def t(up: Up) -> Up:
    """With a topic called t."""
    up.run("topics", "create", "t")
    return up


@pytest.mark.parametrize(("arguments", "why"), FAILURES, ids=[" ".join(command)[:40] for command, _ in FAILURES])
def test_a_failure_is_one_line_and_one(t: Up, arguments: list[str], why: str) -> None:
    """Exit code 1, the reason on standard error, nothing on standard output."""
    done = t.run(*arguments)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("busway: ")
    assert why in done.err
    assert done.err.count("\n") == 1
    assert "secret" not in done.err


def test_a_failure_in_json_is_json(up: Up) -> None:
    """On standard error, so that standard output holds answers only."""
    done = up.run("topics", "describe", "nope", "--json")
    assert (done.code, done.out) == (1, "")
    assert "topic nope" in json.loads(done.err)["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["topics", "create"],
        ["consume", "t", "-n", "x"],
        ["topics", "list", "--nope"],
        ["transactions", "hanging", "--idle-minutes", "inf"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_two(arguments: list[str]) -> None:
    """And says how it is used."""
    done = run(*arguments)
    assert done.code == 2
    assert "Usage: " in done.err


def test_help_and_version() -> None:
    """Every command is listed; the version is a number."""
    text = run("--help").out
    for name in ("up", "broker", "registry", "topics", "produce", "consume", "groups", "schema", "run", "demo"):
        assert f" {name} " in text
    assert run("version").out.strip()[0].isdigit()


def test_a_pipe_that_is_closed_ends_quietly(up: Up) -> None:
    """`busway consume … | head -1`."""
    up.run("produce", "f1", stdin="".join(f"{number}\n" for number in range(20_000)))
    reading = start("consume", "f1", "--from-beginning", env=up.env)
    assert reading.stdout is not None
    assert reading.stdout.readline() == "0\n"
    reading.stdout.close()
    assert reading.stderr is not None
    assert reading.wait(SECONDS) in {0, 1}
    assert reading.stderr.read() == ""
    reading.stderr.close()
    assert reading.stdin is not None
    reading.stdin.close()


def test_what_comes_from_others_cannot_command_a_terminal(up: Up) -> None:
    """Escape sequences are spelled out on a terminal and left alone in a pipe."""
    import os
    import pty
    import sys

    up.run("produce", "g1", stdin="\x1b]0;titlered\x9b31m\n")
    assert up.run("consume", "g1", "--from-beginning", "--until-end").out == "\x1b]0;titlered\x9b31m\n"
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "busway.cli", "consume", "g1", "--from-beginning", "--until-end"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=SECONDS,
        env={**os.environ, **up.env},
        check=True,
    )
    os.close(theirs)
    shown = os.read(ours, 1000)
    os.close(ours)
    assert done.stderr == b""
    assert b"\x1b" not in shown
    assert b"\\x1b]0;titlered\\x9b31m" in shown
