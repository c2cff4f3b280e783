"""Compiles what has a compiled twin, where there is a compiler; without one the package is pure Python and does the same.

Here: one call of the C compiler for each file in `TWINS`, and what the wheel is called then.
Not here: any setting; a build that fails says so in one line and goes on.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TWINS = ("sdk/busway_protocol/records/_walk.c",)
PURE = "BUSWAY_PURE"
"""Set in the environment of a build, it leaves the twins out."""


class Twins(BuildHookInterface[Any]):
    """Puts a shared library beside each source."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the wheel, or the editable install, is put together."""
        if os.environ.get(PURE) or os.name != "posix":
            return
        built = [library for source in TWINS if (library := self._compiled(Path(self.root) / source)) is not None]
        if built and self.target_name == "wheel" and version != "editable":
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"cp311-abi3-{platform}"
            build_data["artifacts"] += [f"/{library.relative_to(self.root).as_posix()}" for library in built]

    def _compiled(self, source: Path) -> Path | None:
        library = source.with_suffix(".abi3.so")
        compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
        if shutil.which(compiler[0]) is None:
            compiler = ["cc"]
        undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        fresh = library.with_suffix(".new")
        command = [
            *compiler, "-O2", "-fPIC", "-shared", *undefined, f"-I{sysconfig.get_paths()['include']}",
            str(source), "-o", str(fresh),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603 - fixed
        except (OSError, subprocess.TimeoutExpired) as problem:
            self.app.display_warning(f"{source.name} is not compiled, pure Python does its work: {problem}")
            return None
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
            self.app.display_warning(f"{source.name} is not compiled, pure Python does its work: {reason}")
            return None
        fresh.replace(library)
        return library
