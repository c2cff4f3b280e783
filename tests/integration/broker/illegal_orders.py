"""Orders in which calls of groups and transactions are made: any, drawn so that there is something to be wrong about.

Here: the strategies.
Not here: the calls (`illegal_transaction_calls`, `illegal_group_calls`).
"""

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st
from tests.integration.broker.illegal_callers import Member, Producer
from tests.integration.broker.illegal_group_calls import (
    Commit,
    ConsumerBeat,
    Delete,
    Forget,
    Heartbeat,
    Join,
    Leave,
    Sync,
)
from tests.integration.broker.illegal_transaction_calls import (
    AddOffsets,
    AddPartitions,
    End,
    Init,
    Produce,
    TimeOut,
    TxnCommit,
)
from tests.integration.broker.illegal_world import MOST_MEMBERS, TOPIC


def _mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * (4 * len(others)) + list(others))


SHIFTS: Final = _mostly(0, -1, 1)
SLOTS: Final = st.sampled_from((0, 1))
PARTITIONS: Final = _mostly(0, 1, 7)
TOPICS: Final = _mostly((TOPIC,), ("nowhere",), ("none",), (TOPIC, "nowhere"), ("none", TOPIC))
INSTANCES: Final = st.sampled_from(("right",) * 12 + ("own", "own", "no one", "other", "strange", "empty"))
PRODUCERS: Final = st.builds(Producer, st.sampled_from((0, 0, 0, 0, 1, 1, 2, 2)), SHIFTS, _mostly(False, True))
CLASSIC_ALONE: Final = st.builds(Member, st.just("classic"), SLOTS, SHIFTS, INSTANCES)
MODERN_ALONE: Final = st.builds(Member, st.just("modern"), SLOTS, SHIFTS, INSTANCES)
MEMBERS: Final = st.one_of(
    CLASSIC_ALONE,
    MODERN_ALONE,
    st.builds(Member, st.sampled_from(("none", "unknown", "former")), SLOTS, SHIFTS, INSTANCES),
)
CLASSIC: Final = st.one_of(CLASSIC_ALONE, MEMBERS)
MODERN: Final = st.one_of(MODERN_ALONE, MEMBERS)
COMMITS: Final[Sequence[st.SearchStrategy[Any]]] = (
    st.builds(TxnCommit, PRODUCERS, CLASSIC, PARTITIONS, st.sampled_from((2, 3, 4, 5))),
    st.builds(Commit, CLASSIC, TOPICS, PARTITIONS, st.sampled_from((2, 6, 7, 8, 9, 10))),
)
TRANSACTIONS: Final[Sequence[st.SearchStrategy[Any]]] = (
    st.builds(Init, PRODUCERS, _mostly(True, False), st.sampled_from((1, 3, 4, 5))),
    st.builds(AddPartitions, PRODUCERS, PARTITIONS, st.booleans(), st.sampled_from((2, 3, 3, 4, 5))),
    st.builds(AddOffsets, PRODUCERS, st.sampled_from((3, 4))),
    COMMITS[0],
    st.builds(
        Produce,
        PRODUCERS,
        TOPICS,
        PARTITIONS,
        _mostly(0, -1, 3),
        _mostly(True, False),
        _mostly(True, False),
        st.sampled_from((10, 11, 12, 13)),
    ),
    st.builds(End, PRODUCERS, st.booleans(), st.sampled_from((3, 4, 5))),
)
TIMED_OUT: Final = st.builds(TimeOut, st.sampled_from((0, 1, 2)), st.sampled_from((0, 1)))
GROUPS: Final[Sequence[st.SearchStrategy[Any]]] = (
    st.builds(
        Join,
        st.sampled_from(range(MOST_MEMBERS)),
        _mostly("consumer", "other", ""),
        _mostly(1, 2, 0),
        st.sampled_from((2, 3, 5, 9)),
        st.sampled_from(("no one",) * 4 + ("own",) * 4 + ("other", "empty")),
        st.sampled_from((False, False, True)),
    ),
    st.builds(Sync, CLASSIC, _mostly("consumer", "other"), _mostly("range", "other"), st.sampled_from((2, 4, 5))),
    st.builds(Heartbeat, CLASSIC, st.sampled_from((2, 4))),
    st.builds(
        Leave,
        st.one_of(st.tuples(CLASSIC), st.tuples(CLASSIC, MEMBERS)),
        _mostly(False, True),
        st.sampled_from((2, 3, 5)),
    ),
    COMMITS[1],
    st.builds(Forget, _mostly(TOPIC, "nowhere")),
    st.just(Delete()),
    st.builds(
        ConsumerBeat,
        MODERN,
        st.sampled_from((None, None, None, 0, 0, 0, -1, -2, -3)),
        _mostly(True, False),
        st.sampled_from(("names", "names", "names", "pattern", "both", "gone", "bad")),
        st.sampled_from((0, 1, 1)),
    ),
)
"""Every group and transaction call."""
BEGUN: Final = [Init(Producer(0), fresh=True, version=5)]
BOTH_BEGUN: Final = [*BEGUN, Init(Producer(2), fresh=True, version=5)]
JOINED: Final = [Join(0, "consumer", 1, 9), Join(0, "consumer", 1, 9)]
STATIC: Final = [Join(0, "consumer", 1, 9, "own"), Sync(Member("classic"), "consumer", "range", 5)]
BEATEN: Final = [ConsumerBeat(Member("modern"), 0, whole=True, subscribes="names", version=1)]
MATCHING: Final = [ConsumerBeat(Member("modern", 0, 0, "own"), 0, whole=True, subscribes="pattern", version=1)]
REPLACED: Final = [
    *BEGUN,
    *STATIC,
    Join(0, "consumer", 1, 9, "own", anew=True),
    *(
        TxnCommit(Producer(0), Member(kind, 0, 0, instance), 0, 5)
        for kind, instance in (("former", "own"), ("classic", "strange"), ("classic", "own"))
    ),
]
"""A static member that another has taken the place of commits in a transaction."""
MISTYPED: Final = [
    *BEATEN,
    *(
        ConsumerBeat(Member("modern"), epoch, whole=True, subscribes=subscribes, version=1)
        for epoch, subscribes in ((None, "bad"), (0, "bad"), (None, "both"), (None, "gone"))
    ),
]
"""A member's pattern is none, then one that matches, then it has none."""


def _orders(*first: list[Any], calls: Sequence[st.SearchStrategy[Any]]) -> st.SearchStrategy[list[Any]]:
    """So that calls find something to be wrong about, most orders begin with a right one."""
    return st.builds(list.__add__, st.sampled_from(first), st.lists(st.one_of(*calls), min_size=10, max_size=40))


TRANSACTION_ORDERS: Final = st.one_of(
    _orders(BEGUN, BOTH_BEGUN, BOTH_BEGUN, calls=TRANSACTIONS),
    _orders(BOTH_BEGUN, [], calls=(*TRANSACTIONS, *TRANSACTIONS, TIMED_OUT)),
    _orders(BEGUN + JOINED, BOTH_BEGUN + STATIC, BOTH_BEGUN + BEATEN, calls=(*TRANSACTIONS, *GROUPS)),
)
GROUP_ORDERS: Final = st.one_of(
    _orders(JOINED, STATIC, STATIC, BEATEN, MATCHING, [], calls=GROUPS),
    _orders(BEGUN + STATIC, BEGUN + JOINED, calls=(*COMMITS, *COMMITS, *GROUPS)),
)
