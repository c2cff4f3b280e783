"""The lines of progress while the demo is installed."""

import sys
from pathlib import Path

import pytest
from tools import install


def test_a_line_for_each_package() -> None:
    """From pip's output; the rest of it says nothing new."""
    lines = [
        "Obtaining file:busway\n",
        "Collecting h3<5,>=4.5 (from busway==0.1.0)\n",
        "  Using cached h3-4.5.0-cp311-cp311-manylinux2014_x86_64.whl.metadata (7.4 kB)\n",
        "  Using cached h3-4.5.0-cp311-cp311-manylinux2014_x86_64.whl (1.1 MB)\n",
        "  Downloading https://files.example/packages/rich-15.0.0-py3-none-any.whl (243 kB)\n",
        "Installing collected packages: h3, rich, busway\n",
        "Successfully installed h3-4.5.0\n",
    ]
    steps = [step for line in lines if (step := install.progress(line)) is not None]
    assert steps == ["h3 4.5.0", "rich 15.0.0", "unpacks 3 packages"]


def test_the_lines_of_uv() -> None:
    """Its phases, and the packages that are large enough to be named."""
    lines = [
        "Resolved 86 packages in 1.30s\n",
        "   Building busway @ file:busway\n",
        "Downloading mypy (14.7MiB)\n",
        " Downloaded mypy\n",
        "Prepared 86 packages in 4.02s\n",
        "Installed 86 packages in 310ms\n",
        " + h3==4.5.0\n",
    ]
    steps = [step for line in lines if (step := install.progress(line)) is not None]
    assert steps == [
        "resolved 86 packages in 1.30s",
        "mypy (14.7MiB)",
        "prepared 86 packages in 4.02s",
        "installed 86 packages in 310ms",
    ]


def test_the_settings_of_pip_are_uvs_too(tmp_path: Path) -> None:
    """Indexes, folders of wheels and certificates, in variables: an index may have a password. pip's own variables win."""
    listed = f""":env:.cert='/etc/ssl/ca.crt'
:env:.default-timeout='180'
:env:.index-url='https://user:secret@index.example/simple'
global.index-url='https://older.example/simple'
global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'
global.find-links='{tmp_path}\\n/missing'
"""
    environment = install.uv_environment(listed)
    assert environment is not None
    assert environment["UV_DEFAULT_INDEX"] == "https://user:secret@index.example/simple"
    assert environment["UV_INDEX"] == "https://one.example/simple https://two.example/simple"
    assert environment["UV_FIND_LINKS"] == str(tmp_path)
    assert environment["SSL_CERT_FILE"] == "/etc/ssl/ca.crt"


@pytest.mark.parametrize("setting", ["no-index='true'", "constraint='versions.txt'", "trusted-host='index.example'"])
def test_pip_installs_where_uv_cannot_have_its_settings(setting: str) -> None:
    """A setting that changes what is installed, or from where, is never left out."""
    assert install.uv_environment(f"global.{setting}\n") is None


def test_an_old_python_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With the remedy, before anything is made."""
    monkeypatch.setattr(install, "OLDEST", (99, 0))
    monkeypatch.setattr(sys, "argv", ["install.py", "demo"])
    assert install.main() == 1
    assert "make demo PYTHON=python3.11" in capsys.readouterr().err


def test_the_size_of_a_folder(tmp_path: Path) -> None:
    """In whole MB, with folders below it; a link counts as itself."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(bytes(3_000_000))
    (tmp_path / "link").symlink_to("below/file")
    assert install.size_mb(tmp_path) == 3
