"""Whether Spark jobs can run on this machine.

Here: the question that demos ask.
Not here: jobs. PySpark is imported when it is asked for; the rest of the kit runs without.
"""

import importlib.util
import os
import shutil


def missing() -> str | None:
    """Why Spark jobs cannot run here, with the command that changes it; None when they can. The first time fetches jars with Maven."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("busway_spark") is None:
        return "PySpark is not installed: pip install 'busway[spark]'"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "there is no Java: apt-get install -y openjdk-17-jdk-headless"
    from busway import BuswayError
    from busway_spark.jars import jar_paths

    try:
        jar_paths()
    except BuswayError as problem:
        return str(problem)
    return None
