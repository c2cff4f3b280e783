"""The election's file `quorum-state`, as Apache Kafka 4.3.1's (KIP-595, KIP-853).

Here: JSON to `Election` and back, and the file, over any `Files`.
Not here: when it is written: before messages that depend on it (`driver`).
"""

import json
from typing import Any, Final
from uuid import UUID

from busway_bus.kernel.files import Files
from busway_bus.log.checkpoints import QUORUM_STATE, uuid_from_text, uuid_text
from busway_bus.log.recovery import CorruptLog
from busway_bus.quorum.states import NOBODY, Election
from busway_protocol.types import ZERO_UUID

_VERSION: Final = 1
_VERSIONS: Final = (0, 1)
"""Version 0 lacks the voted replica's directory; names cluster and voters."""
_INT_MAX: Final = 2**31 - 1


class DamagedElection(CorruptLog):
    """The file cannot be read; the text names it and the remedy.

    Without it a node could vote twice in an epoch.
    """


def election_text(election: Election) -> str:
    values = {
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": election.voted_id,
        "votedDirectoryId": uuid_text(election.voted_directory_id),
        "data_version": _VERSION,
    }
    return json.dumps(values, separators=(",", ":"))


def election_from_text(text: str) -> Election:
    """Parse the file's content, or raise ValueError with the reason."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    version = _number(values, "data_version", 0)
    if version not in _VERSIONS:
        raise ValueError(f"data_version {version} is not known; 0 and 1 are")
    return Election(
        epoch=_number(values, "leaderEpoch", 0),
        leader_id=_number(values, "leaderId", NOBODY),
        voted_id=_number(values, "votedId", NOBODY),
        voted_directory_id=_directory(values) if version else ZERO_UUID,
    )


def _number(values: dict[str, Any], name: str, lowest: int) -> int:
    value = values.get(name)
    if type(value) is not int or not lowest <= value <= _INT_MAX:
        raise ValueError(f"{name} is {value!r}, and no whole number from {lowest} on")
    return value


def _directory(values: dict[str, Any]) -> UUID:
    value = values.get("votedDirectoryId")
    try:
        return uuid_from_text(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError(f"votedDirectoryId is {value!r}, and no directory's id") from None


class ElectionFile:
    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{QUORUM_STATE}"

    def read(self) -> Election:
        """Read the election; the initial one without a file."""
        content = self._files.read_bytes(self._path)
        if content is None:
            return Election()
        try:
            return election_from_text(content.decode())
        except (ValueError, RecursionError) as problem:
            example = election_text(Election(epoch=_INT_MAX)).replace(str(_INT_MAX), "N")
            raise DamagedElection(
                f"{self._path} is damaged: {problem}. It says in which epoch this node has voted, and without it the node could do so twice. "
                f"Restore it from a copy; or write {example} into it, with an N above the leaderEpoch of all other voters"
            ) from None

    def write(self, election: Election) -> None:
        """Replace the file, in any thread; a power cut leaves either.

        OSError: the disk is full, or failed; the old file remains.
        """
        self._files.replace(self._path, election_text(election).encode())
