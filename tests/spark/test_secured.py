"""Spark on a secured Apache Kafka 4.3.1: both sources, a stream, the sink and a job."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support import certificates
from tests.support.certificates import Certificates
from tests.support.patience import patient
from tests.support.secured_kafka import MECHANISMS, PASSWORD, SecuredKafka, secured_kafka

from busway import AuthenticationFailed
from busway_spark import read_topic, stream_topic, to_store, write_topic
from busway_spark.security import options_of_file

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
MODULES = {"PLAIN": "plain.PlainLoginModule", **dict.fromkeys(MECHANISMS[1:3], "scram.ScramLoginModule")}
JOB = '''
"""Copies rides."""
from busway_spark.job import Job, run_job

def work(job: Job) -> None:
    job.store(job.read("rides").select("event.*"), "rides")

def main(argv=None) -> int:
    return run_job("copy", __doc__, argv, work, topics=lambda given: ["rides"])

if __name__ == "__main__":
    raise SystemExit(main())
'''


@dataclass
class Ride:
    """An event."""

    driver: str
    fare: float


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA for this file's broker and clients."""
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka(authority: Certificates) -> Iterator[SecuredKafka]:
    """One broker for the file."""
    with secured_kafka(authority) as running:
        yield running


def properties(folder: Path, authority: Certificates, mechanism: str, password: str = PASSWORD) -> str:
    """Write a properties file that Java's client takes, too; its path."""
    file = folder / f"{mechanism}-{password}.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.ca}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{MODULES[mechanism]} required \\\n"
        f'  username="ann" password="{password}";\n'
    )
    return str(file)


@pytest.fixture
def secured(
    bus: Any, kafka: SecuredKafka, authority: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The registry of `bus` with that broker, thirty more rides in a topic of it, and an empty topic for this test."""
    both = dataclasses.replace(bus, bootstrap_servers=kafka.address("SASL_TLS"))
    with monkeypatch.context() as environment:
        environment.setenv("BUSWAY_COMMAND_CONFIG", properties(tmp_path, authority, "PLAIN"))
        both.events("rides", Ride, [{"driver": f"d{number % 3}", "fare": 1.0} for number in range(30)])
        both.topic(f"copied-{tmp_path.name}", 1)
    return both


@pytest.mark.parametrize("source", ["busway", "kafka"])
def test_reading_and_writing(secured: Any, spark: Any, authority: Certificates, tmp_path: Path, source: Any) -> None:
    """With each mechanism of passwords; a refusal comes before Spark waits, in one line."""
    for mechanism in MODULES:
        given = {"source": source, "kafka_options": options_of_file(properties(tmp_path, authority, mechanism))}
        rides = read_topic(spark, "rides", **secured.servers, **given)
        assert rides.where("event.driver = 'd1'").count() >= 10
    wrong = options_of_file(properties(tmp_path, authority, "PLAIN", "wr0ng"))
    with pytest.raises(AuthenticationFailed, match="refused the user 'ann' by PLAIN") as refused:
        read_topic(spark, "rides", source=source, kafka_options=wrong, **secured.servers)
    assert "wr0ng" not in str(refused.value)
    folder = str(tmp_path / "checkpoint")
    stream = stream_topic(spark, "rides", **secured.servers, **given)
    out = tmp_path / "out"
    query = to_store(stream.select("event.*"), str(out), checkpoint=folder, trigger={"availableNow": True})
    assert query is not None
    query.awaitTermination(patient(120))
    assert query.exception() is None
    assert spark.read.parquet(str(out)).count() >= 30
    copied = f"copied-{tmp_path.name}"
    write_topic(rides.select("event.*"), copied, key="driver", kafka_options=given["kafka_options"], **secured.servers)
    assert read_topic(spark, copied, **secured.servers, **given).count() >= 30


def test_a_job(secured: Any, authority: Certificates, tmp_path: Path) -> None:
    """`--command-config` is for all of its connections; the environment's file, too."""
    (tmp_path / "copy_rides.py").write_text(JOB)
    file = properties(tmp_path, authority, "SCRAM-SHA-512")
    command = [sys.executable, "-m", "busway.cli", "spark", "copy_rides", *secured.arguments]
    for number, (more, environment) in enumerate(
        (
            (["--command-config", file], {}),
            ([], {"BUSWAY_COMMAND_CONFIG": file}),
            (["--source", "kafka"], {"BUSWAY_COMMAND_CONFIG": file}),
        )
    ):
        done = subprocess.run(
            [*command, "--out", str(tmp_path / f"store{number}"), *more],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=patient(240),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
        assert list((tmp_path / f"store{number}" / "rides").glob("*.parquet"))
    wrong = ["--command-config", properties(tmp_path, authority, "PLAIN", "wr0ng"), "--out", str(tmp_path)]
    done = subprocess.run([*command, *wrong], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "refused the user 'ann' by PLAIN" in done.stderr
    assert "wr0ng" not in done.stdout + done.stderr
