"""A Spark session that can read Busway's topics.

Here: settings that every job needs.
Not here: reading (`topics`), decoding (`avro`).
"""

import os
import shutil
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from busway import BuswayError
from busway_spark.jars import jar_paths
from busway_spark.source import register


class JavaMissing(BuswayError):
    """Spark needs a Java runtime; the text has the install command."""


def session(
    app_name: str,
    *,
    master: str | None = None,
    jars: bool = True,
    delta: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Make a session with the format `busway`, Kafka source and Avro.

    Args:
        app_name: for Spark's user interface.
        master: by default `spark-submit`'s, else local with two threads.
        jars: under `spark-submit` its command line's count. Without jars nothing is fetched: topics are read by
            Busway's source and decoded in Python, and cannot be written.
        delta: with Delta Lake.
        settings: further Spark settings, which take precedence.

    Raises:
        JavaMissing: no Java.
        JarsMissing: the artifacts are missing and Maven could not fetch them.
    """
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise JavaMissing(
            "Spark needs Java 17: apt-get install -y openjdk-17-jdk-headless (or your system's package of that name)"
        )
    # Workers must use this interpreter; any python3 on the PATH may lack pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    defaults = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        # By default a Python worker must call back within 15 s, too short when a machine starts several JVMs at once.
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # A query stopped while writing its first batch's offsets leaves a temporary file, and Spark 4.2 could not restart from it.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        # HotSpot never compiles longer methods, such as a decoder of 25 schema ids or more; above this Spark splits them.
        "spark.sql.codegen.hugeMethodLimit": "8000",
    }
    builder = SparkSession.builder.appName(app_name)
    submitted = "SPARK_ENV_LOADED" in os.environ
    if master is not None or not submitted:
        builder = builder.master(master or "local[2]")
    if (master or "local").startswith("local") and not submitted:
        defaults |= {
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.databricks.delta.snapshotPartitions": "2",  # of a table's log; Delta's 50 are for a cluster
            # Workers need this process's module path: a job's folder is not installed.
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(os.path.abspath(place) for place in sys.path),
        }
    if (jars or delta) and not submitted:
        defaults["spark.jars"] = ",".join(str(path) for path in jar_paths(delta=delta))
    if delta:
        defaults |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    for name, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert isinstance(spark, SparkSession)
    register(spark)
    return spark
