"""A Spark session that can read Busway's topics.

What lives here: the builder settings that every job needs. What does not: reading and decoding (`topics`, `avro`).
"""

import os
import shutil
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from busway_spark.jars import jar_paths


class JavaMissing(RuntimeError):
    """Spark needs a Java runtime; the text holds the command that installs it."""


def session(app_name: str, *, master: str = "local[2]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session with Spark's Kafka source and Avro functions on its class path.

    Args:
        app_name: shown in Spark's user interface.
        master: Spark master URL; local with two threads unless given.
        settings: further Spark settings; they win over the ones set here.

    Raises:
        JavaMissing: there is no Java.
        JarsMissing: the artifacts are absent and Maven could not fetch them.
    """
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise JavaMissing(
            "Spark needs Java 17: apt-get install -y openjdk-17-jdk-headless (or your system's package of that name)"
        )
    # Workers must run this very interpreter, or they take whichever python3 the PATH names and miss pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).master(master)
    defaults = {
        "spark.jars": ",".join(str(path) for path in jar_paths()),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for name, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert isinstance(spark, SparkSession)
    return spark
