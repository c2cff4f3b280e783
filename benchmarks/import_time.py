"""Import time of Busway's names and of other clients: `python -m benchmarks.import_time`.

Here: a new process for each import, medians.
Not here: which modules an import may load (`tests/tidy/test_imports.py`).

Bytecode is compiled before the first measurement, as pip does at installation. The start of the interpreter is not counted.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Final

ROUNDS: Final = 15
LIMIT_MS: Final = 150
STATEMENTS: Final = (
    "import busway",
    "from busway import Producer",
    "from busway import Consumer",
    "from busway import Admin",
    "from busway import ShareConsumer",
    "from busway import App",
    "import aiokafka",
    "import confluent_kafka.aio",
    "import kafka",
    "import faststream.confluent",
)
_MEASURE: Final = """
import sys, time
begun, used = time.perf_counter(), time.process_time()
{}
print((time.perf_counter() - begun) * 1000, (time.process_time() - used) * 1000, len(sys.modules))
"""


@dataclass(frozen=True, slots=True)
class Import:
    """Wall-clock and CPU time in ms, and the number of modules that are loaded after it."""

    wall_ms: float
    cpu_ms: float
    modules: int


def measured(statement: str, environment: dict[str, str]) -> Import | None:
    """Run a statement in a new process; None if it cannot be imported."""
    command = [sys.executable, "-c", _MEASURE.format(statement)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return None
    wall_ms, cpu_ms, modules = done.stdout.split()
    return Import(float(wall_ms), float(cpu_ms), int(modules))


def medians(rounds: int) -> dict[str, Import | None]:
    """Measure every statement once a round, in turns."""
    samples: dict[str, list[Import]] = {statement: [] for statement in STATEMENTS}
    with tempfile.TemporaryDirectory(prefix="busway-bytecode-") as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(rounds + 1):
            for statement in STATEMENTS:
                sample = measured(statement, environment)
                if number and sample is not None:  # the first round compiles
                    samples[statement].append(sample)
    return {statement: _median(taken) if taken else None for statement, taken in samples.items()}


def _median(taken: list[Import]) -> Import:
    return Import(
        statistics.median(sample.wall_ms for sample in taken),
        statistics.median(sample.cpu_ms for sample in taken),
        taken[0].modules,
    )


def main() -> int:
    """Print a table; return 1 if a name of Busway takes more than `LIMIT_MS` of CPU time."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="processes for each import")
    rounds = parser.parse_args().rounds
    results = medians(rounds)
    print("| import | ms | CPU ms | modules |\n|---|---|---|---|")
    for statement, result in results.items():
        cells = f"{result.wall_ms:.0f} | {result.cpu_ms:.0f} | {result.modules}" if result else "not installed | | "
        print(f"| `{statement}` | {cells} |")
    slow = [name for name, result in results.items() if "busway" in name and result and result.cpu_ms > LIMIT_MS]
    if slow:
        print(f"more than {LIMIT_MS} ms: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
