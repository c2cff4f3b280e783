"""Apache Kafka's own Connect 4.3.1 in a JVM, as the other side of a comparison.

Here: one distributed worker on any brokers.
Not here: fetching the jars (`tools.jars`).
"""

import time
import urllib.error
import urllib.request
from collections.abc import Mapping

from tools.jars import debezium_libs, need

from tests.support.apache_kafka import JDK
from tests.support.patience import patient
from tests.support.programs import Program, held_ports, spawn

START_SECONDS = patient(90.0)


class KafkaConnect(Program):
    """One worker.

    Args:
        bootstrap: the brokers.
        properties: settings over those that a single node needs.
    """

    def __init__(self, bootstrap: str, properties: Mapping[str, str] | None = None) -> None:
        super().__init__("kafka-connect")
        (port,) = held_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "kafka-connect",
            "listeners": self.url,
            "offset.flush.interval.ms": "200",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "plugin.discovery": "hybrid_warn",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        }
        for kind in ("config", "offset", "status"):
            self._settings[f"{kind}.storage.topic"] = f"kafka-connect-{kind}"
            self._settings[f"{kind}.storage.replication.factor"] = "1"
        self._settings.update(properties or {})

    def start(self) -> None:
        """Start it and wait until it serves."""
        log4j = self._folder / "log4j2.properties"
        log4j.write_text(
            "rootLogger.level=WARN\nrootLogger.appenderRef.out.ref=OUT\nappender.out.type=Console\nappender.out.name=OUT\n"
            "appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=%p %c %m%n\n"
        )
        config = self._folder / "worker.properties"
        config.write_text("".join(f"{name}={text}\n" for name, text in self._settings.items()))
        command = [need("java", JDK), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{debezium_libs()}/*"]
        with (self._folder / "log").open("wb") as log:
            self._process = spawn(
                [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(config)], stdout=log, stderr=log
            )
        end = time.monotonic() + START_SECONDS
        while not self._serves():
            said = (self._folder / "log").read_text(errors="replace")[-3000:]
            assert self._process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL; `start` begins again at the same address."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _serves(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=patient(5)) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
