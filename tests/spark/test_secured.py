"""Spark on a secured Apache Kafka 4.3.1: both sources, streams, the sink and a job."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support import certificates
from tests.support.certificates import Certificates
from tests.support.patience import patient
from tests.support.secured_kafka import PASSWORD, SecuredKafka, as_properties, secured_kafka, security
from tests.support.token_endpoint import Endpoint, serving

from busway import AuthenticationFailed, ConnectionFailed, SecurityOptions
from busway.security.properties import options_of
from busway_spark import read_topic, stream_topic, to_store, write_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
WAYS: Final = {
    "PLAIN": ("SASL_TLS", "SASL_SSL", "PLAIN"),
    "SCRAM-SHA-256": ("SASL_TLS", "SASL_SSL", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": ("SASL_TLS", "SASL_SSL", "SCRAM-SHA-512"),
    "mutual TLS": ("MUTUAL", "SSL", None),
    "OAUTHBEARER": ("SIGNED", "SASL_SSL", "OAUTHBEARER"),
}
"""Listener, protocol and mechanism."""
SECRETS: Final = (PASSWORD, "wr0ng", "cl1ent-s3cret", "eyJ")
"""The last begins every signed token."""
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


@dataclass
class Secured:
    """The registry of `bus`, that broker, and an endpoint that gives out signed tokens."""

    bus: Any
    kafka: SecuredKafka
    authority: Certificates
    endpoint: Endpoint

    def properties(self, way: str, **changed: Any) -> dict[str, str]:
        """As Java's clients take them; `changed` are options of Busway's client."""
        _, protocol, mechanism = WAYS[way]
        options = security(mechanism, protocol, self.authority)
        if mechanism is None:
            options["ssl_certfile"] = self.authority.issued("spark-client")
        return as_properties(options | changed, self.endpoint.url)

    def file(self, folder: Path, way: str, **changed: Any) -> str:
        """Write them; the path."""
        file = folder / f"{way}.properties"
        file.write_text("".join(f"{name}={text}\n" for name, text in self.properties(way, **changed).items()))
        return str(file)

    def given(self, way: str, **changed: Any) -> dict[str, Any]:
        """As `read_topic` and its like take servers and options."""
        options = {f"kafka.{name}": text for name, text in self.properties(way, **changed).items()}
        return {**self.servers(way), "kafka_options": options}

    def servers(self, way: str) -> dict[str, str]:
        """The addresses of a listener and the registry."""
        return {"bootstrap_servers": self.kafka.address(WAYS[way][0]), "schema_registry": self.bus.registry}


@pytest.fixture
def secured(bus: Any, kafka: SecuredKafka, authority: Certificates) -> Iterator[Secured]:
    """With thirty more rides in a topic."""
    endpoint = Endpoint()
    endpoint.grants(kafka.tokens.token(), 600)
    context = serving(endpoint)
    bus.run(context.__aenter__())
    plain = dataclasses.replace(bus, bootstrap_servers=kafka.address("PLAIN_TEXT"))
    plain.events("rides", Ride, [{"driver": f"d{number % 3}", "fare": 1.0} for number in range(30)])
    yield Secured(plain, kafka, authority, endpoint)
    bus.run(context.__aexit__(None, None, None))


@pytest.mark.parametrize("source", ["busway", "kafka"])
@pytest.mark.parametrize("way", WAYS)
def test_reading_and_writing(secured: Secured, spark: Any, tmp_path: Path, source: Any, way: str) -> None:
    """A batch, a stream and the sink; no secret in a plan."""
    given = secured.given(way)
    rides = read_topic(spark, "rides", source=source, **given)
    assert rides.where("event.driver = 'd1'").count() >= 10
    stream = stream_topic(spark, "rides", source=source, **given)
    out, folder = tmp_path / "out", str(tmp_path / "checkpoint")
    query = to_store(stream.select("event.*"), str(out), checkpoint=folder, trigger={"availableNow": True})
    assert query is not None
    query.awaitTermination(patient(120))
    assert query.exception() is None
    assert spark.read.parquet(str(out)).count() >= 30
    copied = f"copied-{source}-{way.replace(' ', '-')}"
    secured.bus.topic(copied, 1)
    write_topic(rides.select("event.*"), copied, key="driver", **given)
    again = read_topic(spark, copied, source=source, **given)
    assert again.count() >= 30
    plans = "".join(str(frame._jdf.queryExecution()) for frame in (rides, stream, again))
    assert not [secret for secret in SECRETS if secret in plans]
    assert bool(secured.endpoint.requests) == (way == "OAUTHBEARER")


@pytest.mark.parametrize("source", ["busway", "kafka"])
def test_refusals(secured: Secured, spark: Any, source: Any) -> None:
    """Before Spark waits, in one line that names the cause."""

    def refused(way: str, kind: type[Exception], text: str, **changed: Any) -> None:
        with pytest.raises(kind, match=text) as problem:
            read_topic(spark, "rides", source=source, **secured.given(way, **changed))
        assert not [secret for secret in ("\n", *SECRETS) if secret in str(problem.value)]

    refused("PLAIN", AuthenticationFailed, "refused the user 'ann' by PLAIN", sasl_plain_password="wr0ng")
    without = secured.given("mutual TLS")
    del without["kafka_options"]["kafka.ssl.keystore.location"]
    with pytest.raises(ConnectionFailed, match="ssl_certfile and ssl_keyfile"):
        read_topic(spark, "rides", source=source, **without)
    secured.endpoint.grants("eyJhbGciOiAibm9uZSJ9.e30.x")
    refused("OAUTHBEARER", AuthenticationFailed, "refused the token")
    secured.endpoint.status = "401 Unauthorized"
    refused("OAUTHBEARER", AuthenticationFailed, "refused the client with 401; check client id, secret")


def test_names_of_busway(secured: Secured, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's Kafka source takes them, too, as options and from the environment."""
    options = options_of(secured.properties("mutual TLS"))
    assert isinstance(options, SecurityOptions)
    own = {"security_protocol": "SSL", "ssl_cafile": options.ssl_cafile, "ssl_certfile": options.ssl_certfile}
    servers = secured.servers("mutual TLS")
    named = {f"kafka.{name.replace('_', '.')}": text for name, text in own.items()}
    assert read_topic(spark, "rides", source="kafka", kafka_options=named, **servers).count() >= 30
    for name, text in own.items():
        monkeypatch.setenv(f"BUSWAY_{name.upper()}", str(text))
    assert read_topic(spark, "rides", source="kafka", **servers).count() >= 30


