"""What the suites in `tests` and `examples` share: one Spark session, because a process has room for one, with what all of them need."""

from collections.abc import Iterator
from typing import Any

import pytest
from tools.jars import need


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Spark in this process, with its Kafka source and Delta; few partitions, and quiet."""
    need("java", "openjdk-17-jdk-headless")
    try:
        from busway_spark.session import session
    except ImportError as missing:
        pytest.fail(f"{missing}: pip install -e '.[dev,spark]', or run `make spark`")
    quiet = {"spark.sql.shuffle.partitions": "1", "spark.log.level": "FATAL"}
    running = session("tests", delta=True, settings=quiet)
    yield running
    running.stop()
