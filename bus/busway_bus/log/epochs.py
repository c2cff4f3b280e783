"""Start offsets of leader epochs, in Kafka's checkpoint format (KIP-101).

Here: the cache and its text.
Not here: the file.
"""


class LeaderEpochs:
    """Ascending pairs of (leader epoch, its first offset)."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    @classmethod
    def from_text(cls, text: str) -> "LeaderEpochs":
        """Parse a `leader-epoch-checkpoint`. Recovery restores invalid lines."""
        epochs = cls()
        for line in text.splitlines()[2:]:
            epoch, _, start = line.partition(" ")
            if epoch.isdigit() and start.isdigit():
                epochs.assign(int(epoch), int(start))
        return epochs

    def text(self) -> str:
        return "".join([f"0\n{len(self.entries)}\n", *(f"{epoch} {start}\n" for epoch, start in self.entries)])

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start: int) -> bool:
        """Add an epoch that has a record at `start`; return whether it is newer than the latest.

        An older one shows that a newer one did not begin at `start` or later, as in Kafka.
        """
        if epoch <= self.latest:
            while self.entries and self.entries[-1][0] > epoch and self.entries[-1][1] >= start:
                self.entries.pop()
            if epoch <= self.latest:
                return False
        while self.entries and self.entries[-1][1] >= start:
            self.entries.pop()
        self.entries.append((epoch, start))
        return True

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the largest epoch up to `epoch` and its end, else -1s."""
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
        self.entries = [entry for entry in self.entries if entry[1] < end]