@pytest.mark.parametrize(
    ("way", "arguments", "by_environment"),
    [
        ("SCRAM-SHA-512", (), False),
        ("PLAIN", (), True),
        ("mutual TLS", ("--source", "kafka"), False),
        ("OAUTHBEARER", ("--source", "kafka", "--log-level", "info"), True),
        ("OAUTHBEARER", ("--source", "busway", "--log-level", "info"), False),
    ],
)
def test_a_job(secured: Secured, tmp_path: Path, way: str, arguments: tuple[str, ...], by_environment: bool) -> None:
    """`--command-config` is for all of its connections; the environment's file, too."""
    (tmp_path / "copy_rides.py").write_text(JOB)
    file = secured.file(tmp_path, way)
    config = [] if by_environment else ["--command-config", file]
    environment = {"BUSWAY_COMMAND_CONFIG": file} if by_environment else {}
    code, shown = job(secured, tmp_path, way, [*arguments, *config], environment)
    assert code == 0, shown
    assert list((tmp_path / "store" / "rides").glob("*.parquet"))
    assert not [secret for secret in SECRETS if secret in shown]


def test_a_job_that_is_refused(secured: Secured, tmp_path: Path) -> None:
    """One line, before a JVM starts."""
    (tmp_path / "copy_rides.py").write_text(JOB)
    file = secured.file(tmp_path, "PLAIN", sasl_plain_password="wr0ng")
    code, shown = job(secured, tmp_path, "PLAIN", ["--command-config", file], {})
    assert code == 1
    assert "refused the user 'ann' by PLAIN" in shown
    assert not [secret for secret in SECRETS if secret in shown]


def job(secured: Secured, folder: Path, way: str, more: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run the job to its end; its exit code, and its output with the command lines of all processes meanwhile."""
    servers = ["-b", secured.kafka.address(WAYS[way][0]), "-r", secured.bus.registry]
    command = [
        sys.executable,
        "-m",
        "busway.cli",
        "spark",
        "copy_rides",
        *servers,
        "--out",
        str(folder / "store"),
        *more,
    ]
    lines: set[str] = set()
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            while (output := communicated(process)) is None:
                lines |= set(command_lines(process.pid))
        finally:
            process.kill()
    return process.returncode, "\n".join((*output, *lines))


def communicated(process: "subprocess.Popen[str]") -> tuple[str, str] | None:
    """Read its output; None while it runs."""
    try:
        return process.communicate(timeout=0.5)
    except subprocess.TimeoutExpired:
        return None


def command_lines(session: int) -> Iterator[str]:
    """Read those of a session's processes."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.getsid(int(file.parent.name)) == session:
                yield file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # ended meanwhile
            continue
