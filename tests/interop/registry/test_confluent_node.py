"""Confluent's registry client and Avro serializer for Node, in the version that `node/package.json` names."""

import asyncio
import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tools.jars import ROOT, need

from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(400)]

HERE = Path(__file__).parent / "node"
DEBIAN = "nodejs npm"


def installed() -> Path:
    """The folder with the program and its packages; named by a digest of their list, filled on first use."""
    need("node", DEBIAN)
    npm = need("npm", DEBIAN)
    digest = hashlib.sha256((HERE / "package.json").read_bytes()).hexdigest()[:12]
    folder = ROOT / ".cache" / f"registry-node-{digest}"
    if not (folder / ".complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", folder)
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"npm install failed: {(done.stdout + done.stderr)[-2000:]}"
        (folder / ".complete").touch()
    shutil.copy(HERE / "round.js", folder)
    return folder


def drive(url: str) -> dict[str, Any]:
    command = [need("node", DEBIAN), "round.js", url]
    done = subprocess.run(command, cwd=installed(), capture_output=True, text=True, timeout=patient(120), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


async def test_the_client(registry_url: str) -> None:
    """Register, refuse, check, serialize, evolve, deserialize with the new schema, configure, delete."""
    assert await asyncio.to_thread(drive, registry_url) == {
        "register": 1,
        "again": 1,
        "incompatible": [409, 409],
        "nonsense": [422, 42201],
        "compatible": [True, False],
        "prefix": [0, 0, 0, 0, 1],
        "record": {"user": 7, "stars": 4.5},
        "second": 2,
        "latest": [2, 2, 3],
        "evolved": {"user": 7, "stars": 4.5, "title": None},
        "versions": [1, 2],
        "subjects": ["ratings-value"],
        "id": 1,
        "version": 2,
        "level": "FULL",
        "readLevel": "FULL",
        "noLevel": [404, 40408],
        "name": 1,
        "deletedVersion": 1,
        "deleted": [2],
        "gone": [1, 2],
        "left": ["a/b:c 値"],
    }
