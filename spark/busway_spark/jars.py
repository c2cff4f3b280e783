"""Pinned Maven artifacts that Spark needs to read a topic, and their folder.

Here: coordinates of the basic set and of Delta's, and one call to Maven.
Not here: versions' reasons (docs/decisions/0004-spark-versions.md).

Artifacts are named without dependencies: Spark's parent pom refers to a repository that many networks cannot reach, and
PySpark has the rest. Tested with PySpark 4.2.0 on Java 17.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from busway import BuswayError

Artifacts = tuple[tuple[str, str, str], ...]
ARTIFACTS: Final[Artifacts] = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.spark", "spark-avro_2.13", "4.1.1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


DELTA: Final[Artifacts] = (
    ("io.delta", "delta-spark_4.2_2.13", "4.4.0"),
    ("io.delta", "delta-storage", "4.4.0"),
    ("io.delta", "delta-kernel-api", "4.4.0"),
    ("io.delta", "delta-kernel-defaults", "4.4.0"),
    ("io.delta", "delta-kernel-unitycatalog", "4.4.0"),
    ("io.unitycatalog", "unitycatalog-client", "0.6.0"),
    ("io.unitycatalog", "unitycatalog-hadoop", "0.6.0"),
)
"""Delta Lake's, for `session(delta=True)`; PySpark has their dependencies in Hadoop, Jackson and Parquet."""


class JarsMissing(BuswayError):
    """The artifacts are missing and could not be fetched; the text has the command for it."""


def jar_folder(*, delta: bool = False) -> Path:
    """Return a set's folder: `$BUSWAY_SPARK_JARS`, else one named by the set in the user's cache."""
    given = os.environ.get("BUSWAY_SPARK_JARS")
    if given:
        return Path(given)
    name, artifacts = ("delta", DELTA) if delta else ("spark", ARTIFACTS)
    digest = hashlib.sha256(repr(artifacts).encode()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "busway" / f"{name}-jars-{digest}"


def jar_paths(*, delta: bool = False) -> list[Path]:
    """Return the artifacts' paths, fetching them with Maven on first use; raises `JarsMissing` if that fails."""
    jars = _set(jar_folder(), ARTIFACTS)
    return jars + _set(jar_folder(delta=True), DELTA) if delta else jars


def _set(folder: Path, artifacts: Artifacts) -> list[Path]:
    expected = [folder / f"{artifact}-{version}.jar" for _, artifact, version in artifacts]
    if not all(path.is_file() for path in expected):
        _fetch(folder, artifacts)
    missing = [path.name for path in expected if not path.is_file()]
    if missing:
        raise JarsMissing(f"Maven did not bring {', '.join(missing)} into {folder}")
    return expected


def _fetch(folder: Path, artifacts: Artifacts) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissing(
            "Spark's Kafka and Avro artifacts are fetched with Maven, which is not installed: "
            "apt-get install maven openjdk-17-jdk-headless (or your system's packages of those names)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(_pom(artifacts))
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command line
    if done.returncode != 0:
        raise JarsMissing(f"Maven could not fetch Spark's artifacts: {(done.stdout + done.stderr).strip()[-500:]}")


def _pom(artifacts: Artifacts) -> str:
    every = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{every}</dependency>"
        for group, artifact, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>busway</groupId><artifactId>spark-jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


if __name__ == "__main__":
    # For spark-submit: --jars "$(python -m busway_spark.jars)", with --delta for Delta Lake's.
    sys.stdout.write(",".join(str(path) for path in jar_paths(delta="--delta" in sys.argv[1:])) + "\n")
