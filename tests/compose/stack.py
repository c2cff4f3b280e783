"""The containers of compose/, built and run for real by whichever `docker compose` there is.

Here: starting, asking, killing, removing.
Not here: what the services are asked (`scenarios`).

A machine that has no engine, or no way to an image registry, may have a program beside the repository that gives it both and the base
image (`BASE_IMAGE`); images that cannot be pulled are then built by `compose.here.yaml`.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.support.patience import patient
from tests.support.programs import held_ports, release_ports
from tools.jars import ToolMissing

ROOT: Final = Path(__file__).resolve().parents[2]
BASE_IMAGE: Final = ROOT.parent / "shared" / "docker" / "base-image"
HEALTHY_S: Final = 120.0
BUILD_S: Final = 900.0
_PORTS: Final = (
    *("BUS", "BUS_1", "BUS_2", "BUS_3", "REGISTRY", "CONNECT", "SPARK", "PROMETHEUS"),
    *("MOVIEFLIX", "MYSOCIALMEDIA", "GETTAXI", "MYBANK", "BANK"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What the engine says of one container."""

    id: str
    image: str
    user: str
    running: bool
    health: str | None
    exit_code: int


class Stack:
    """All services of a file in compose/ under a project name of their own; removed with their volumes at the end.

    Args:
        file: compose.yaml, minimal.yaml or three.yaml.
        services: what is started; everything without a profile by default.
        profile: of services that need one.

    Attributes:
        ports: of the loopback address, by the name in `.env.example` without `_PORT`.
    """

    def __init__(self, file: str = "compose.yaml", services: tuple[str, ...] = (), profile: str | None = None) -> None:
        self._services = services
        self.ports = dict(zip(_PORTS, held_ports(len(_PORTS)), strict=True))
        files = [ROOT / "compose" / file]
        settings = {"POSTGRES_PASSWORD": "a-'quote\" and a space", "BUSWAY_TAG": "test"}
        if BASE_IMAGE.exists():
            _done([str(BASE_IMAGE)], os.environ.copy(), 600)
            settings["BUILD_NETWORK"] = "host"
            if file == "compose.yaml":
                files.append(ROOT / "compose" / "compose.here.yaml")
        ports = {f"{name}_PORT": str(port) for name, port in self.ports.items()}
        self._environment = {**os.environ, **_build_kit(), **settings, **ports}
        self._command = [*_compose(), "--project-name", f"busway-test-{os.getpid()}-{file.removesuffix('.yaml')}"]
        for file in files:
            self._command += ["--file", str(file)]
        if profile is not None:
            self._command += ["--profile", profile]

    def compose(self, *arguments: str, timeout_s: float = 120.0) -> str:
        """`docker compose …`; what it printed."""
        return _done([*self._command, *arguments], self._environment, timeout_s)

    def containers(self) -> dict[str, Container]:
        """All that were made, by service."""
        ids = self.compose("ps", "--all", "--quiet").split()
        described = json.loads(_done(["docker", "inspect", *ids], self._environment, 30)) if ids else []
        return {
            container["Config"]["Labels"]["com.docker.compose.service"]: _container(container)
            for container in described
        }

    def healthy(self, *services: str) -> None:
        """Wait until these are well, or all."""

        def well() -> bool:
            containers = self.containers()
            return all(
                containers[name].running and containers[name].health == "healthy" for name in services or containers
            )

        self._until(well)

    def _until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + patient(HEALTHY_S)
        while not condition():
            assert time.monotonic() < end, f"{self.containers()}\n{self.logs()}"
            time.sleep(0.5)

    def kill(self, service: str) -> None:
        """SIGKILL, without a word before; it stays away until `up`."""
        self.compose("kill", "--signal=SIGKILL", service)

    def up(self, *services: str) -> None:
        """Start what is not running, of these services or of all, and wait until it is well."""
        self.compose("up", "--detach", "--no-build", *services, timeout_s=HEALTHY_S)
        self.healthy(*services)

    def logs(self) -> str:
        """The end of what everything printed."""
        return self.compose("logs", "--no-color", "--tail=40")

    def url(self, name: str) -> str:
        """Where a service is from outside."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def __enter__(self) -> "Stack":
        try:
            self.compose("build", "--parallel", "--quiet", *self._services, timeout_s=BUILD_S)
            release_ports(tuple(self.ports.values()))  # Docker's proxy may not share them
            self.up(*self._services)
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Containers, networks and volumes; the images stay, as building them takes longest."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout=10")


def _container(inspected: Any) -> Container:
    state = inspected["State"]
    return Container(
        id=inspected["Id"],
        image=inspected["Config"]["Image"],
        user=inspected["Config"]["User"],
        running=state["Running"],
        health=state["Health"]["Status"] if "Health" in state else None,
        exit_code=state["ExitCode"],
    )


def _compose() -> list[str]:
    if shutil.which("docker") is None:
        raise ToolMissing(
            "docker is not installed: see docs.docker.com/engine/install, or apt-get install docker.io docker-compose"
        )
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        raise ToolMissing("docker compose is not installed: apt-get install docker-compose (or docker-compose-plugin)")
    return ["docker-compose"]


def _build_kit() -> dict[str, str]:
    """BuildKit builds stages side by side; a client before version 23 brings it, later ones have a plugin for it."""
    for folder in os.get_exec_path():
        docker = Path(folder) / "docker"
        if not docker.exists():
            continue
        major = (
            subprocess.run([docker, "--version"], capture_output=True, text=True, check=True)
            .stdout.split()[2]
            .split(".")[0]
        )
        plugin = subprocess.run([docker, "buildx", "version"], capture_output=True, check=False).returncode == 0
        if int(major) < 23 or plugin:
            return {
                "DOCKER_BUILDKIT": "1",
                "COMPOSE_DOCKER_CLI_BUILD": "1",
                "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            }
    return {"DOCKER_BUILDKIT": "0"}


def _done(command: list[str], environment: dict[str, str], timeout_s: float) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=patient(timeout_s), check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{(done.stdout + done.stderr)[-4000:]}"
    return done.stdout
