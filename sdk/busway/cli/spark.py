"""`busway spark`: run a Spark job.

Here: finding the job, and its cluster.
Not here: jobs (`busway_spark.jobs`, and users' own).
"""

import ast
import importlib.util
import os
import pkgutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from busway.cli.output import CommandFailed
from busway.extras import need

CONTEXT: Final[dict[str, Any]] = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Passes all arguments to the job, including --help."""


def spark(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="offload, or a module such as gettaxi.jobs.surge.")],
) -> None:
    """Run a Spark job: in this process, or with --master on a cluster by spark-submit. `busway spark JOB --help` lists its arguments."""
    if job in {"-h", "--help"}:
        typer.echo(f"{context.get_help()}\n\n{_jobs()}")
        return
    need("spark", "busway spark")
    from busway_spark.submit import find_job, submit_command

    sys.path.insert(0, os.getcwd())
    try:
        module = find_job(job)
    except SystemExit as refused:  # raised by `busway_spark` without PySpark
        raise CommandFailed(str(refused)) from None
    arguments = list(context.args)
    master = _master(arguments)
    if master is None or master.startswith("local"):
        raise typer.Exit(module.main(arguments))
    with tempfile.TemporaryDirectory(prefix="busway-spark-") as folder:
        command = submit_command(module.__name__, master, arguments, Path(folder))
        done = subprocess.run(command, check=False)  # noqa: S603 - spark-submit with the user's own arguments
    raise typer.Exit(done.returncode)


def _jobs() -> str:
    spec = importlib.util.find_spec("busway_spark.jobs")
    lines = ["Jobs, beside any module of your own with a main(argv):"]
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for module in sorted(pkgutil.iter_modules([folder])):
            text = ast.get_docstring(ast.parse(Path(folder, f"{module.name}.py").read_text(encoding="utf-8"))) or ""
            name = module.name.replace("_", "-")
            lines.append(f"  {name}  {text.partition(chr(10))[0]}  `busway spark {name} --help` lists its options.")
    return "\n".join(lines)


def _master(arguments: list[str]) -> str | None:
    for number, argument in enumerate(arguments):
        if argument.startswith("--master="):
            return argument.partition("=")[2]
        if argument == "--master" and number + 1 < len(arguments):
            return arguments[number + 1]
    return None
