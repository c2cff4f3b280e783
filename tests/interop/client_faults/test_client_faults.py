"""Our client, librdkafka's and Java's side by side through faults: no worse than the better of the others."""

import asyncio

import pytest

from tests.interop.client_faults.events import Event, Window, parse, rows
from tests.interop.client_faults.faults import FAULTS
from tests.interop.client_faults.run import no_worse, run

CHOSEN = {1: ("half responses", "broker killed"), 3: ("reset in a request", "broker killed", "coordinator moved")}


@pytest.mark.java
@pytest.mark.foreign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", CHOSEN)
def test_our_client_gets_through_as_the_better_of_the_others(count: int) -> None:
    """The same records, no more duplicates and rebalances. `python -m tests.interop.client_faults` has all faults."""
    notes: list[str] = []
    faults = [fault for fault in FAULTS if fault.name in CHOSEN[count]]
    table = asyncio.run(run("busway", count, faults, note=notes.append))
    assert no_worse(table) == [], notes
    assert [row for row in table if row.wrong] == [], notes


def test_the_table_counts_what_a_client_did() -> None:
    """By window; a record in the log twice, one in the log no more, one that came twice, one that never came."""
    second = 1_000_000_000
    lines = [
        f"acknowledged {1 * second} 0",
        f"read {1 * second} 0 0 10",
        f"acknowledged {4 * second} 1",
        f"acknowledged {5 * second} 2",
        f"read {5 * second} 1 1 7",
        f"read {6 * second} 1 1 7",
        f"failed {6 * second} 3 Late",
        f"revoked {7 * second} 3",
        f"assigned {7 * second} 3",
        f"ended {8 * second} consumer Fenced",
    ]
    events: list[Event] = [parse(line) for line in lines]
    (row,) = rows("c", events, ["0", "1", "1"], [Window(fault="f", begin_s=3.0, end_s=9.0)])
    assert (row.acknowledged, row.lost, row.doubled, row.read_again, row.unread) == (2, 1, 1, 1, 1)
    assert (row.failed, row.rebalances, row.ended, row.wrong) == (1, 2, 1, 4)
    assert (row.write_stall_s, row.read_stall_s) == (6.0, 6.0)  # partition 0 had nothing
