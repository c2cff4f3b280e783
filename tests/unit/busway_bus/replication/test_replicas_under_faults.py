"""Three brokers under crashes, power cuts, lost requests and slow disks, by seed.

Nothing that was acknowledged is lost; what was read below a high watermark never changes; at the end all replicas are in sync, with the same bytes.
"""

import os
from typing import Final

import pytest
from tests.simulation.replicas.scenario import THEMES, run

SEEDS: Final = range(int(os.environ.get("BUSWAY_SEEDS", "2")))


@pytest.mark.slow
@pytest.mark.parametrize("about", THEMES)
def test_nothing_acknowledged_is_lost_and_logs_match(about: str) -> None:
    """Faults, then none: the replicas converge within a bounded time."""
    for seed in SEEDS:
        run(seed, about)
