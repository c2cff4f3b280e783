"""Places: cities, distances, cells.

Here: pure functions over degrees (WGS 84) and H3 cells.
Not here: drivers and rides (`matching`).
"""

import math
from dataclasses import dataclass
from typing import Final

import h3

EARTH_RADIUS_MM: Final = 6_371_008_771.4
"""Mean radius (IUGG)."""
SEARCH_RESOLUTION: Final = 8
"""Cells of about half a kilometre an edge: what a driver crosses in a minute."""
SURGE_RESOLUTION: Final = 7
"""Cells of about 1.4 km an edge: a quarter of a city."""


class OffTheMap(ValueError):
    """A place that is in no city we serve; names the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class City:
    """Where rides are: a circle around a centre."""

    name: str
    lat: float
    lng: float
    radius_km: float


CITIES: Final = {
    city.name: city
    for city in (
        City(name="amsterdam", lat=52.3702, lng=4.8952, radius_km=15.0),
        City(name="berlin", lat=52.5200, lng=13.4050, radius_km=25.0),
        City(name="lisbon", lat=38.7223, lng=-9.1393, radius_km=15.0),
        City(name="tallinn", lat=59.4370, lng=24.7536, radius_km=12.0),
    )
}


def distance_mm(lat_a: float, lng_a: float, lat_b: float, lng_b: float) -> int:
    """Great-circle distance in whole millimetres (haversine)."""
    low, high = math.radians(lat_a), math.radians(lat_b)
    across = math.sin((high - low) / 2) ** 2
    along = math.cos(low) * math.cos(high) * math.sin(math.radians(lng_b - lng_a) / 2) ** 2
    return round(2 * EARTH_RADIUS_MM * math.asin(min(1.0, math.sqrt(across + along))))


def check(city: str, lat: float, lng: float) -> City:
    """The city, if the place is in it.

    Raises:
        OffTheMap: the city is not ours, the numbers are no place on earth, or the place is outside the city.
    """
    place = CITIES.get(city)
    if place is None:
        raise OffTheMap(f"city is {city!r}; rides are in {', '.join(sorted(CITIES))}")
    if not (math.isfinite(lat) and math.isfinite(lng) and abs(lat) <= 90 and abs(lng) <= 180):
        raise OffTheMap(f"lat {lat}, lng {lng} is no place on earth; give degrees")
    away_km = distance_mm(place.lat, place.lng, lat, lng) / 1e6
    if away_km > place.radius_km:
        raise OffTheMap(
            f"lat {lat}, lng {lng} is {away_km:.0f} km from the centre of {city}, whose map ends at {place.radius_km:.0f} km"
        )
    return place


def search_cell(lat: float, lng: float) -> str:
    """The cell that drivers are looked up by."""
    return str(h3.latlng_to_cell(lat, lng, SEARCH_RESOLUTION))


def surge_cell(lat: float, lng: float) -> str:
    """The cell that has a price."""
    return str(h3.latlng_to_cell(lat, lng, SURGE_RESOLUTION))


def ring(cell: str, steps: int) -> list[str]:
    """The cells that are so many steps from this one."""
    return list(h3.grid_ring(cell, steps))


def steps_between(cell: str, other: str) -> int:
    """How many cells apart two of the same city are."""
    return int(h3.grid_distance(cell, other))


def outline(cell: str) -> list[tuple[float, float]]:
    """The corners of a cell, (lat, lng), to a metre."""
    return [(round(lat, 5), round(lng, 5)) for lat, lng in h3.cell_to_boundary(cell)]
