"""Settings have the names and defaults of Apache Kafka 4.3.1, but for those that docs/COMPATIBILITY.md names."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tools.compatibility import OWN_DEFAULTS
from tools.jars import kafka_libs, need

from busway_bus.kernel.broker_configs import BROKER_CONFIGS
from busway_bus.kernel.config_def import ConfigKey, render
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS
from busway_bus.metadata.features import DEAD_LETTER_CONFIGS

SOURCE = Path(__file__).parent / "java" / "Configs.java"
OURS = {"busway.insecure", "durability", "group.disconnect.grace.ms", "log.durability", "metrics.listener"}
REQUIRED = {"controller.listener.names", "node.id", "process.roles"}
"""Without a default in Kafka."""


@pytest.fixture(scope="module")
def defaults() -> dict[str, dict[str, str | None]]:
    """Kafka's, by kind and name."""
    command = [need("java", "openjdk-17-jdk-headless"), "-cp", f"{kafka_libs()}/*", str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kinds: dict[str, dict[str, str | None]] = {"broker": {}, "topic": {}}
    for line in done.stdout.splitlines():
        kind, name, *default = line.split("\t")
        kinds[kind][name] = default[0] if default and default[0] != "null" else None
    return kinds


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "keys"), [("broker", BROKER_CONFIGS), ("topic", TOPIC_CONFIGS)])
def test_defaults_are_kafkas(
    defaults: dict[str, dict[str, str | None]], kind: str, keys: Mapping[str, ConfigKey]
) -> None:
    """Each setting is one of Kafka's, with its default; of topics, all are there."""
    kafkas = defaults[kind]
    later = {name for name in keys if name.startswith(DEAD_LETTER_CONFIGS)}
    assert not later & set(kafkas), "Kafka has them now"
    assert set(keys) - set(kafkas) - later <= OURS
    assert kind == "broker" or set(kafkas) <= set(keys)
    others = {
        name: (render(key.default), kafkas[name])
        for name, key in keys.items()
        if name in kafkas and render(key.default) != kafkas[name]
    }
    assert {name for name in others if name not in REQUIRED} == (set(OWN_DEFAULTS) if kind == "broker" else set()), (
        others
    )
