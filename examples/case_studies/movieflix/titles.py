"""Titles of movies by id.

Here: films of the silent era, as the ratings name movies by number alone. Which number has which title is this project's choice: the
ratings are not of these films.
Not here: ratings (`ratings`).
"""

from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).parent / "data" / "titles.txt"


def titles() -> list[str]:
    """Return the titles; that of movie 0 first."""
    return FILE.read_text(encoding="utf-8").splitlines()


def title(movie_id: int) -> str:
    """Return a movie's title, or its number where it has none."""
    known = titles()
    return known[movie_id] if movie_id < len(known) else f"movie {movie_id}"
