"""Regular expressions of clients, matched in a time that is linear in the text.

What lives here: RE2's syntax, as Kafka's brokers take it (KIP-848, KIP-1152): a parser, and a machine that follows all ways through a
pattern at once, so that no pattern takes a broker's time as a backtracking engine's would. What does not: which API uses it. A pattern
has to match the whole text. Not there: Unicode classes (`\\p`), word boundaries and flags other than `i` and `s`; they are refused.
"""

from collections.abc import Callable, Generator
from typing import Final, NamedTuple, TypeAlias

from busway_bus.kernel.limits import (
    PATTERN_CHARS_MAX,
    PATTERN_DEPTH_MAX,
    PATTERN_REPEAT_MAX,
    PATTERN_STATES_MAX,
)

_WORK_AT_ONCE: Final = 2_000
"""States looked at between two stops."""

Test: TypeAlias = Callable[[str], bool]


class BadPattern(ValueError):
    """A pattern that cannot be read; the text says where."""


class _State(NamedTuple):
    """One place in a pattern: what the next character has to pass, or where it goes on without one.

    Attributes:
        test: of the next character; None where none is taken.
        at_start, at_end: only at the beginning, or the end, of the text.
        following: the states after it.
    """

    test: Test | None
    at_start: bool
    at_end: bool
    following: list[int]


class _Piece(NamedTuple):
    """A part of a pattern: its first state, and its last, which takes no character."""

    first: int
    last: int


