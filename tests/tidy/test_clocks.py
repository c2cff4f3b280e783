"""The SDK names the time that it waits in: `REAL_TIME` or `APP_TIME`, never asyncio's own, which a test may have frozen."""

import ast
from pathlib import Path

import pytest
from tests.tidy.test_house import ROOT, tracked

PACKAGES = ("admin", "app", "cluster", "consumer", "net", "producer", "serde", "share", "sql")
UNNAMED = {
    "sdk/busway/net/clock.py": "the two times themselves",
    "sdk/busway/net/http_connections.py": "serves in a task whose time is real",
    "sdk/busway/net/http_server.py": "serves in a task whose time is real",
    "sdk/busway/net/machine.py": "the machine's own clocks",
}
"""Modules that may wait by asyncio itself, and why."""
WAITS = {"sleep", "timeout", "timeout_at", "wait_for"}
OF_LOOP = {"call_later", "call_at"}
OURS = {"REAL_TIME", "APP_TIME"}
OF_OS = {"monotonic", "monotonic_ns", "perf_counter", "time", "time_ns"}


def unnamed(module: ast.AST) -> list[str]:
    """Return the lines that take time from asyncio, its loop or the machine; `asyncio.sleep(0)` takes none."""
    calls: list[str] = []
    turns: set[ast.AST] = set()
    for node in ast.walk(module):  # calls come before what they call
        match node:
            case ast.Call(func=ast.Attribute(ast.Name("asyncio"), "sleep") as called, args=[ast.Constant(0)]):
                turns.add(called)
                continue
            case ast.Attribute(ast.Name("asyncio"), name) if name in WAITS:
                if node in turns:
                    continue
            case ast.ImportFrom(module="asyncio", names=names) if WAITS.intersection(alias.name for alias in names):
                pass
            case ast.Call(func=ast.Attribute(ast.Name("asyncio"), "wait" | "as_completed"), keywords=keywords):
                if all(keyword.arg != "timeout" for keyword in keywords):
                    continue
            case ast.Attribute(owner, name) if name in OF_LOOP:
                if isinstance(owner, ast.Name) and owner.id in OURS:
                    continue
            case ast.Attribute(ast.Name(name) | ast.Attribute(_, name), "time") if name in {"loop", "_loop"}:
                pass
            case ast.Attribute(ast.Call(func=ast.Attribute(_, "get_running_loop")), "time"):
                pass
            case ast.Attribute(ast.Name("time"), name) if name in OF_OS:
                pass
            case _:
                continue
        calls.append(f"line {node.lineno}: {ast.unparse(node)}")
    return calls


def modules() -> list[Path]:
    """Return the product modules of the packages that run below an app."""
    roots = tuple(f"sdk/busway/{package}/" for package in PACKAGES)
    return [path for path in tracked() if path.suffix == ".py" and str(path.relative_to(ROOT)).startswith(roots)]


def test_waits_name_their_time() -> None:
    """A client that waited by asyncio would never reach a broker while an app's time is frozen."""
    wrong = {}
    for path in modules():
        name = str(path.relative_to(ROOT))
        if name not in UNNAMED and (lines := unnamed(ast.parse(path.read_text()))):
            wrong[name] = lines
    assert wrong == {}, "wait by REAL_TIME or APP_TIME of busway.net.clock"


def test_each_exception_is_needed() -> None:
    """A module that no longer waits by asyncio leaves the list."""
    assert [name for name in UNNAMED if not unnamed(ast.parse((ROOT / name).read_text()))] == []


@pytest.mark.parametrize(
    "code",
    [
        "async def f(): await asyncio.sleep(wait_s)",
        "rest = asyncio.sleep",
        "asyncio.timeout(5)",
        "asyncio.timeout_at(end)",
        "asyncio.wait_for(task, 5)",
        "asyncio.wait(tasks, timeout=5)",
        "asyncio.get_running_loop().time()",
        "loop.call_later(5, call)",
        "self._loop.time()",
        "asyncio.as_completed(tasks, timeout=5)",
        "from asyncio import sleep, Event",
        "time.monotonic()",
    ],
)
def test_a_wait_is_seen(code: str) -> None:
    """Each way to take time is refused."""
    assert unnamed(ast.parse(code))


@pytest.mark.parametrize("code", ["async def f(): await asyncio.sleep(0)", "asyncio.wait(tasks)", "REAL_TIME.sleep(5)"])
def test_what_takes_no_time_passes(code: str) -> None:
    """Giving others a turn, and waiting without a time-out, need no clock."""
    assert not unnamed(ast.parse(code))
