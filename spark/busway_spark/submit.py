"""Jobs on a cluster by `spark-submit`.

Here: finding a job's module, and the command line with jars and Python packages.
Not here: jobs, their frame (`job`).
"""

import argparse
import importlib
import importlib.util
import os
import pkgutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from busway import BuswayError
from busway_spark.jars import jar_paths

PACKAGES: Final = ("busway_protocol", "busway", "busway_spark")


class NoJob(BuswayError):
    """No such job; the text lists the existing ones."""


def find_job(name: str) -> ModuleType:
    """Return a job's module: of `busway_spark.jobs` by name, or any by path: `gettaxi.jobs.surge`, `hourly` for
    hourly.py here.

    Raises:
        NoJob: none, or without `main`.
    """
    import busway_spark.jobs as own

    names = [info.name for info in pkgutil.iter_modules(own.__path__)]
    plain = name.replace("-", "_")
    path = f"busway_spark.jobs.{plain}" if plain in names else name
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as missing:
        if missing.name is None or not path.startswith(missing.name):
            raise NoJob(f"{path} needs {missing.name}, which is not installed") from None
        raise NoJob(f"there is no job {name}: give {', '.join(names)}, or a module that can be imported here") from None
    if not callable(getattr(module, "main", None)):
        raise NoJob(f"{path} is no job: it has no main(argv)")
    return module


def submit_command(module: str, master: str, arguments: Sequence[str], folder: Path) -> list[str]:
    """Return a `spark-submit` command with the job's Python code and jars; raises `JarsMissing`.

    Native packages (pyarrow, crc32c, cramjam, fastavro) must be installed on the cluster's nodes.

    Args:
        arguments: the job's; their `--conf NAME=VALUE` also go to `spark-submit`, as some settings precede the job.
        folder: for the two submitted files.
    """
    packages = list(dict.fromkeys([*PACKAGES, module.partition(".")[0]]))
    archive = folder / "busway-jobs.zip"
    zip_packages(archive, packages)
    main = folder / "busway_job.py"
    main.write_text(f"import sys\nfrom {module} import main\nsys.exit(main(sys.argv[1:]))\n")
    delta = "delta" in arguments or "--format=delta" in arguments
    return [
        spark_submit(),
        "--master",
        master,
        "--jars",
        ",".join(str(path) for path in jar_paths(delta=delta)),
        "--py-files",
        str(archive),
        *_driver(),
        *_settings(arguments),
        str(main),
        *arguments,
    ]


def _driver() -> list[str]:
    """Return the environment: the driver uses this interpreter, unless one is named, instead of the PATH's `python3`."""
    named = os.environ.keys() & {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    return [] if named else ["--conf", f"spark.pyspark.driver.python={sys.executable}"]


def _settings(arguments: Sequence[str]) -> list[str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--conf", action="append", default=[])
    parsed, _ = parser.parse_known_args(list(arguments))
    return [part for setting in parsed.conf for part in ("--conf", setting)]


def spark_submit() -> str:
    import pyspark

    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    return str(Path(home) / "bin" / "spark-submit")


def zip_packages(archive: Path, packages: Sequence[str]) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for package in packages:
            spec = importlib.util.find_spec(package)
            if spec is None:
                raise NoJob(f"{package} cannot be imported here")
            if spec.submodule_search_locations is None and spec.origin is not None:
                target.write(spec.origin, Path(spec.origin).name)
            for place in spec.submodule_search_locations or ():
                root = Path(place)
                for file in sorted(root.rglob("*")):
                    if file.is_file() and "__pycache__" not in file.parts:
                        target.write(file, str(Path(package) / file.relative_to(root)))
