"""The tutorial in the README: every command is run, and prints what the page says."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kit.parts import CASES
from tests.support.patience import patient
from tests.support.programs import end, held_ports, spawn

README = CASES / "ingestion" / "README.md"
pytestmark = pytest.mark.slow
SPARK_FROM = "## 6."
ANSWER_S = patient(60.0)


@dataclass
class Step:
    """A command, and the lines that the page shows below it."""

    command: str
    shown: list[str] = field(default_factory=list)


def steps(text: str) -> list[Step]:
    """The commands of the console blocks."""
    tutorial_steps: list[Step] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                tutorial_steps.append(Step(line.removeprefix("$ ")))
            else:
                tutorial_steps[-1].shown.append(line)
    return tutorial_steps


class Terminal:
    """Runs the commands in their order; those that stay run until the end."""

    def __init__(self, home: Path) -> None:
        bus, registry, self.port = held_ports(3)
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # as an activated environment has it
            "HOME": str(home),
            "XDG_CACHE_HOME": cache,
            "BUSWAY_BOOTSTRAP_SERVERS": f"127.0.0.1:{bus}",
            "BUSWAY_SCHEMA_REGISTRY": f"http://127.0.0.1:{registry}",
        }
        self.up = f"busway up --port {bus} --registry-port {registry}"
        self.folder = CASES.parents[1]
        self.log = home / "log"
        self.staying: list[subprocess.Popen[str]] = []

    def run(self, step: Step) -> None:
        """One command; what it prints is what the page shows, `…` for anything."""
        command = step.command.replace("busway up", self.up).replace(":8000", f":{self.port}")
        command = command.replace("--http 8000", f"--http {self.port}")
        if command.startswith("cd "):
            self.folder /= command.removeprefix("cd ")
        elif command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self.environment[name] = value.replace("~", self.environment["HOME"])
        elif command.endswith("# stays"):
            self._start(command)
        else:
            self._show(step, command)

    def _show(self, step: Step, command: str) -> None:
        """Questions are asked again until the answer is the one of the page: the service works while we ask."""
        deadline = time.monotonic() + (ANSWER_S if command.startswith("curl -s ") and " -X " not in command else 0)
        while True:
            done = subprocess.run(
                ["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True,
                timeout=patient(200), check=False,
            )  # fmt: skip
            wanted = [".*".join(re.escape(part) for part in line.split("…")) for line in step.shown]
            if done.returncode == 0 and all(re.search(pattern, done.stdout, re.DOTALL) for pattern in wanted):
                return
            assert time.monotonic() < deadline, f"{command}\nprinted {done.stdout}{done.stderr}\nand not {step.shown}"
            time.sleep(0.2)

    def _start(self, command: str) -> None:
        with self.log.open("a") as errors:
            process = spawn(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE,
                stderr=errors, text=True,
            )  # fmt: skip
        self.staying.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), f"{command}\n{self.log.read_text()}"

    def close(self) -> None:
        """End what stays, the last first."""
        for process in reversed(self.staying):
            end(process, signal.SIGINT)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """With a home of its own."""
    running = Terminal(tmp_path)
    yield running
    running.close()


@pytest.mark.foreign  # it asks with curl, as the page says
def test_the_tutorial_up_to_spark(terminal: Terminal) -> None:
    """Bus, topic, trucks, dashboard and alerts need nothing but Python."""
    for step in steps(README.read_text(encoding="utf-8").partition(SPARK_FROM)[0]):
        terminal.run(step)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_whole_tutorial(terminal: Terminal) -> None:
    """With the store, as Parquet and Delta, and both layers together."""
    for step in steps(README.read_text(encoding="utf-8")):
        terminal.run(step)
