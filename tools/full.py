"""Run everything that the gate does not: `make full`, or `make full STAGES="hostile interop"`.

Here: the stages.
Not here: how a stage runs (`stages`); what must pass before work lands (`gate`).

Fresh seeds of the simulation, fresh examples of Hypothesis and fresh random numbers live here. A failure there is a finding, with its seed in the log. It
does not keep other work from landing.
"""

import os
import random
import sys
from typing import Final

from tools.patience import measured_patience
from tools.stages import ROOT, Stage, chosen, run_stages

CASES: Final = ("movieflix", "mysocialmedia", "mybank", "ingestion")
BARE_MACHINE: Final = "../shared/docker/bare-machine"


def stages(first: int) -> tuple[Stage, ...]:
    """All stages; what is fresh begins at the number `first`."""
    return (
        Stage(name="fresh", command=("make", "test"), environment={"BUSWAY_HYPOTHESIS": "fresh", "SEED": str(first)}),
        Stage(name="variants", command=("make", "variants")),
        Stage(name="sim", command=("make", "sim", f"FIRST={first}", "SEEDS=4500")),
        Stage(name="three-nodes", command=("make", "three-nodes", f"FIRST={first}", "SEEDS=1500")),
        Stage(name="simulate", command=("make", "simulate", f"FIRST={first}", "SEEDS=15")),
        Stage(name="hostile", command=("make", "hostile")),
        Stage(name="interop", command=("make", "interop"), environment={"SEED": str(first)}),
        *(Stage(name=f"demo-{case}", command=(".venv/bin/busway", "demo", case), again=True) for case in CASES),
        Stage(name="demo-nodes", command=(".venv/bin/busway", "demo", "gettaxi", "--nodes", "3"), again=True),
        Stage(name="package", command=("make", "package"), environment={"BUSWAY_PYTHONS": "all"}),
        Stage(name="docs", command=("make", "docs")),
        Stage(name="spark", command=("make", "spark")),
        Stage(name="compose", command=("make", "compose")),
        Stage(name="bare", command=(BARE_MACHINE, "make demo", "make test")),
    )


def main(names: list[str]) -> int:
    """Run the stages of these names, all without names; go on after a failure."""
    first = int(os.environ.get("FIRST") or random.SystemRandom().randrange(10**9))
    wanted = chosen(stages(first), names)
    os.environ.pop("SEED", None)  # a variable of `make sim`, too
    os.environ.setdefault("BUSWAY_PATIENCE", str(measured_patience(ROOT)))
    print(f"fresh seeds begin at {first}: FIRST={first} runs them again")
    return run_stages((Stage(name="setup", command=("make", ".venv/.ready")), *wanted))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
