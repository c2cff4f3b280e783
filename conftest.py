"""What the suites in `tests` and `examples` share: one Spark session, because a process has room for one, with what all of them need; and
how long a test and the test bus wait, times the patience that is asked for."""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests.support import patience
from tools.jars import need

from busway.testing import bus, crash, frozen_time, threaded

SPARK = Path(__file__).parent / "tests" / "spark"

settings.register_profile(
    "fresh",
    settings.get_profile("default"),  # not what Hypothesis loads by itself where CI is set
    deadline=None,  # how long an example takes tells of the machine; so does the health check
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("gate", settings.get_profile("fresh"), derandomize=True, database=None)


def load_hypothesis_profile() -> None:
    """Load the Hypothesis profile that BUSWAY_HYPOTHESIS names: `gate`, the default, draws the same examples each time, `fresh` new ones."""
    profile = os.environ.get("BUSWAY_HYPOTHESIS") or "gate"
    if profile not in {"gate", "fresh"}:
        raise pytest.UsageError(f"BUSWAY_HYPOTHESIS={profile}: there is no such profile; use gate or fresh")
    settings.load_profile(profile)
    if profile == "gate":
        # Hypothesis also draws constants of the modules imported so far. Which those are depends on the tests that ran before.
        pytest.MonkeyPatch().setattr(providers, "is_local_module_file", lambda path: False)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Who leaves Spark's tests out need not have PySpark, which they import; who asks for them learns it from that import."""
    return True if collection_path == SPARK and "not spark" in config.option.markexpr else None


def pytest_configure() -> None:
    """Load the Hypothesis profile, let SIGINT interrupt this process, and scale what the test bus waits for, which users set for each call.

    A shell that runs this in the background, without job control, has it ignore SIGINT, and every program that it starts.

    Raises:
        UsageError: the patience is no number of at least 1, or there is no such profile.
    """
    load_hypothesis_profile()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        patience.factor()
    except ValueError as problem:
        raise pytest.UsageError(str(problem)) from None
    for module, name in ((bus, "SETTLE_S"), (crash, "REACH_S"), (frozen_time, "REACT_S"), (threaded, "START_S")):
        setattr(module, name, patience.patient(getattr(module, name)))
    for waits in (bus.TestBus.settle, bus.TestBus.resting):
        waits.__defaults__ = (bus.SETTLE_S,)
    if patience.factor() > 1:  # on a busy machine three nodes would elect without end
        from busway_bus.testing.local_nodes import QUICK_MS  # takes long to load

        QUICK_MS.update({name: patience.patient_ms(number) for name, number in QUICK_MS.items()})


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> Any:
    """Scale the time-out of each test, whether a mark, the configuration or the command line gives it."""
    return pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=patience.patient(settings.timeout)))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes `-n auto` means: two for each processor and one more, since most tests wait for processes and disks."""
    return 2 * (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test wrote to the log may hold half characters, on purpose; between the processes of a run only whole ones go."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Spark in this process, with its Kafka source and Delta; few partitions, and quiet."""
    need("java", "openjdk-17-jdk-headless")
    try:
        from busway_spark.session import session
    except ImportError as missing:
        pytest.fail(f"{missing}: pip install -e '.[dev,spark]', or run `make spark`")
    # For all JVMs of a run: each lives for seconds, so quick compilation beats good code. Collectors are each program's own choice.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    quiet = {"spark.sql.shuffle.partitions": "1", "spark.log.level": "FATAL"}
    running = session("tests", delta=True, settings=quiet)
    yield running
    running.stop()
