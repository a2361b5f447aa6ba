"""Value types of the agent's settings: how each is parsed, and which values are allowed."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Annotated, NamedTuple, TypeVar
from urllib.parse import urlsplit

from forewarn.agent.phases import Phase
from forewarn.client.endpoint import parse_endpoint
from forewarn.core.duration import parse_duration
from forewarn.core.event import EventType, Source
from forewarn.settings.types import NONE, SettingType

W = TypeVar("W", bound=StrEnum)

LONGEST_TEXT = 16_384

TEMPLATE_FIELDS = (
    "id",
    "type",
    "status",
    "source",
    "description",
    "not_before",
    "duration",
    "resources",
    "name",
    "phase",
    "attempt",
    "seconds_left",
    "leader",
)
"""The fields of a message template."""

_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,253}")
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}\.(service|socket|target|timer|mount|path|slice|scope)")
_SERVER = re.compile(r"[A-Za-z0-9._:-]{1,255}/[A-Za-z0-9._:-]{1,255}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_WEB_PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,200}")


class Address(NamedTuple):
    """A host, by name or address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ApprovalMode(StrEnum):
    """Which VM approves an event."""

    NEVER = "never"
    """This agent never approves: events start at their `not_before`."""
    LEADER = "leader"
    """The first affected VM approves for all of them when all are ready; the second one if the first does not."""
    EACH = "each"
    """Every VM approves for itself: correct only if the service waits for the approval of all VMs."""


class RecoverMode(StrEnum):
    """How often a recovery runs if the agent is killed during it."""

    AT_LEAST_ONCE = "at-least-once"
    """It runs again."""
    AT_MOST_ONCE = "at-most-once"
    """It does not run again; whether it succeeded is unknown."""


