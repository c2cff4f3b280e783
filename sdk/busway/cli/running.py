"""Running an app in this process.

Here: finding the app, running it, and the closing line.
Not here: options (`services`).
"""

import asyncio
import contextlib
import importlib
import logging
import os
import sys
import sysconfig
import traceback
from functools import partial
from pathlib import Path
from typing import Final

import typer

import busway
from busway.app.extending.extension import Extension
from busway.app.service import RunningService
from busway.app.serving import serve
from busway.cli.output import CommandFailed
from busway.cli.processes import end_with_parent
from busway.cluster.client import ClusterClient
from busway.errors import AuthenticationFailed, BuswayError, ConnectionFailed
from busway.extras import need
from busway.net import garbage
from busway.serde.registry import RegistryUnreachable
from busway.testable_app import App

logger: logging.Logger = logging.getLogger("busway.app")

_ASK_AGAIN_S: Final = 0.5
_INSTALLED: Final = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
_PYTHON: Final = sysconfig.get_path("stdlib")
_BUSWAY: Final = str(Path(busway.__file__).parent)


def find_app(target: str) -> App:
    """Return the `App` named `module:name`.

    Raises:
        CommandFailed: no such module or App, or the import failed.
        BuswayError: a declaration of the module is invalid.
    """
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise CommandFailed(f"{target}: give MODULE:APP, such as shop.service:app")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name and (module_name == missing.name or module_name.startswith(missing.name + ".")):
            raise CommandFailed(f"there is no module {module_name}; run this where it can be imported") from None
        raise CommandFailed(f"{module_name} needs {missing.name}, which is not installed") from None
    except BuswayError:
        raise
    except Exception as problem:
        raise CommandFailed(f"{module_name} cannot be imported: {_where(problem)}") from problem
    app = getattr(module, name, None)
    if not isinstance(app, App):
        apps = [attribute for attribute, value in vars(module).items() if isinstance(value, App)]
        hint = f"it has {', '.join(apps)}" if apps else "it has none"
        where = f" ({module.__file__})" if getattr(module, "__file__", None) else ""
        raise CommandFailed(f"{module_name}{where} has no App called {name}; {hint}")
    return app


def _where(problem: Exception) -> str:
    if isinstance(problem, SyntaxError):
        return f"{problem.filename}:{problem.lineno}: {type(problem).__name__}: {problem.msg}"
    theirs = [frame for frame in traceback.extract_tb(problem.__traceback__) if _is_theirs(frame.filename)]
    where = f"{theirs[-1].filename}:{theirs[-1].lineno}: " if theirs else ""
    text = str(problem).splitlines()[0] if str(problem) else ""
    return f"{where}{type(problem).__name__}: {text}"


def _is_theirs(file: str) -> bool:
    """Return whether a file is the user's. A service may be installed beside Busway."""
    if not Path(file).is_absolute() or file.startswith(_BUSWAY):  # compiled code has no file on this machine
        return False
    return file.startswith(_INSTALLED) or not file.startswith(_PYTHON)


def serve_http(app: App, address: str, *, insecure: bool) -> None:
    """Serve the app's `Web`, or health and metrics alone without one; raises `MissingExtra`, `BadAddress`."""
    need("web", "--http")
    from busway.web import Web
    from busway.web.server import parse_address

    web = next((extension for extension in app.extensions if isinstance(extension, Web)), None) or app.extend(Web())
    host, web.port = parse_address(address)
    web.host = host or web.host
    web.insecure = web.insecure or insecure


def make_static(app: App, instance_id: str) -> None:
    """Make the app a static member, whose partitions stay through restarts (KIP-345).

    `CommandFailed` if the app sets its group_instance_id.
    """
    named = app.consumer_options.get("group_instance_id")
    if named is not None:
        raise CommandFailed(
            f"app {app.name} has consumer={{'group_instance_id': {named!r}}}, which would be that of every worker; "
            "leave it out for --instance, or leave --instance out"
        )
    app.consumer_options = {**app.consumer_options, "group_instance_id": instance_id}


class _Tally(Extension):
    def __init__(self, app: App) -> None:
        self._app = app
        self.text: str | None = None

    async def stopped(self, app: RunningService) -> None:
        served = self._app
        counts = [] if served.worker is None else [served.worker.counts]
        counts += [served.queue_workers[0].counts] if served.queue_workers else []  # queue workers share their counts
        if not counts:
            return
        buried = sum(count.dead_lettered for count in counts)
        unfinished = sum(worker.unfinished for worker in (served.worker, *served.queue_workers) if worker is not None)
        aside = f", {buried} put aside" if buried else ""
        self.text = f"{sum(count.handled for count in counts)} records handled{aside}, {unfinished} unfinished"


def _handled(app: App) -> str:
    topics = sorted({topic.name for route in app.routes for topic in route.topics})
    queues = sorted({f"{topic.name} as {route.group}" for route in app.queue_routes for topic in route.topics})
    parts = [f"handles {', '.join(topics)}"] * bool(topics) + [f"works off {', '.join(queues)}"] * bool(queues)
    return " and ".join(parts) or "has no handlers; it runs until it is stopped"


async def until_reachable(app: App, wait_s: float) -> None:
    """Wait until brokers and registry answer; register the topics' schemas, as the start does.

    Raises:
        ConnectionFailed, RegistryUnreachable: no answer in time; names the address.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + wait_s
    problem: BuswayError | None = None
    while True:
        try:
            async with asyncio.timeout_at(end_s):
                return await _reach(app)
        except AuthenticationFailed:
            raise
        except (ConnectionFailed, RegistryUnreachable) as failed:
            left_s = end_s - loop.time()
            if left_s <= 0:
                raise
            if problem is None:
                logger.warning("%s waits up to %.0f s at its start: %s", app.name, wait_s, failed)
            problem = failed
            await asyncio.sleep(min(_ASK_AGAIN_S, left_s))
        except TimeoutError:
            raise problem or ConnectionFailed(f"brokers and registry did not answer within {wait_s:g} s") from None


async def _reach(app: App) -> None:
    cluster, serdes = ClusterClient(app.bootstrap_servers, client_id=app.name, security=app.security), app.new_serdes()
    try:
        await cluster.start()
        await serdes.prepare(app.topics.values())
    finally:
        await serdes.close()
        await cluster.close()


def run_app(app: App, wait_s: float = 0.0) -> None:
    """Run an app until a signal, then print its counts.

    Args:
        wait_s: limit on waiting for brokers and registry at start.

    Raises:
        BuswayError: the app could not start, or stopped by itself.
        CommandFailed: the service's code failed; names the line. `--log-level debug` shows the traceback.
    """
    loop_factory = None
    try:
        import uvloop
    except ImportError:
        pass
    else:
        loop_factory = uvloop.new_event_loop
    logger.info("%s %s", app.name, _handled(app))
    tally = app.extend(_Tally(app))
    garbage.settle()

    async def main() -> None:
        with end_with_parent():
            await serve(app, partial(until_reachable, app, wait_s) if wait_s else None)

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main())
    except (BuswayError, OSError):
        raise
    except Exception as problem:
        logger.debug("%s has failed", app.name, exc_info=problem)
        raise CommandFailed(f"{app.name} has failed: {_where(problem)}") from problem
    finally:
        if tally.text is not None:
            with contextlib.suppress(BrokenPipeError):
                typer.echo(f"{app.name} stopped: {tally.text}")
