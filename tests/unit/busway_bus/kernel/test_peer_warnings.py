"""Lines about bad peers: bounded for each and for all, and what was left out is counted."""

from busway_bus.kernel.limits import BAD_PEER_LINES, BAD_PEER_LOG_INTERVAL_MS, BAD_PEERS_LINES
from busway_bus.kernel.peer_warnings import PeerWarnings

INTERVAL_S = BAD_PEER_LOG_INTERVAL_MS / 1000


def test_one_peer_gets_a_few_lines_however_many_reasons_it_gives() -> None:
    """A thousand bad requests from one address leave room for another's, and the next interval tells how many there were."""
    peer_warnings = PeerWarnings()
    admitted = [peer_warnings.admit("bad", 100.0) for _ in range(1_000)]
    assert admitted.count(0) == BAD_PEER_LINES
    assert peer_warnings.admit("other", 100.0) == 0
    assert peer_warnings.admit("bad", 100.0 + INTERVAL_S) == 1_000 - BAD_PEER_LINES
    assert peer_warnings.admit("bad", 100.0 + INTERVAL_S) == 0


def test_many_peers_share_one_bound() -> None:
    """A thousand addresses get no more lines than twenty."""
    peer_warnings = PeerWarnings()
    admitted = [peer_warnings.admit(f"peer-{number}", 0.0) for number in range(1_000)]
    assert len(admitted) - admitted.count(None) == BAD_PEERS_LINES
