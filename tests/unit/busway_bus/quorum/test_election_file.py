"""The election on the simulated disk: written whole or not at all, read as Kafka writes it, and never guessed."""

from random import Random
from uuid import UUID

import pytest

from busway_bus.log.partition_log import CorruptLog
from busway_bus.quorum.election_file import DamagedElection, ElectionFile, election_from_text, election_text
from busway_bus.quorum.states import Election
from busway_bus.testing.sim_files import PowerCut, SimFiles

DIRECTORY = "__cluster_metadata-0"
VOTED = Election(epoch=7, leader_id=3, voted_id=2, voted_directory_id=UUID(int=0xABCDEF))
KAFKAS = '{"leaderId":3,"leaderEpoch":7,"votedId":2,"votedDirectoryId":"AAAAAAAAAAAAAAAAAKvN7w","data_version":1}'
OLD = '{"clusterId":"","leaderId":3,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":3}],"data_version":0}'


def disk() -> SimFiles:
    """With the log's directory."""
    files = SimFiles()
    files.make_directory(DIRECTORY)
    return files


def test_the_text_is_kafkas() -> None:
    """Both ways, and in the version of before directories."""
    assert election_text(VOTED) == KAFKAS
    assert election_from_text(KAFKAS) == VOTED
    assert election_from_text(OLD) == Election(epoch=7, leader_id=3)
    assert election_from_text(election_text(Election())) == Election()


def test_nothing_is_the_beginning() -> None:
    """A node that has never voted."""
    assert ElectionFile(disk(), DIRECTORY).read() == Election()


def test_a_power_cut_at_any_step_leaves_the_old_one_or_the_new_one() -> None:
    """Once it is written the new one is there."""
    for steps in range(10):
        files = disk()
        file = ElectionFile(files, DIRECTORY)
        file.write(VOTED)
        files.steps_left = steps
        done = True
        try:
            file.write(VOTED.in_epoch(8))
        except PowerCut:
            done = False
        files.cut_power(Random(steps).randrange)
        assert file.read() in ((VOTED.in_epoch(8),) if done else (VOTED, VOTED.in_epoch(8)))
    assert done


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        KAFKAS[:-5].encode(),
        KAFKAS.replace('"data_version":1', '"data_version":2').encode(),
        KAFKAS.replace("7", "-1").encode(),
        KAFKAS.replace("7", "7.5").encode(),
        KAFKAS.replace("7", "true").encode(),
        KAFKAS.replace("7", "99999999999").encode(),
        KAFKAS.replace('"votedId":2,', "").encode(),
        KAFKAS.replace("AAAAAAAAAAAAAAAAAKvN7w", "AAAA").encode(),
        b"[" * 100_000,
    ],
)
def test_a_damaged_one_is_an_error_with_a_remedy(content: bytes) -> None:
    """It is a damaged log at a start of the node: never a beginning of all elections."""
    files = disk()
    files.replace(f"{DIRECTORY}/quorum-state", content)
    with pytest.raises(DamagedElection, match=r"quorum-state is damaged: .*Restore it from a copy") as problem:
        ElectionFile(files, DIRECTORY).read()
    assert isinstance(problem.value, CorruptLog)
    assert '{"leaderId":-1,"leaderEpoch":N,"votedId":-1' in str(problem.value)
