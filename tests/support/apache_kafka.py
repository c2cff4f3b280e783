"""Apache Kafka 4.3.1 itself: its broker as the other side of a comparison, its tools as foreign clients.

Here: one KRaft node in a JVM, and running a class of Kafka's tools.
Not here: fetching the jars (`tools.jars`).
"""

import base64
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.jars import kafka_libs, need

from tests.support import class_archive
from tests.support.class_archive import JDK
from tests.support.patience import patient
from tests.support.programs import Program, held_ports, spawn

START_SECONDS = patient(90.0)
QUICK = ("-XX:TieredStopAtLevel=1",)
"""The first compiler alone: for JVMs that live no longer than a test."""


def _log4j(folder: Path) -> Path:
    file = folder / "log4j2.properties"
    file.write_text(
        "rootLogger.level=WARN\nrootLogger.appenderRef.out.ref=STDERR\n"
        "appender.out.type=Console\nappender.out.name=STDERR\nappender.out.target=SYSTEM_ERR\n"
        "appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=%p %c %m%n\n"
        "logger.server.name=kafka.server.KafkaRaftServer\nlogger.server.level=INFO\n"
    )
    return file


def random_cluster_id() -> str:
    """A new one; it never begins with "-"."""
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:])[:22].decode()


def java_command(main_class: str, *arguments: str, options: tuple[str, ...] = ("-Xmx512m",)) -> list[str]:
    """The command line that runs a class of Kafka's jars."""
    home = kafka_libs()
    config = _log4j(home) if not (home / "log4j2.properties").exists() else home / "log4j2.properties"
    tuned = ("-XX:+UseSerialGC", *QUICK, *class_archive.using(), f"-Dlog4j2.configurationFile={config}")
    return [need("java", JDK), *options, *tuned, "-cp", f"{home}/*", main_class, *arguments]


def java(main_class: str, *arguments: str, stdin: str | None = None, seconds: float = 120.0) -> str:
    """Run a class of Kafka's jars to its end; its standard output.

    Raises:
        AssertionError: it ended with another code than 0; holds what it printed.
    """
    done = subprocess.run(
        java_command(main_class, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=patient(seconds),
        check=False,
    )
    assert done.returncode == 0, f"{main_class} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


class ApacheKafka(Program):
    """One KRaft node of Apache Kafka with its own temporary data directory.

    Args:
        properties: broker settings over the defaults of Kafka.
        heap: the JVM's `-Xmx`; Kafka's own start script says 1 GB.
        features: levels that the cluster is made with, where they are not those of the release.
        cluster_id: of the cluster that it is a node of; a random one for a node alone.
        options: of the JVM; left out, those that make it start soon. A benchmark gives none, as Kafka's own start script.

    Attributes:
        properties: may be changed before the start.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        heap: str = "1g",
        features: Mapping[str, int] | None = None,
        options: Sequence[str] | None = None,
        cluster_id: str | None = None,
    ) -> None:
        super().__init__("apache-kafka")
        self.properties = dict(properties or {})
        self._cluster_id = cluster_id or random_cluster_id()
        self._heap = heap
        self._features = dict(features or {})
        self._options = (*QUICK, *class_archive.using()) if options is None else tuple(options)
        self._output = self._folder / "server.log"
        self._ports = held_ports(2)
        self.bootstrap_servers = ""
        self.bootstrap_controllers = f"127.0.0.1:{self._ports[1]}"
        self.start_seconds = 0.0

    @property
    def address(self) -> str:
        """Where clients connect, also while it does not run."""
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def pid(self) -> int:
        """The process of the JVM."""
        assert self._process is not None
        return self._process.pid

    @property
    def data_dir(self) -> Path:
        """Where its logs are."""
        return self._folder / "data"

    def start(self) -> None:
        """Format the data directory, start the broker and wait until it serves."""
        port, controller = self._ports
        self.bootstrap_servers = self.address
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.properties,
        }
        config = self._folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if not (self.data_dir / "meta.properties").exists():
            levels = [text for name, level in self._features.items() for text in ("--feature", f"{name}={level}")]
            java("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(config), *levels)
        begun = time.monotonic()
        command = [need("java", JDK), f"-Xmx{self._heap}", f"-Xms{self._heap}", "-XX:+UseG1GC", *self._options]
        command += [
            f"-Dlog4j2.configurationFile={_log4j(self._folder)}",
            "-cp",
            f"{kafka_libs()}/*",
            "kafka.Kafka",
            str(config),
        ]
        with self._output.open("wb") as output:
            self._process = spawn(command, stdout=output, stderr=output)
        self._wait(port, begun)
        self.start_seconds = time.monotonic() - begun

    def _wait(self, port: int, begun: float) -> None:
        assert self._process is not None
        while time.monotonic() - begun < START_SECONDS:
            if self._process.poll() is not None:
                break
            # The port opens before the broker serves; its own word that it has started comes after.
            if b"Kafka Server started" in self._output.read_bytes():
                socket.create_connection(("127.0.0.1", port), timeout=patient(5)).close()
                return
            time.sleep(0.05)
        raise AssertionError(f"Apache Kafka did not start:\n{self._output.read_text()[-3000:]}")

    def kill(self) -> None:
        """SIGKILL; `start` goes on with the same data at the same address."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def shut_down(self) -> None:
        """End the broker in order; `start` goes on with the same data at the same address."""
        super().stop()

    def stop(self) -> None:
        """End the broker and remove its data."""
        self.shut_down()
        shutil.rmtree(self._folder, ignore_errors=True)
