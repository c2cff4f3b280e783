"""The examples of docs/guides/deployment.md, as systemd, Kubernetes, a shell and the broker read them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.patience import patient
from tools.install_foreign import kubernetes_schemas, need

from busway_bus.kernel.config import BrokerConfig

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "deployment.md").read_text()
VALIDATE = """
import json, sys
import kubernetes_validate
for manifest in json.load(sys.stdin):
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def manifests() -> list[dict[str, Any]]:
    documents = [document for block in blocks("yaml") for document in yaml.safe_load_all(block)]
    return [document for document in documents if "apiVersion" in document]


def node_settings() -> dict[str, str]:
    (text,) = blocks("properties")
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.foreign
def test_units_are_systemds(tmp_path: Path) -> None:
    """Without a warning; the programs are not installed here, so that another stands for them."""
    analyze = need("systemd-analyze")
    names, units = re.findall(r"`/etc/systemd/system/(\S+?)`", GUIDE), blocks("ini")
    assert names == ["busway-broker.service", "shop@.service"]
    for name, unit in zip(names, units, strict=True):
        path = tmp_path / name.replace("@", "@0")
        path.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", unit))
        verified = subprocess.run(
            [analyze, "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=patient(60), check=False
        )
        assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


@pytest.mark.foreign
def test_manifests_fit_kubernetes_schemas() -> None:
    """Of the newest version that the package knows, with no field that Kubernetes does not know."""
    kinds = [manifest["kind"] for manifest in manifests()]
    assert kinds == ["StatefulSet", "StatefulSet", "Service", "PodDisruptionBudget", "StatefulSet"]
    environment = {**os.environ, "PYTHONPATH": str(kubernetes_schemas())}
    validated = subprocess.run(
        [sys.executable, "-c", VALIDATE],
        input=json.dumps(manifests()), env=environment, capture_output=True, text=True, timeout=patient(60), check=False,
    )  # fmt: skip
    assert validated.returncode == 0, validated.stderr


def test_a_pod_formats_and_starts_its_node(tmp_path: Path) -> None:
    """The id follows from the pod's name, and both commands get the same settings, which the broker accepts."""
    (container,) = manifests()[-1]["spec"]["template"]["spec"]["containers"]
    program = tmp_path / "busway"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "POD": "bus-2", "CLUSTER_ID": "id"}
    ran = subprocess.run(
        [*container["command"], *container["args"]], env=environment, capture_output=True, text=True, check=True
    )
    settings = (
        "--config=/etc/busway/server.properties --override=node.id=3 "
        "--override=advertised.listeners=PLAINTEXT://bus-2.bus:9092"
    )
    assert ran.stdout.splitlines() == [
        f"cluster format {settings} --cluster-id=id --ignore-formatted",
        f"broker {settings}",
    ]


def test_the_settings_of_a_node_are_accepted() -> None:
    """As they stand, and with what the text says of pods."""
    config = BrokerConfig.from_properties(node_settings())
    assert set(config.voters) == {1, 2, 3}
    voters = "1@bus-0.bus:9093,2@bus-1.bus:9093,3@bus-2.bus:9093"
    assert f"controller.quorum.voters={voters}" in GUIDE
    pod = {**node_settings(), "controller.quorum.voters": voters, "metrics.listener": "0.0.0.0:9404"}
    pod |= {"node.id": "3", "advertised.listeners": "PLAINTEXT://bus-2.bus:9092"}
    assert BrokerConfig.from_properties(pod).node_id == 3
