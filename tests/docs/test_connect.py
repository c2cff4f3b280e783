"""The connector of docs/CONNECT.md is run by a worker as the page says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.connect_worker import Rest, records_of, worker_config
from tests.support.patience import patient
from tests.support.waiting import until

from busway_bus.testing.local_cluster import LocalCluster
from busway_connect.config import BadSetting
from busway_connect.plugins import Plugins
from busway_connect.server import ConnectServer

PAGE = (Path(__file__).parents[2] / "docs" / "CONNECT.md").read_text()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Python finds modules in, with the page's module."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "folder.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


async def test_the_connector_of_the_page_runs(folder: Path) -> None:
    """Its source and its transform, with the request of the page; settings that they do not list are refused."""
    (request,) = re.findall(r"connectors/letters/config -d '(.*?)'", PAGE, re.DOTALL)
    letters = folder / "letters"
    letters.mkdir()
    (letters / "1.json").write_text('{"text": "a", "secret": "b"}')
    config = {**json.loads(request), "folder": str(letters)}
    async with (
        LocalCluster() as cluster,
        ConnectServer(worker_config(cluster.bootstrap_servers, plugin_modules=("folder",))) as server,
    ):
        rest = Rest(server.url)
        try:
            status, response = await rest.call("PUT", "/connectors/letters/config", {**config, "folders": "x"})
            assert (status, "for configuration folders: it is not served" in response["message"]) == (400, True)
            without = {name: text for name, text in config.items() if not name.endswith("field")}
            status, response = await rest.call("PUT", "/connectors/letters/config", without)
            assert (status, "field is missing" in response["message"]) == (400, True)
            assert (await rest.call("PUT", "/connectors/letters/config", config))[0] == 201

            async def read() -> bool:
                return bool((await rest.call("GET", "/connectors/letters/offsets"))[1]["offsets"])

            await until(read)
            (record,) = await records_of(cluster.bootstrap_servers, "letters")
            assert (record.key, record.value) == (b"1", b'{"text":"a"}')
            listed = (await rest.call("GET", "/connector-plugins?connectorsOnly=false"))[1]
            assert {"folder.FolderSource", "folder.Without"} <= {plugin["class"] for plugin in listed}
        finally:
            await rest.http.aclose()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import nothing_of_this_name", "broken cannot be imported: ModuleNotFoundError: No module named"),
        ("1 / 0", "broken cannot be imported: ZeroDivisionError: division by zero; mend the module"),
        ("raise SystemExit(3)", "broken cannot be imported: SystemExit: 3"),
        ("from busway_connect import Source", "broken has no Source, Sink, Transform, Predicate or Converter"),
    ],
)
def test_a_module_that_cannot_be_a_plugin_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, text: str
) -> None:
    """And ends the start."""
    (tmp_path / "broken.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(BadSetting, match=re.escape(f"plugin.modules: {text}")):
        Plugins(["broken"])
    sys.modules.pop("broken", None)


@pytest.mark.slow
def test_the_command_finds_modules_of_its_folder_and_says_one_line(tmp_path: Path) -> None:
    """No traceback for a module that cannot be imported."""
    (tmp_path / "broken.py").write_text("1 / 0")
    command = [str(Path(sys.executable).with_name("busway")), "connect", "--port", "0", "--override"]
    done = subprocess.run(
        [*command, "plugin.modules=broken"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        "busway: plugin.modules: broken cannot be imported: ZeroDivisionError: division by zero; mend the module, or take it out"
    ]
