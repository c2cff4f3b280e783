"""The parts around the service: the load, the figures of the page, the demo as a process."""

import asyncio
import datetime as dt
import itertools
import os
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from mybank import capture, generate
from mybank.events import Kind, Transaction
from mybank.pulse import AGES_MOST, TICKS_KEPT, Pulse
from tests.support.programs import spawn_async

CASES = Path(__file__).resolve().parents[2]
NOW = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)


def test_the_same_seed_is_the_same_load() -> None:
    """Accounts and rows repeat; the time of each account only goes on."""
    accounts = generate.accounts(0, 7)
    assert accounts == generate.accounts(0, 7) != generate.accounts(0, 8)
    sample = list(itertools.islice(generate.rows(accounts, 0, 7), 500))
    assert sample == list(itertools.islice(generate.rows(accounts, 0, 7), 500))
    times = defaultdict(list)
    for row in sample:
        times[row.account_id].append(row.booked_at)
    assert all(account_times == sorted(set(account_times)) for account_times in times.values())
    assert {row.amount > 0 for row in sample} == {True, False}


def test_the_figures_of_a_second() -> None:
    """Rates from one tick to the next, percentiles of what came in between, None without any; the past has an end."""
    pulse = Pulse()
    transaction = Transaction(
        id=1, account_id="a", kind=Kind.CARD, amount=Decimal("1.00"), currency="EUR", booked_at=NOW,
        committed_at=dt.datetime.now(dt.UTC) - dt.timedelta(seconds=5),
    )  # fmt: skip
    for _ in range(10):
        pulse.judged(transaction, [])
    first, second = pulse.tick(NOW, 2.0), pulse.tick(NOW, 1.0)
    assert (first.transactions, first.alerts) == (5.0, 0.0)
    assert first.p50_ms is not None
    assert first.p50_ms >= 5000
    assert (second.transactions, second.p50_ms, second.p99_ms) == (0.0, None, None)
    for _ in range(AGES_MOST + 1):
        pulse.judged(transaction, [])
    for _ in range(TICKS_KEPT + 1):
        pulse.tick(NOW, 1.0)
    assert len(pulse.ticks) == TICKS_KEPT


def test_the_connector_s_settings_are_for_any_server() -> None:
    """The address is put in, the rest is the file's; further settings replace those of the file."""
    settings = capture.settings("db", 6000, snapshot_mode="no_data")
    assert (settings["database.hostname"], settings["database.port"], settings["snapshot.mode"]) == (
        "db",
        "6000",
        "no_data",
    )
    assert settings["message.key.columns"] == "public.transactions:account_id"


def test_installing_it_without_a_worker_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names the address, and an exit code."""
    monkeypatch.setattr(sys, "argv", ["capture", "http://127.0.0.1:1"])
    assert capture.main() == 1
    error_text = capsys.readouterr().err
    assert error_text.startswith("http://127.0.0.1:1 cannot be reached: ")
    assert error_text.count("\n") == 1


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that PostgreSQL's own user may enter, as those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.postgres
async def test_however_the_demo_is_ended_nothing_stays(open_folder: Path) -> None:
    """All parts are processes of their own, PostgreSQL's children too; they end with the demo, and so does its folder."""
    demo = await spawn_async(
        sys.executable, "-m", "mybank.demo", "--ci", cwd=CASES, env={**os.environ, "TMPDIR": str(open_folder)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert demo.stdout is not None
    first = await demo.stdout.readline()
    assert first.startswith(b"bus"), first + (await demo.communicate())[1]
    demo.send_signal(signal.SIGTERM)
    _, errors = await demo.communicate()
    assert demo.returncode == 143, errors.decode()
    assert list(open_folder.glob("mybank-*")) == []
    left = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and str(open_folder) in _command(entry)]
    assert left == []


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""  # it has ended meanwhile