class Pattern:
    """A compiled regular expression.

    Raises:
        BadPattern: it cannot be read, or is too large.
    """

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARS_MAX:
            raise BadPattern(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
        parser = _Parser(text)
        piece = parser.whole()
        self._states, self._first, self._last = parser.states, piece.first, piece.last

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` is matched, at once: for texts that are short."""
        steps = self.steps(text)
        while True:
            try:
                next(steps)
            except StopIteration as over:
                return bool(over.value)

    def steps(self, text: str) -> Generator[None, None, bool]:
        """Whether the whole of `text` is matched, with a stop after each bounded part of the work."""
        alive = self._closure([self._first], at_start=True, at_end=not text)
        work = 0
        for place, character in enumerate(text, 1):
            following = [
                after
                for number in alive
                if (state := self._states[number]).test is not None and state.test(character)
                for after in state.following
            ]
            if not following:
                return False
            work += len(alive) + len(following)
            alive = self._closure(following, at_start=False, at_end=place == len(text))
            if work > _WORK_AT_ONCE:
                work = 0
                yield
        return self._last in alive

    def _closure(self, numbers: list[int], *, at_start: bool, at_end: bool) -> set[int]:
        """These states and those that they go on to without a character."""
        reached: set[int] = set()
        while numbers:
            number = numbers.pop()
            if number in reached:
                continue
            state = self._states[number]
            if (state.at_start and not at_start) or (state.at_end and not at_end):
                continue
            reached.add(number)
            if state.test is None:
                numbers += state.following
        return reached


_CLASSES: Final[dict[str, Test]] = {
    "d": lambda char: "0" <= char <= "9",
    "D": lambda char: not "0" <= char <= "9",
    "s": lambda char: char in "\t\n\f\r ",
    "S": lambda char: char not in "\t\n\f\r ",
    "w": lambda char: char == "_" or (char.isascii() and char.isalnum()),
    "W": lambda char: not (char == "_" or (char.isascii() and char.isalnum())),
}
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


def _unquoted(text: str) -> str:
    """The pattern with each character between `\\Q` and `\\E` escaped for itself, so that what is repeated behind is the last of them."""
    parts, at = [], 0
    while (found := text.find("\\", at)) >= 0:
        if text[found + 1 : found + 2] != "Q":
            parts.append(text[at : found + 2])
            at = found + 2
            continue
        end = text.find("\\E", found)
        quoted = text[found + 2 :] if end < 0 else text[found + 2 : end]
        parts += [text[at:found], *(char if char.isalnum() else f"\\{char}" for char in quoted)]
        at = len(text) if end < 0 else end + 2
    return "".join([*parts, text[at:]])


class _Parser:
    """Reads a pattern from left to right and builds its states."""

    def __init__(self, text: str) -> None:
        self._text = _unquoted(text)
        self._at = 0
        self._depth = 0
        self._ignores_case = False
        self._dot_takes_lines = False
        self.states: list[_State] = []

    def whole(self) -> _Piece:
        piece = self._either()
        if self._at < len(self._text):
            raise self._bad("unexpected )")
        return piece

    def _bad(self, problem: str) -> BadPattern:
        return BadPattern(f"{problem} at character {self._at} of the pattern")

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise self._bad("the pattern ends too early")
        self._at += 1
        return char

    def _state(self, test: Test | None = None, *, at_start: bool = False, at_end: bool = False) -> int:
        if len(self.states) >= PATTERN_STATES_MAX:
            raise BadPattern("the pattern is too large")
        self.states.append(_State(test, at_start, at_end, []))
        return len(self.states) - 1

    def _join(self, before: int, *after: int) -> None:
        self.states[before].following.extend(after)

    def _empty(self) -> _Piece:
        number = self._state()
        return _Piece(number, number)

    def _one(self, test: Test | None = None, *, at_start: bool = False, at_end: bool = False) -> _Piece:
        first, last = self._state(test, at_start=at_start, at_end=at_end), self._state()
        self._join(first, last)
        return _Piece(first, last)

    def _either(self) -> _Piece:
        """Alternatives between bars."""
        ways = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            ways.append(self._sequence())
        if len(ways) == 1:
            return ways[0]
        first, last = self._state(), self._state()
        for way in ways:
            self._join(first, way.first)
            self._join(way.last, last)
        return _Piece(first, last)

    def _sequence(self) -> _Piece:
        piece = self._empty()
        first, last = piece
        while self._peek() not in {"", "|", ")"}:
            piece = self._repeated()
            self._join(last, piece.first)
            last = piece.last
        return _Piece(first, last)

    def _repeated(self) -> _Piece:
        """An item and how often it may come. Which of several ways is taken makes no difference here, so lazy ones are as others."""
        begun, flags = self._at, (self._ignores_case, self._dot_takes_lines)
        piece = self._item()
        times = self._times()
        if times is None:
            return piece
        lowest, highest = times
        parts = [piece]
        after = self._at
        for _ in range(max(lowest, highest or 1) - 1):
            self._at, (self._ignores_case, self._dot_takes_lines) = begun, flags
            parts.append(self._item())
        self._at = after
        return self._chain(parts, lowest, highest)

    def _chain(self, parts: list[_Piece], lowest: int, highest: int | None) -> _Piece:
        """Copies one after the other, of which those behind the lowest number may be left out."""
        if highest == 0:
            return self._empty()
        first, last = self._state(), self._state()
        end = first
        for number, part in enumerate(parts):
            if number >= lowest:
                self._join(end, last)
            self._join(end, part.first)
            end = part.last
        self._join(end, last)
        if highest is None:
            self._join(end, parts[-1].first)
        return _Piece(first, last)

    def _times(self) -> tuple[int, int | None] | None:
        """How often the item before may come, None where nothing is said: (lowest, highest or None)."""
        char = self._peek()
        known = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if char in known and char:
            self._at += 1
            times: tuple[int, int | None] = known[char]
        elif char == "{" and (bounds := self._bounds()) is not None:
            times = bounds
        else:
            return None
        if self._peek() == "?":
            self._at += 1
        if self._peek() in {"*", "+"} or (self._peek() == "?"):
            raise self._bad("nothing to repeat")
        return times

    def _bounds(self) -> tuple[int, int | None] | None:
        """`{2}`, `{2,}` or `{2,3}`; None where the brace stands for itself."""
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            return None
        if len(low) > 4 or len(high) > 4:
            raise self._bad(f"more than {PATTERN_REPEAT_MAX} repetitions")
        lowest = int(low)
        highest = int(high) if high else (None if comma else lowest)
        if lowest > PATTERN_REPEAT_MAX or (highest is not None and not lowest <= highest <= PATTERN_REPEAT_MAX):
            raise self._bad(f"repetitions have to rise and be at most {PATTERN_REPEAT_MAX}")
        self._at = end + 1
        return lowest, highest

    def _item(self) -> _Piece:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return self._one(self._set())
        if char == ".":
            return self._one((lambda char: True) if self._dot_takes_lines else (lambda char: char != "\n"))
        if char == "^":
            return self._one(at_start=True)
        if char == "$":
            return self._one(at_end=True)
        if char in {"*", "+", "?"}:
            raise self._bad("nothing to repeat")
        if char == "\\":
            return self._escaped()
        return self._one(self._literal(char))

    def _group(self) -> _Piece:
        self._depth += 1
        if self._depth > PATTERN_DEPTH_MAX:
            raise self._bad("too many parentheses in each other")
        flags = self._ignores_case, self._dot_takes_lines
        if self._peek() == "?" and not self._head():
            self._depth -= 1
            return self._empty()  # `(?i)`: from here to the end of what it stands in
        piece = self._either()
        if self._peek() != ")":
            raise self._bad("missing )")
        self._at += 1
        self._depth -= 1
        self._ignores_case, self._dot_takes_lines = flags
        return piece

    def _head(self) -> bool:
        """What stands behind `(?`; whether the group has a body."""
        self._at += 1
        if self._peek() in {"P", "<"}:
            if self._take() == "P" and self._take() != "<":
                raise self._bad("only groups with names may begin so")
            end = self._text.find(">", self._at)
            if end < 0 or not self._text[self._at : end].isidentifier():
                raise self._bad("a group's name is missing or wrong")
            self._at = end + 1
            return True
        on = True
        while (char := self._take()) not in {":", ")"}:
            if char == "-":
                on = False
            elif char == "i":
                self._ignores_case = on
            elif char == "s":
                self._dot_takes_lines = on
            else:
                raise self._bad(f"(?{char} is not known")
        return char == ":"

    def _literal(self, wanted: str) -> Test:
        if self._ignores_case:
            folded = wanted.casefold()
            return lambda char: char.casefold() == folded
        return lambda char: char == wanted

    def _escaped(self) -> _Piece:
        char = self._peek()
        if char in _CLASSES:
            self._at += 1
            return self._one(_CLASSES[char])
        if char in {"A", "z"}:
            self._at += 1
            return self._one(at_start=char == "A", at_end=char == "z")
        return self._one(self._literal(self._character()))

    def _character(self) -> str:
        """The character that an escape stands for, behind its backslash."""
        char = self._take()
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "x":
            digits = self._text[self._at : self._at + 2]
            if self._peek() == "{":
                digits = self._text[self._at + 1 : max(self._text.find("}", self._at), 0)]
                self._at += 2
            self._at += len(digits)
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise self._bad("not a character's number") from None
        if char.isascii() and char.isalnum():
            raise self._bad(f"\\{char} is not known")
        return char

    def _set(self) -> Test:
        """A class in brackets."""
        negated = self._peek() == "^"
        self._at += negated
        tests: list[Test] = []
        begun = self._at
        while (char := self._take()) != "]" or self._at == begun + 1:
            if char == "[" and self._peek() == ":":
                tests.append(self._named())
                continue
            if char == "\\":
                if self._peek() in _CLASSES:
                    tests.append(_CLASSES[self._take()])
                    continue
                char = self._character()
            tests.append(self._range(char))
        return (
            (lambda char: not any(test(char) for test in tests))
            if negated
            else (lambda char: any(test(char) for test in tests))
        )

    def _range(self, low: str) -> Test:
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in {"]", ""}:
            return self._literal(low)
        self._at += 1
        high = self._take()
        if high == "\\":
            high = self._character()
        if high < low:
            raise self._bad("a range has to rise")
        if not self._ignores_case:
            return lambda char: low <= char <= high
        return lambda char: any(low <= form <= high for form in {char, char.lower(), char.upper()})

    def _named(self) -> Test:
        end = self._text.find(":]", self._at)
        name = self._text[self._at + 1 : end] if end > 0 else ""
        tests: dict[str, Test] = {
            "alpha": str.isalpha,
            "alnum": str.isalnum,
            "digit": str.isdigit,
            "lower": str.islower,
            "upper": str.isupper,
            "space": str.isspace,
        }
        if name not in tests:
            raise self._bad("a class of this name is not known")
        self._at = end + 2
        test = tests[name]
        return lambda char: char.isascii() and test(char)
