"""`busway init`: what it writes passes its own test, the linters, and runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.cli.conftest import SECONDS, Up, run, start
from tests.support.patience import patient

from busway.cli.init import FILES

pytestmark = pytest.mark.slow


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """A new one."""
    folder = tmp_path / "shop.orders"
    done = run("init", str(folder))
    assert (done.code, done.err) == (0, "")
    assert {file.name for file in folder.iterdir()} == set(FILES)
    return folder


def call(folder: Path, *command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=patient(100), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_test_passes(service: Path) -> None:
    """With its own settings of pytest; the linter has nothing to say."""
    call(service, "pytest", "-q", "-p", "no:cacheprovider")
    call(service, "ruff", "check", "--no-cache", "--isolated", "--line-length", "120", ".")
    call(service, "ruff", "format", "--no-cache", "--isolated", "--line-length", "120", "--check", ".")


@pytest.mark.package
def test_its_types_are_strict(service: Path) -> None:
    """mypy has nothing to say."""
    call(service, "mypy", "--strict", "--cache-dir", os.devnull, "service.py", "test_service.py")


def test_it_runs(service: Path, up: Up) -> None:
    """An order that is sent is confirmed."""
    schema = {
        "type": "record",
        "name": "OrderPlaced",
        "fields": [
            {"name": "order_id", "type": "string"},
            {"name": "quantity", "type": "long"},
            {"name": "unit_price", "type": "double"},
        ],
    }
    (service / "order.avsc").write_text(json.dumps(schema))
    up.run("topics", "create", "shop.orders.confirmations")
    order = '{"order_id": "o1", "quantity": 2, "unit_price": 1.5}\n'
    sent = up.run("produce", "shop.orders.orders", "--avro", str(service / "order.avsc"), stdin=order)
    assert sent.code == 0, sent.err
    running = start("run", "service:app", env={**up.env, "PYTHONUNBUFFERED": "1"}, cwd=service)
    read = up.run("consume", "shop.orders.confirmations", "--from-beginning", "-n", "1")
    assert json.loads(read.out) == {"order_id": "o1", "total": 3.0, "currency": "EUR"}
    running.terminate()
    out, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 0, err
    assert "shop.orders stopped: 1 records handled" in out


def test_nothing_is_replaced(service: Path, tmp_path: Path) -> None:
    """Existing files are named; a name that topics cannot have is refused."""
    (service / "service.py").write_text("own = True")
    for file in ("test_service.py", "pyproject.toml"):
        (service / file).unlink()
    done = run("init", str(service))
    assert done.code == 1
    assert (
        done.err
        == f"busway: {service} has service.py, README.md, .gitignore already; give a new folder, or move them away\n"
    )
    assert (service / "service.py").read_text() == "own = True"
    assert not (service / "pyproject.toml").exists()
    done = run("init", str(tmp_path / "a b"))
    assert done.err.startswith("busway: 'a b' is no name for a service: up to 100 letters")
    assert not (tmp_path / "a b").exists()
    assert run("init", str(tmp_path / "a b"), "--name", "ab").code == 0
