"""How much an answer may hold, and whose large answer is made."""

import asyncio

from busway_bus.handlers.common.response_room import AnswerRoom, LargeAnswers


def test_what_is_behind_the_bound_is_not_told() -> None:
    """The first row is returned however large it is, and smaller ones fit beside it as long as there is room."""
    room = AnswerRoom(100)
    assert room.take(60)
    assert not room.take(60)
    assert room.take(40)
    assert not room.take(1)
    assert AnswerRoom(100).take(1_000)


async def test_hosts_take_turns_with_large_answers() -> None:
    """One at a time: the second host comes before the first one's second."""
    answers, order = LargeAnswers(1), []

    async def ask(host: str, name: str) -> None:
        await answers.begin(host)
        order.append(name)

    await ask("a", "a1")
    waiting = [asyncio.ensure_future(ask(host, host + name)) for host, name in (("a", "2"), ("a", "3"), ("b", "1"))]
    await asyncio.sleep(0)
    assert order == ["a1"]
    for _ in range(3):
        answers.end()
        await asyncio.sleep(0)
    assert order == ["a1", "a2", "b1", "a3"]
    await asyncio.gather(*waiting)


async def test_who_gives_up_waiting_leaves_the_turn_to_others() -> None:
    """Before it is its turn, and in the moment in which it is."""
    answers = LargeAnswers(1)
    await answers.begin("a")
    first, second, third = (asyncio.ensure_future(answers.begin("a")) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    answers.end()
    second.cancel()
    await asyncio.wait([second])
    await third
    answers.end()
    await answers.begin("a")
