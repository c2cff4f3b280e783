"""Config providers: references in settings, and what bounds them."""

from pathlib import Path

import pytest

from busway_connect.config import BadSetting, WorkerConfig
from busway_connect.connector import ConfigInvalid
from busway_connect.plugins import Plugins
from busway_connect.providers import Providers
from busway_connect.validation import BadConfig, check, problems, verdict


@pytest.fixture
def providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Providers:
    """All three, with secrets in `allowed` and none beside it."""
    monkeypatch.setenv("BANK_PASSWORD", "from env")
    monkeypatch.setenv("SHELL_SECRET", "hidden")
    folder = tmp_path / "allowed"
    folder.mkdir()
    (folder / "bank.properties").write_text("# password=old\npassword = from=file\n")
    (folder / "token").write_text("whole\ntext\n")
    (tmp_path / "outside").write_text("password=hidden\n")
    (folder / "link").symlink_to(tmp_path / "outside")
    properties = {
        "config.providers": "env, file,directory",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "BANK_.*",
        "config.providers.file.class": "FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(folder),
        "config.providers.directory.class": "DirectoryConfigProvider",
        "config.providers.directory.param.allowed.paths": str(folder),
    }
    return Providers(WorkerConfig.from_properties(properties).providers)


def test_references_become_values(providers: Providers, tmp_path: Path) -> None:
    """Anywhere in a text, several times; what names no provider stays."""
    config = {
        "a": "${env:BANK_PASSWORD}",
        "b": f"x${{file:{tmp_path}/allowed/bank.properties:password}}y${{env:BANK_PASSWORD}}",
        "c": f"${{directory:{tmp_path}/allowed:token}}",
        "d": "${topic}-${source.table}-${other:key}-$1",
    }
    assert providers.resolved(config) == {
        "a": "from env",
        "b": "xfrom=fileyfrom env",
        "c": "whole\ntext",
        "d": "${topic}-${source.table}-${other:key}-$1",
    }


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("${env:SHELL_SECRET}", "has no SHELL_SECRET that allowlist.pattern allows"),
        ("${env:BANK_MISSING}", "has no BANK_MISSING"),
        ("${file:PLACE/outside:password}", "not within allowed.paths"),
        ("${file:PLACE/allowed/../outside:password}", "not within allowed.paths"),
        ("${file:PLACE/allowed/link:password}", "not within allowed.paths"),
        ("${directory:PLACE/allowed:../outside}", "not within allowed.paths"),
        ("${file:PLACE/allowed/bank.properties:user}", "has no line user"),
        ("${file:PLACE/allowed/none:user}", "cannot be read: No such file"),
    ],
)
def test_what_is_not_there_or_not_allowed_is_named(
    providers: Providers, tmp_path: Path, reference: str, says: str
) -> None:
    """With the setting; never by an empty password, and never from outside."""
    with pytest.raises(ConfigInvalid, match=says) as refused:
        providers.resolved({"good": "1", "database.password": reference.replace("PLACE", str(tmp_path))})
    assert list(refused.value.errors) == ["database.password"]
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"config.providers": "x"}, "config.providers.x.class is one of"),
        ({"config.providers": "x", "config.providers.x.class": "EnvVarConfigProvider"}, "param.allowlist.pattern is missing"),
        ({"config.providers": "x", "config.providers.x.class": "FileConfigProvider"}, "param.allowed.paths is missing"),
    ],
)  # fmt: skip
def test_a_provider_without_bounds_is_refused(properties: dict[str, str], says: str) -> None:
    """The REST API would read anything for anybody."""
    with pytest.raises(BadSetting, match=says):
        Providers(properties)


@pytest.mark.parametrize(
    ("name", "secret", "given"),
    [
        ("tasks.max", "hunter2", "${env:X}"),
        ("tasks.max", "Hunter2 and more", "a${env:X}"),
        ("errors.tolerance", "hunter2", "${env:X}"),
        ("transforms", "hunter2,other", "${env:X}"),
        ("value.converter", "hunter2", "${env:X}"),
        ("nothing.of.ours", "hunter2", "${env:X}"),
        ("topics.regex", "(hunter2", "${env:X}"),
        ("errors.deadletterqueue.topic.name", "hunter2", "${env:X}"),
    ],
)
def test_no_message_shows_what_a_reference_stands_for(name: str, secret: str, given: str) -> None:
    """Whatever the setting is called, as it is or in parts, in the text and in the name; the reference is shown."""
    common = {"connector.class": "CollectingSink", "name": "x", "topics": "hunter2"}
    resolved, shown = {**common, name: secret}, {**common, name: given, "topics": "${env:T}"}
    plugins = Plugins(["tests.support.connectors"])
    kind = plugins.connector("CollectingSink")
    problem_texts = problems(plugins, kind, resolved, shown)
    assert problem_texts
    assert "hunter" not in str(problem_texts).lower()
    assert "${env:" in str(problem_texts)
    with pytest.raises(BadConfig) as refused:
        check(plugins, kind, resolved, shown)
    assert "hunter" not in str(refused.value).lower()
    assert "hunter" not in str(verdict(plugins, "x", kind, shown, resolved)).lower()
