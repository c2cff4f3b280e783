"""A Spark session that can read Busway's topics.

What lives here: the builder settings that every job needs. What does not: reading and decoding (`topics`, `avro`).
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
    """Spark needs a Java runtime; the text holds the command that installs it."""


def session(
    app_name: str,
    *,
    master: str | None = None,
    jars: bool = True,
    delta: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with the format `busway`, and with Spark's Kafka source and Avro functions on its class path.

    Args:
        app_name: shown in Spark's user interface.
        master: Spark master URL; without one what `spark-submit` was given, else local with two threads.
        jars: under `spark-submit` those of its command line count; without them nothing is fetched: topics are read by our own source and decoded in Python, and cannot be written.
        delta: with Delta Lake.
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
    defaults = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        # A Python worker has 15 s to call back, which a machine that starts several JVMs at once may need, and the job is lost.
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # Who is stopped while it writes the offsets of its first batch leaves a temporary file, and Spark 4.2 would never start there again.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        # HotSpot never compiles a longer method, and a decoder of some 25 schema ids or more is one; above it Spark cuts it into pieces.
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
            # Where this process finds modules, its workers find them too: a job's own folder is installed nowhere.
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
