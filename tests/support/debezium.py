"""Debezium 3.7 on Kafka Connect 4.3.1: the other side of the comparison for change data capture.

Here: one standalone Connect worker in a JVM with one connector.
Not here: the broker it writes to, the database it reads.
"""

from collections.abc import Mapping

from tools.jars import debezium_libs, need

from tests.support.apache_kafka import JDK
from tests.support.programs import Program, held_ports, spawn

_LOG4J = (
    "rootLogger.level=WARN\nrootLogger.appenderRef.out.ref=STDERR\n"
    "appender.out.type=Console\nappender.out.name=STDERR\nappender.out.target=SYSTEM_ERR\n"
    "appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=%p %c %m%n\n"
)


class Debezium(Program):
    """A standalone worker of Kafka Connect that runs one connector with `JsonConverter`, schemas enabled.

    Args:
        bootstrap_servers: of the cluster it writes to.
        connector: the connector's settings, `connector.class` among them.
        worker: further settings of the worker.
        options: of the JVM; by default those that start soonest.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        connector: Mapping[str, str],
        worker: Mapping[str, str] | None = None,
        options: tuple[str, ...] = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    ) -> None:
        super().__init__("debezium")
        self._options = options
        self._bootstrap_servers = bootstrap_servers
        self._connector = {"name": "debezium", "tasks.max": "1", **connector}
        self._worker = dict(worker or {})

    def start(self) -> None:
        """Start the JVM; its records in the topics tell when it works."""
        (port,) = held_ports(1)
        worker = {
            "bootstrap.servers": self._bootstrap_servers,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.file.filename": str(self._folder / "offsets"),
            "offset.flush.interval.ms": "500",
            "listeners": f"http://127.0.0.1:{port}",
            **self._worker,
        }
        for name, settings in (("worker", worker), ("connector", self._connector)):
            text = "".join(f"{key}={value}\n" for key, value in settings.items())
            (self._folder / f"{name}.properties").write_text(text)
        (self._folder / "log4j2.properties").write_text(_LOG4J)
        command = [need("java", JDK), *self._options]
        command += [f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties", "-cp", f"{debezium_libs()}/*"]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone"]
        command += [str(self._folder / "worker.properties"), str(self._folder / "connector.properties")]
        with (self._folder / "log").open("ab") as log:
            self._process = spawn(command, stdout=log, stderr=log)

    def log(self) -> str:
        """The end of what it printed."""
        return (self._folder / "log").read_text(errors="replace")[-6000:]

    def check(self) -> None:
        """Fail with its log if it has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self.log()