def parse_address(text: str) -> Address:
    """Parse `host:port`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) <= 65_535:
        raise ValueError(text)
    return Address(host, int(port))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value or len(value) > LONGEST_TEXT:
        raise ValueError
    return value


def _one_of(words: type[W]) -> Callable[[object], W]:
    by_name = {word.value.casefold(): word for word in words}
    return lambda value: by_name[_text(value).casefold()]


def _some_of(words: type[W]) -> Callable[[object], tuple[W, ...]]:
    one = _one_of(words)
    return lambda value: tuple(dict.fromkeys(one(part) for part in _parts(value)))


def _parts(value: object) -> Iterable[object]:
    parts = value if isinstance(value, list | tuple) else [part.strip() for part in _text(value).split(",")]
    if not parts:
        raise ValueError
    return parts


def _matching(pattern: re.Pattern[str]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not pattern.fullmatch(_text(value)):
            raise ValueError
        return _text(value)

    return parse


def _all_matching(pattern: re.Pattern[str]) -> Callable[[object], tuple[str, ...]]:
    one = _matching(pattern)
    return lambda value: tuple(dict.fromkeys(one(part) for part in _parts(value)))


def _up_to(longest: timedelta, least: timedelta = timedelta(0)) -> Callable[[object], timedelta]:
    def parse(value: object) -> timedelta:
        duration = parse_duration(_text(value))
        if not least <= duration <= longest:
            raise ValueError
        return duration

    return parse


def _between(least: int, most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        number = int(value) if isinstance(value, str) else value
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            raise ValueError
        return number

    return parse


def _path(value: object) -> Path:
    return value if isinstance(value, Path) else Path(_text(value)).expanduser()


def _endpoint(value: object) -> str:
    return str(parse_endpoint(_text(value)))


def _agents(value: object) -> tuple[tuple[str, Address], ...]:
    """Parse a table, or `name=host:port,…` from an environment variable."""
    if isinstance(value, Mapping):
        return tuple((_text(name), parse_address(_text(where))) for name, where in value.items())
    pairs = (part.partition("=") for part in _text(value).split(","))
    return tuple((_text(name.strip()), parse_address(where.strip())) for name, _, where in pairs)


def _url(value: object) -> str:
    url = _text(value)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or not url.isprintable():
        raise ValueError
    return url


def _handler_names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(dict.fromkeys(_text(part) for part in value))


def _template(value: object) -> str:
    template = Template(_text(value))
    if not template.is_valid() or not set(template.get_identifiers()) <= set(TEMPLATE_FIELDS):
        raise ValueError
    return template.template


def _socket_address(value: object) -> Path | Address:
    """Parse the path of a Unix socket, or `host:port`."""
    text = str(value) if isinstance(value, Path) else _text(value)
    return Path(text) if text.startswith("/") else parse_address(text)


def _or_none(parse: Callable[[object], object], nothing: object = None) -> Callable[[object], object]:
    return lambda value: nothing if value == NONE else parse(value)


def _words(words: type[StrEnum]) -> str:
    return ", ".join(f'"{word.value}"' for word in words)


DAY = timedelta(days=1)

EndpointOrNone = Annotated[
    str | None, SettingType(_or_none(_endpoint), f'a host, HOST:PORT or an http URL without a path, or "{NONE}"')
]
TextOrNone = Annotated[str | None, SettingType(_or_none(_text), f'a text, or "{NONE}"')]
Prefix = Annotated[str, SettingType(lambda value: value if value == "" else _text(value), "a text, possibly empty")]
Directory = Annotated[Path, SettingType(_path, "a path", is_path=True)]
Interval = Annotated[
    timedelta, SettingType(_up_to(timedelta(minutes=5), timedelta(seconds=0.1)), 'a duration from "0.1s" to "5m"')
]
UpToDay = Annotated[timedelta, SettingType(_up_to(DAY), 'a duration, at most "1d"')]
UpToDayOrNone = Annotated[
    timedelta | None, SettingType(_or_none(_up_to(DAY)), f'a duration, at most "1d", or "{NONE}"')
]
Tries = Annotated[int, SettingType(_between(0, 100), "an integer from 0 to 100")]
Importance = Annotated[int, SettingType(_between(0, 100), "an integer from 0 to 100")]
Approvers = Annotated[ApprovalMode, SettingType(_one_of(ApprovalMode), _words(ApprovalMode))]
Recovery = Annotated[RecoverMode, SettingType(_one_of(RecoverMode), _words(RecoverMode))]
Agents = Annotated[
    tuple[tuple[str, Address], ...],
    SettingType(_or_none(_agents, ()), 'a table such as { web_1 = "10.0.0.5:8160" }: the agents of other VMs, by name'),
]
Types = Annotated[tuple[EventType, ...], SettingType(_some_of(EventType), f"a list of {_words(EventType)}")]
Sources = Annotated[tuple[Source, ...], SettingType(_some_of(Source), f"a list of {_words(Source)}")]
Phases = Annotated[tuple[Phase, ...], SettingType(_some_of(Phase), f"a list of {_words(Phase)}")]
HandlerNames = Annotated[tuple[str, ...], SettingType(_handler_names, "a list of handler names")]
Units = Annotated[
    tuple[str, ...], SettingType(_all_matching(_UNIT), 'a list of units with their suffix, such as ["nginx.service"]')
]
Servers = Annotated[
    tuple[str, ...], SettingType(_all_matching(_SERVER), 'a list of BACKEND/SERVER, such as ["web/web_0"]')
]
SocketAddress = Annotated[
    Path | Address,
    SettingType(
        _socket_address, 'the absolute path of the runtime socket, such as "/run/haproxy/admin.sock", or HOST:PORT'
    ),
]
UrlOrNone = Annotated[str | None, SettingType(_or_none(_url), f'an http or https URL, or "{NONE}"')]
HeaderName = Annotated[str, SettingType(_matching(_HEADER), "the name of an HTTP header")]
Method = Annotated[
    str, SettingType(_matching(re.compile("GET|POST|PUT|PATCH|DELETE")), '"GET", "POST", "PUT", "PATCH" or "DELETE"')
]
TEMPLATE_HELP = (
    f"a text that may contain {', '.join(f'${name}' for name in TEMPLATE_FIELDS)}; write $$ for a dollar sign"
)
TemplateOrNone = Annotated[str | None, SettingType(_or_none(_template), f'{TEMPLATE_HELP}, or "{NONE}"')]
TemplateText = Annotated[str, SettingType(_template, TEMPLATE_HELP)]
WebPath = Annotated[str, SettingType(_matching(_WEB_PATH), 'a path such as "/serving"')]
