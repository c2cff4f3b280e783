"""Run all that must pass before work lands: `python3 -m tools.gate`, which is `.ci/run`.

Here: the stages of the gate.
Not here: how a stage runs (`stages`); everything else that is tested (`full`).

Every stage is deterministic: fixed seeds, Hypothesis without chance. The whole takes less than 10 minutes on two idle cores.
"""

import os
import sys
from typing import Final

from tools.patience import measured_patience
from tools.stages import ROOT, Stage, run_stages

STAGES: Final = (
    Stage(name="setup", command=("make", ".venv/.ready")),
    Stage(
        name="package",
        command=("make", "package"),
        beside=(
            Stage(name="check", command=("make", "check"), tests=False),
            Stage(name="sim-shares", command=("make", "sim", "FIRST=0", "SEEDS=60", "ABOUT=shares"), tests=False),
            Stage(name="simulate", command=("make", "simulate-cases", "FIRST=0", "SEEDS=5"), tests=False),
        ),
    ),
    Stage(name="test", command=("make", "test")),
    Stage(name="sim", command=("make", "sim", "FIRST=0", "SEEDS=200")),
    Stage(name="smoke", command=("make", "smoke")),
    Stage(name="demo", command=("make", "demo"), again=True),
)


def main() -> int:
    """Measure the load, then run all stages: one run tells of every failure."""
    os.environ.setdefault("BUSWAY_PATIENCE", str(measured_patience(ROOT)))
    os.environ["BUSWAY_HYPOTHESIS"] = "gate"
    os.environ.pop("SEED", None)
    return run_stages(STAGES)


if __name__ == "__main__":
    sys.exit(main())
