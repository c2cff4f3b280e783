"""Which leader epoch began at which offset, in Kafka's checkpoint format (KIP-101).

What lives here: the cache over text. What does not: the file.
"""


class LeaderEpochs:
    """Ascending pairs of (leader epoch, its first offset)."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    @classmethod
    def from_text(cls, text: str) -> "LeaderEpochs":
        """From the content of a `leader-epoch-checkpoint`; what cannot be read is left out and learnt again."""
        epochs = cls()
        for line in text.splitlines()[2:]:
            epoch, _, start = line.partition(" ")
            if epoch.isdigit() and start.isdigit():
                epochs.assign(int(epoch), int(start))
        return epochs

    def text(self) -> str:
        """The content of the checkpoint: version, count, one pair a line."""
        return "".join([f"0\n{len(self.entries)}\n", *(f"{epoch} {start}\n" for epoch, start in self.entries)])

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start: int) -> bool:
        """Note that `epoch` begins at `start`; answers whether that is news."""
        if epoch <= self.latest:
            return False
        while self.entries and self.entries[-1][1] >= start:
            self.entries.pop()
        self.entries.append((epoch, start))
        return True

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and the offset where it ended; (-1, -1) when it is not known."""
        if epoch < 0 or not self.entries or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end
        latest = -1
        for begun, start in self.entries:
            if begun > epoch:
                return (latest, start) if latest >= 0 else (epoch, start)
            latest = begun
        return latest, log_end

    def truncate(self, end: int) -> None:
        """Forget epochs that began at or behind `end`."""
        self.entries = [entry for entry in self.entries if entry[1] < end]
