"""Leader epochs and where they begin (KIP-101)."""

import pytest

from busway_bus.log.epochs import LeaderEpochs


@pytest.mark.parametrize(
    ("assigned", "entries"),
    [
        ((1, 1), [(3, 0)]),
        ((5, 12), [(3, 0), (5, 10)]),
        ((7, 12), [(3, 0), (5, 10), (7, 12)]),
        ((7, 10), [(3, 0), (7, 10)]),
        ((4, 12), [(3, 0), (5, 10)]),
        ((3, 10), [(3, 0)]),
        ((4, 10), [(3, 0), (4, 10)]),
    ],
)
def test_a_record_of_an_epoch_proves_where_newer_ones_did_not_begin(assigned, entries):
    """A leader may have begun an epoch without records, where another leader's older records follow."""
    epochs = LeaderEpochs()
    epochs.assign(3, 0)
    epochs.assign(5, 10)
    epochs.assign(*assigned)
    assert epochs.entries == entries
