"""`busway up`, `broker` and `registry` as processes: starting, being in use, ending, keeping what they hold."""

import signal
from pathlib import Path

import pytest
from tests.integration.cli.conftest import SECONDS, Up, run, start
from tests.support.programs import held_ports

pytestmark = pytest.mark.slow


def test_up_keeps_its_data_and_says_who_holds_it(tmp_path: Path) -> None:
    """A second start on the same data names the first; after Ctrl-C a new start has every record and schema."""
    schema = tmp_path / "s.avsc"
    schema.write_text('"string"')
    data = tmp_path / "data"
    up = Up(data)
    try:
        up.run("produce", "kept", stdin="one\ntwo\n")
        up.run("schema", "register", "kept-value", str(schema))
        second = run("up", "--data", str(data), "--port", "0", "--registry-port", "0")
        assert (second.code, second.err.count("\n")) == (1, 1)
        assert f"is in use by process {up.process.pid}" in second.err
        third = run("up", "--data", str(tmp_path / "other"), "--port", up.bootstrap.rpartition(":")[2])
        assert (third.code, third.err.count("\n")) == (1, 1)
        assert "in use" in third.err
    finally:
        assert up.stop() == 0
    up = Up(data)
    try:
        assert up.run("consume", "kept", "--from-beginning", "-n", "2").out == "one\ntwo\n"
        assert up.run("schema", "get", "kept-value").out == '"string"\n'
    finally:
        assert up.stop(signal.SIGTERM) == 0


def test_up_tells_people_where_it_is_and_what_to_try(tmp_path: Path) -> None:
    """Addresses and commands at the start, one line at the end."""
    process = start("up", "--data", str(tmp_path / "data"), "--port", "0", "--registry-port", "0")
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("broker    127.0.0.1:")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, "")
    assert f"busway consume greetings --from-beginning -b {first.split()[1]}" in out
    assert out.endswith("stopped; everything is on disk\n")


def test_up_beyond_this_machine_needs_a_word(tmp_path: Path) -> None:
    """Without authentication only loopback is listened on."""
    done = run("up", "--data", str(tmp_path), "--port", "0", "--registry-port", "0", "--host", "0.0.0.0")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "insecure" in done.err


def test_up_takes_settings_of_the_broker(tmp_path: Path) -> None:
    """By Kafka's names: two listeners, each with its advertised address; nonsense is one line."""
    (port,) = held_ports(1)
    protocols = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    listeners = f"listeners=A://127.0.0.1:0,B://127.0.0.1:{port}"
    up = Up(
        tmp_path / "data",
        "-o",
        listeners,
        "-o",
        protocols,
        "-o",
        f"advertised.listeners=A://127.0.0.1:0,B://localhost:{port}",
    )
    try:
        assert up.run("topics", "create", "both").code == 0
        assert "both" in run("topics", "list", "-b", f"127.0.0.1:{port}").out
    finally:
        assert up.stop() == 0
    for given, text in (
        ("listeners", "--override listeners: give name=value"),
        ("listeners=C://127.0.0.1:0", "only PLAINTEXT"),
    ):
        refused = run("up", "--data", str(tmp_path / "other"), "-o", given)
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert text in refused.err


def test_a_broker_takes_kafkas_properties(tmp_path: Path) -> None:
    """A fresh directory is formatted by itself; unknown names and bad values are refused by name."""
    config = tmp_path / "server.properties"
    config.write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'logs'}\nnum.partitions=7\n")
    broker = Up(tmp_path / "logs", "-c", str(config), command="broker")
    try:
        assert broker.run("topics", "create", "t", "--json").json == {"topic": "t", "partitions": 7}
    finally:
        assert broker.stop() == 0
    for line, why in (("log.retention.minutos=5", "log.retention.minutos"), ("num.partitions=many", "num.partitions")):
        config.write_text(f"{line}\nlog.dirs={tmp_path / 'logs'}\n")
        done = run("broker", "-c", str(config))
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert why in done.err


def test_a_registry_alone(tmp_path: Path) -> None:
    """With its own database, at an address that it tells."""
    import json

    process = start("registry", "--port", "0", "--database", f"sqlite+aiosqlite:///{tmp_path / 'r.db'}", "--json")
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["schema_registry"]
    assert run("schema", "list", "-r", url).out == "subject\tversions\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0
