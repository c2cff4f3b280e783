"""Fetch the jars that the suites with Java need: `python tools/jars.py kafka|registry|debezium|streams|spark`.

Here: the coordinates of Apache Kafka 4.3.1 and of Confluent's registry client 7.5.3 (which Maven Central has inside a
jar of Flink), of Debezium with Kafka Connect, of Kafka Streams with its tests, and one call to Maven for each set. A
set is fetched once; the folder is named by a digest of its coordinates. Spark's own set is `busway_spark.jars`, which
its users need too.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KAFKA = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    "org.apache.kafka:kafka-tools:4.3.1",
    "org.apache.kafka:kafka-shell:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
REGISTRY = (
    "org.apache.flink:flink-sql-avro-confluent-registry:2.3.0",
    "org.slf4j:slf4j-api:1.7.36",
)
DEBEZIUM = (
    "org.apache.kafka:connect-runtime:4.3.1",
    "org.apache.kafka:connect-json:4.3.1",
    "org.apache.kafka:connect-file:4.3.1",
    "io.debezium:debezium-connector-postgres:3.7.0.Final",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
STREAMS = (
    "org.apache.kafka:kafka-streams:4.3.1",
    "org.apache.kafka:kafka-streams:4.3.1:test",
    "org.apache.kafka:kafka-clients:4.3.1:test",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
"""The fourth part is the classifier."""


class ToolMissing(RuntimeError):
    """A program is not installed; the text holds the command that installs it."""


def need(program: str, packages: str) -> str:
    """The path of `program`.

    Raises:
        ToolMissing: it is not installed; names the Debian packages that bring it.
    """
    path = shutil.which(program)
    if path is None:
        raise ToolMissing(f"{program} is not installed: apt-get install -y {packages}")
    return path


def kafka_libs() -> Path:
    """The folder with Apache Kafka 4.3.1, its tools and all they need; fetched on first use."""
    return _fetched("kafka", KAFKA)


def registry_libs() -> Path:
    """The folder with Confluent's registry client and its Avro; fetched on first use."""
    return _fetched("registry", REGISTRY)


def debezium_libs() -> Path:
    """The folder with Kafka Connect 4.3.1 and Debezium's PostgreSQL connector; fetched on first use."""
    return _fetched("debezium", DEBEZIUM)


def streams_libs() -> Path:
    """The folder with Kafka Streams 4.3.1 and its own tests; fetched on first use."""
    return _fetched("streams", STREAMS)


def _fetched(name: str, coordinates: tuple[str, ...]) -> Path:
    digest = hashlib.sha256(repr(coordinates).encode()).hexdigest()[:12]
    folder = ROOT / ".cache" / f"{name}-{digest}"
    if not (folder / ".complete").exists():
        _copy(coordinates, folder)
        (folder / ".complete").touch()
    return folder


def _copy(coordinates: tuple[str, ...], folder: Path) -> None:
    need("java", "openjdk-17-jdk-headless")
    maven = need("mvn", "maven")
    dependencies = ""
    for coordinate in coordinates:
        group, artifact, version, *classifier = coordinate.split(":")
        kind = f"<classifier>{classifier[0]}</classifier>" if classifier else ""
        named = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{kind}"
        dependencies += f"<dependency>{named}</dependency>"
    with tempfile.TemporaryDirectory() as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>busway</groupId>'
            "<artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command line
    if done.returncode != 0:
        raise RuntimeError(f"Maven failed: {(done.stdout + done.stderr)[-2000:]}")


def main(arguments: list[str]) -> int:
    """Fetch the sets named on the command line."""
    for name in arguments or ["kafka"]:
        if name == "kafka":
            where = kafka_libs()
        elif name == "registry":
            where = registry_libs()
        elif name == "debezium":
            where = debezium_libs()
        elif name == "streams":
            where = streams_libs()
        elif name == "spark":
            from busway_spark.jars import jar_folder, jar_paths

            jar_paths(delta=True)
            where = jar_folder()
        else:
            sys.stderr.write(f"no set of jars is called {name}: kafka, registry, debezium, streams or spark\n")
            return 2
        sys.stdout.write(f"{name}: {where}\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ToolMissing as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(1)
