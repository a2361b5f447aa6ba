"""Request targets taken apart: origin form and absolute form. Nothing that a guest sends here raises."""

from typing import NamedTuple
from urllib.parse import unquote, unquote_plus

SCHEME = "http://"


class Target(NamedTuple):
    """The path in its decoded segments, and the query's decoded pairs with names in lower case."""

    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...]

    def values(self, name: str) -> tuple[str, ...]:
        """Return every value that the query gives to a name."""
        return tuple(value for key, value in self.query if key == name)


NOWHERE = Target((), ())


def read_target(target: str) -> Target:
    """Take a target apart.

    Segments are decoded after they are parted, so that an encoded slash stays within its segment; no `.` or `..`
    is followed. One trailing slash counts for nothing.
    """
    path, _, query = _without_origin(target).partition("?")
    if not path.startswith("/"):
        return NOWHERE
    segments = path.removesuffix("/").split("/")[1:]
    return Target(tuple(unquote(segment) for segment in segments), tuple(_pairs(query)))


def _without_origin(target: str) -> str:
    """Cut off the scheme and host that clients send to what they believe is a proxy; which host does not matter."""
    if target[: len(SCHEME)].lower() != SCHEME:
        return target
    rest = target[len(SCHEME) :]
    authority = rest.partition("?")[0].partition("/")[0]
    return rest.removeprefix(authority)


def _pairs(query: str) -> list[tuple[str, str]]:
    parted = (pair.partition("=") for pair in query.split("&") if pair)
    return [(unquote_plus(name).lower(), unquote_plus(value)) for name, _, value in parted]
