"""Long-running commands with --log-format json: every line of standard error is an object."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.conftest import SECONDS, Up, start

pytestmark = pytest.mark.slow
SERVICE = """
import logging
import os
from busway import App

app = App("logged")
topic = app.topic("logged.topic", value=dict, format="json", partitions=2)

@app.on_assigned
async def assigned(partitions):
    logging.getLogger("shop").info("assigned", extra={"partitions": len(list(partitions))})
    print("assigned", os.environ["BUSWAY_WORKER"], flush=True)

@app.subscribe(topic)
async def handle(order: dict) -> None: ...
"""


def ended(process: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    """Stop it; the objects of its lines."""
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=SECONDS)
    lines = [json.loads(line) for line in err.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    return lines


def test_a_server(tmp_path: Path) -> None:
    """Its informative lines, too, at that level."""
    running = start(
        *("broker", "--data", str(tmp_path), "-o", "listeners=PLAINTEXT://127.0.0.1:0"),
        *("--log-format", "json", "--log-level", "info"),
    )
    assert running.stdout is not None
    assert running.stdout.readline().startswith("broker")
    lines = ended(running)
    assert running.returncode == 0
    assert "info" in {line["level"] for line in lines}


def test_a_service_with_workers(up: Up, tmp_path: Path) -> None:
    """Those of the workers, with their numbers, and those of the process above them."""
    (tmp_path / "logged.py").write_text(SERVICE)
    running = start("run", "logged:app", "-w", "2", env={**up.env, "BUSWAY_LOG_FORMAT": "json"}, cwd=tmp_path)
    assert running.stdout is not None
    waited = {"assigned 0\n", "assigned 1\n"}
    while waited:
        waited -= {running.stdout.readline()}
    lines = ended(running)
    own = [line for line in lines if line["logger"] == "shop"]
    assert own
    assert all(line["partitions"] in {0, 1, 2} for line in own)
    assert {line["worker"] for line in lines if line["logger"] == "busway.app"} == {0, 1}


def test_a_failed_start(tmp_path: Path) -> None:
    """The reason is such a line, as is that of a worker's end."""
    for arguments, code in (((), 1), (("-w", "2"), 1)):
        failed = start("run", "absent:app", "--log-format", "json", *arguments, cwd=tmp_path)
        _, err = failed.communicate(timeout=SECONDS)
        assert failed.returncode == code
        messages = [json.loads(line)["message"] for line in err.splitlines()]
        assert any("there is no module absent" in message for message in messages), messages
