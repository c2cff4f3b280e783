"""Classes of Apache Kafka in a file that a JVM maps instead of loading them one by one from jars: `python -m tests.support.class_archive`.

Here: making the archive, and the option that uses it.
Not here: starting the broker that it is made from (`apache_kafka`).

A JVM with it starts in half the time and CPU. Without one, as on a machine where `make interop` has not run, all works the same, slower. It is named by the jars' folder and
the JVM, since it serves no others.
"""

import hashlib
import os
import sys
from pathlib import Path

from tools.jars import kafka_libs, need

JDK = "openjdk-17-jdk-headless"
WRITTEN_SECONDS = 120.0
QUIET = "-Xlog:disable"
"""A JVM that cannot use an archive says so on its standard output, where tools answer."""


def archive() -> Path:
    """Where it is, if it has been made."""
    home, java = kafka_libs(), Path(need("java", JDK)).resolve()
    digest = hashlib.sha256(f"{home} {java} {java.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return home / f"classes-{digest}.jsa"


def using() -> tuple[str, ...]:
    """Options of a JVM that has Kafka's jars alone."""
    file = archive()
    return (f"-XX:SharedArchiveFile={file}", QUIET) if file.exists() else ()


def make() -> Path:
    """The archive; made where there is none, of what a broker has loaded when it ends in order."""
    file = archive()
    if not file.exists():
        from tests.support.apache_kafka import ApacheKafka

        new = file.with_suffix(f".{os.getpid()}")
        broker = ApacheKafka(heap="512m", options=(f"-XX:ArchiveClassesAtExit={new}", QUIET))
        broker.ends_within_s = WRITTEN_SECONDS
        with broker:
            pass
        assert new.exists(), "the JVM has written no archive of its classes"
        new.replace(file)  # whole as soon as it is there, also while another process makes one at the same time
    return file


if __name__ == "__main__":
    sys.stdout.write(f"classes: {make()}\n")
