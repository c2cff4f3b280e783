"""Which batches a reader of committed records sees, from logs and what brokers say of them."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from busway.consumer.isolation import take_aborted, visible
from busway.consumer.subscription import FetchPosition
from busway.types import TopicPartition
from busway_protocol.messages.fetch import AbortedTransaction
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder

PRODUCERS = 3


@dataclass(frozen=True, slots=True)
class Log:
    """Batches of one record, those that a reader may see, and the aborted transactions: producer, first and last offset."""

    batches: list[bytes]
    committed: list[int]
    aborted: list[tuple[int, int, int]]


def batch(offset: int, producer_id: int, *, control: bool | None = None, transactional: bool = True) -> bytes:
    """A batch at an offset; `control` makes it a marker, True for a commit."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=-1 if control is not None else 0,
        transactional=transactional,
        control=control is not None,
    )
    key = None if control is None else bytes((0, 0, 0, int(control)))
    builder.append(1, key, b"v")
    return builder.build(offset)


def log_of(steps: list[tuple[int, str]]) -> Log:
    """A log from steps: a producer writes, commits or aborts; the last transactions are committed."""
    batches: list[bytes] = []
    open_at: dict[int, list[int]] = {}
    committed: list[int] = []
    aborted: list[tuple[int, int, int]] = []
    ends = [(producer_id, "commit") for producer_id in range(PRODUCERS)]
    for producer_id, step in [*steps, *ends]:
        offset = len(batches)
        if step == "write":
            batches.append(batch(offset, producer_id))
            open_at.setdefault(producer_id, []).append(offset)
        elif step == "plain":
            batches.append(batch(offset, -1, transactional=False))
            committed.append(offset)
        elif producer_id in open_at:
            batches.append(batch(offset, producer_id, control=step == "commit"))
            offsets = open_at.pop(producer_id)
            if step == "commit":
                committed += offsets
            else:
                aborted.append((producer_id, offsets[0], offset))
    return Log(batches, sorted(committed), aborted)


def read(log: Log, start: int, cuts: set[int], *, ahead: bool) -> list[int]:
    """Offsets that are seen from `start` on, when each answer of the broker ends at a cut and names the transactions that reach into it.

    Args:
        ahead: whether the next answer is taken in before this one's batches are decoded, as a consumer does.
    """
    state = FetchPosition(TopicPartition("t", 0), "none", position=start, fetch_position=start)
    ends = sorted({cut for cut in cuts if start < cut < len(log.batches)} | {len(log.batches)})
    answers = list(zip([start, *ends[:-1]], ends, strict=True))
    waiting: list[int] = []
    seen: list[int] = []

    def decode() -> None:
        for offset in waiting:
            data = memoryview(log.batches[offset])
            ((header, batch),) = iter_batches(data)
            if visible(state, header, batch, read_committed=True):
                seen.append(offset)
        waiting.clear()

    for first, end in answers:
        named = [
            AbortedTransaction(producer_id=producer_id, first_offset=begun)
            for producer_id, begun, last in log.aborted
            if begun < end and last >= first
        ]
        take_aborted(state, named)
        if not ahead:
            waiting += range(first, end)
            decode()
        else:
            fetched = list(range(first, end))
            decode()
            waiting += fetched
    decode()
    return seen


STEPS = st.lists(
    st.tuples(st.integers(0, PRODUCERS - 1), st.sampled_from(["write", "write", "commit", "abort", "plain"])),
    min_size=1,
    max_size=40,
)


@given(STEPS, st.sets(st.integers(1, 40)), st.integers(0, 20), st.booleans())
def test_exactly_the_committed_records_are_seen(
    steps: list[tuple[int, str]], cuts: set[int], start: int, ahead: bool
) -> None:
    """Wherever reading begins and answers end, and whether or not they are taken in ahead."""
    log = log_of(steps)
    start = min(start, len(log.batches))
    if start == len(log.batches):
        return
    assert read(log, start, cuts, ahead=ahead) == [offset for offset in log.committed if offset >= start]


def test_an_answer_that_begins_with_a_marker_hides_nothing_behind_it() -> None:
    """The broker names the transaction that the marker ends; the same producer's next one is another."""
    log = log_of([(0, "write"), (0, "abort"), (0, "write"), (0, "commit")])
    assert read(log, 0, {1}, ahead=False) == [2]
    assert read(log, 1, set(), ahead=False) == [2]
