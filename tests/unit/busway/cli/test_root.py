"""The command itself: its version, and help; and what single commands say."""

import asyncio
import gc
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import busway
from busway.cli import main, records
from busway.cli.output import CommandFailed, confirm
from busway.cli.processes import Command
from busway.cli.running import _handled, find_app, make_static
from busway.cli.servers import make_home


def called(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `busway` in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["busway", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("arguments", [("--version",), ("version",), ("--version", "topics")])
def test_the_version(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Print it and end with 0, whatever comes behind."""
    assert called(*arguments, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out == f"{busway.__version__}\n"


def test_no_command_prints_the_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`busway` alone lists the commands and ends with 2, as wrong usage does."""
    assert called(monkeypatch=monkeypatch) == 2
    assert "consume" in capsys.readouterr().out


def test_the_help_of_spark_lists_the_jobs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its first line, and what lists its options; PySpark need not be installed."""
    assert called("spark", "--help", monkeypatch=monkeypatch) == 0
    help_text = capsys.readouterr().out
    assert "  offload  Any topic into an analytics store" in help_text
    assert "`busway spark offload --help`" in help_text


@pytest.mark.parametrize("arguments", [("simulate",), ("topics", "create"), ("connect",), ()])
def test_help_shows_no_type_of_flags(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They take no value; what takes one has its type."""
    assert called(*arguments, "--help", monkeypatch=monkeypatch) == 0
    help_text = capsys.readouterr().out
    assert "--help" in help_text
    assert "bool" not in help_text
    assert ("<int>" in help_text) is bool(arguments)
    assert ("8083 by default" in " ".join(help_text.replace("│", " ").split())) is (arguments == ("connect",))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run", "shop:app", "--wait", "-1"), "--wait -1: give a number of seconds, 0 or more"),
        (("run", "shop:app", "--wait", "inf"), "--wait inf: give a number of seconds, 0 or more"),
        (
            ("consume", "t", "--from-beginning", "--since", "2026-01-01"),
            "--since and --from-beginning name two start positions",
        ),
    ],
)
def test_options_that_say_nothing_are_refused(
    arguments: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before anything is asked of a broker."""
    assert called(*arguments, monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().err.startswith(f"busway: {text}")


def test_workers_wait_as_their_supervisor_was_told() -> None:
    """`--wait` is handed on."""
    command = Command(
        target="shop:app", http=None, insecure=False, bootstrap=None, registry_url=None, log_level="info", wait_s=60
    )
    assert command.arguments == ["run", "shop:app", "--log-level", "info", "--wait", "60"]


def test_workers_take_the_registry_from_the_environment() -> None:
    """Its address may have a password, which arguments would show to all users of the machine."""
    address = "http://ann:s3cret@registry:8081"
    command = Command(
        target="shop:app", http=None, insecure=False, bootstrap=None, registry_url=address, log_level="info"
    )
    assert address not in command.arguments
    assert command.environment == {"BUSWAY_SCHEMA_REGISTRY": address}


def test_workers_belong_to_the_instance_of_their_supervisor() -> None:
    """`--instance` is handed on."""
    command = Command(
        target="shop:app",
        http=None,
        insecure=False,
        bootstrap=None,
        registry_url=None,
        log_level="info",
        instance="host-a",
    )
    assert command.arguments == ["run", "shop:app", "--log-level", "info", "--instance", "host-a"]


def test_an_app_that_names_its_own_instance_is_not_given_another() -> None:
    """Every worker would be that one member."""
    app = busway.App("emails")
    make_static(app, "host-a-0")
    assert app.consumer_options["group_instance_id"] == "host-a-0"
    with pytest.raises(
        CommandFailed, match=r"app emails has consumer=.*leave it out for --instance, or leave --instance out"
    ):
        make_static(app, "host-a-1")


def test_what_an_app_handles_is_told_with_its_queues() -> None:
    """An app of queues alone said that it handles nothing."""
    app = busway.App("emails")
    assert _handled(app) == "has no handlers; it runs until it is stopped"
    jobs = app.topic("jobs", value=str, format="json")

    @app.queue(jobs, group="senders")
    async def send(job: str) -> None:
        pass

    assert _handled(app) == "works off jobs as senders"

    @app.subscribe(app.topic("bounces", value=str, format="json"))
    async def bounced(value: str) -> None:
        pass

    assert _handled(app) == "handles bounces and works off jobs as senders"


def test_a_module_without_the_app_is_named_with_its_file() -> None:
    """`queue:app` finds Python's own module, which its name alone does not tell."""
    with pytest.raises(CommandFailed, match=r"queue \(.*queue\.py\) has no App called app; it has none"):
        find_app("queue:app")


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_without_a_yes_nothing_is_deleted(
    answer: str, stdin: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The question is on standard error, as a program may read the answer of the command; no answer is a no."""
    stdin(answer)
    with pytest.raises(CommandFailed, match="--yes answers this question"):
        confirm("Delete g?", yes=False)
    assert tuple(capsys.readouterr()) == ("", "Delete g? [y/N]: ")
    stdin("Y\n")
    confirm("Delete g?", yes=False)
    confirm("Delete g?", yes=True)


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets what is typed."""
    import io

    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_data_folder_is_ignored_by_git(tmp_path: Path) -> None:
    """One that is there is left as it is, and a file in its place is reported with a remedy."""
    make_home(tmp_path / "new")
    assert (tmp_path / "new/.gitignore").read_text() == "*\n"
    (tmp_path / "old").mkdir()
    make_home(tmp_path / "old")
    assert list((tmp_path / "old").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(CommandFailed, match=r"data folder .*/file: File exists; --data FOLDER takes another one"):
        make_home(tmp_path / "file")


def test_what_is_read_ahead_of_a_producer_that_has_failed_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a coroutine that is never awaited, and with no more lines in memory than a few chunks."""
    chunks = iter([b"line\n"] * 50)
    monkeypatch.setattr(os, "read", lambda file, size: next(chunks, b""))

    async def work() -> list[bytes]:
        lines = records._standard_input()
        line = await anext(lines)
        await lines.aclose()  # type: ignore[attr-defined]
        return line

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert asyncio.run(work()) == [b"line"]
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
    assert len(list(chunks)) >= 50 - records._CHUNKS_AHEAD - 2


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("groups", "reset"),
        ("transactions", "list"),
        ("features", "describe"),
        ("dlq", "list"),
        ("produce",),
        ("consume",),
        ("run",),
        ("connect",),
        ("outbox", "relay"),
    ],
)
def test_commands_that_connect_take_a_file_for_security(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Kafka's tools do."""
    assert called(*command, "--help", monkeypatch=monkeypatch) == 0
    assert "--command-config" in capsys.readouterr().out


def test_a_file_that_cannot_be_used_is_refused_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with file, reason and remedy, and no secret."""
    monkeypatch.setenv("BUSWAY_COMMAND_CONFIG", "")
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.jaas.config=a.PlainLoginModule required username=u password=s3cret;\n"
    )
    assert called("topics", "list", "--command-config", str(file), monkeypatch=monkeypatch) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"busway: {file}: security_protocol SASL_SSL needs sasl_mechanism")
    assert shown.count("\n") == 1
    assert "s3cret" not in shown
    assert called("topics", "list", "--command-config", "absent", monkeypatch=monkeypatch) == 1
    assert (
        "absent: cannot be read, No such file or directory; give the path of a properties file"
        in capsys.readouterr().err
    )
