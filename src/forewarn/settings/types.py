"""Types of settings: how each value is parsed, and the description of what is allowed."""

import logging
import re
import shlex
from collections.abc import Callable, Iterable
from datetime import timedelta
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from forewarn.core.duration import format_duration, parse_duration
from forewarn.core.limits import MAX_SPEED
from forewarn.core.text import check_name

VARIABLE_PREFIX = "FOREWARN_"
"""The prefix of all environment variables."""

HOST_NAME = re.compile(r"\*|(\*\.)?[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")
"""A host name, a pattern for all names below one, or any name."""

NONE = "none"
"""The value that switches a setting off."""

GUEST_PORT = 8180
"""The port of addresses for guests that name none."""

DEMONSTRATION: Final = "demonstration"
"""The built-in fleet."""


class PlatformName(StrEnum):
    """Which platform carries out maintenance."""

    SIMULATED = "simulated"
    COMMAND = "command"


class StoreName(StrEnum):
    """Where a service keeps its records and its journal."""

    SQLITE = "sqlite"
    NATS = "nats"


class RoleName(StrEnum):
    """What a process of the service does."""

    SINGLE = "single"
    CONTROL = "control"
    HOST = "host"


class LogFormat(StrEnum):
    """The format of the log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level as a number of `logging`."""
        return logging.getLevelNamesMapping()[self.value.upper()]


class ListenAddress(msgspec.Struct, frozen=True):
    """An address and a port to listen on; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach it."""
        return ip_address(self.host).is_loopback


def local_address(host: str, port: int) -> ListenAddress:
    """Return where programs on this machine reach a listener; one on all addresses is on the loopback address too."""
    if ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return ListenAddress(host, port)


class GuestInterface(msgspec.Struct, frozen=True):
    """An interface that guests are connected to; `network` None is the network of the setting `network`."""

    interface: str
    network: str | None = None

    def __str__(self) -> str:
        return self.interface if self.network is None else f"{self.interface}={self.network}"


class SettingType(NamedTuple):
    """The type of a setting: parses a text from flags and variables, or a value of TOML."""

    parse: Callable[[object], object]
    allowed: str
    is_path: bool = False
    """Whether a text in a file is a path relative to that file."""
    keywords: tuple[str, ...] = (NONE,)
    """Texts that are not paths."""


def format_value(value: object) -> str | int | float | bool | list[str]:
    """Format a value as in a settings file."""
    match value:
        case None | ():
            return NONE
        case bool() | int() | float():
            return value
        case timedelta():
            return format_duration(value)
        case tuple():
            return [str(part) for part in value]
        case _:
            return str(value)


def parse_text(value: object) -> str:
    """Return a text that is not empty, or raise ValueError."""
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _name(value: object) -> str:
    check_name(parse_text(value), "name")
    return parse_text(value)


def _path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if "\0" in parse_text(value):
        raise ValueError
    try:
        return Path(parse_text(value)).expanduser()
    except RuntimeError as error:  # the user does not exist
        raise ValueError from error


def resolve_path(directory: Path, text: str) -> Path | str:
    """Return the path that a text in a file of this directory names; `~` paths are left unchanged."""
    return text if text.startswith("~") or "\0" in text else directory / text


def _fleet(value: object) -> Path | str:
    return value if isinstance(value, str) and value == DEMONSTRATION else _path(value)


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[parse_text(value).lower()]


def _integer(value: object) -> int:
    if isinstance(value, bool):
        raise TypeError
    return value if isinstance(value, int) else int(parse_text(value))


def _integer_between(least: int, most: int | None = None) -> Callable[[object], int]:
    def parse(value: object) -> int:
        number = _integer(value)
        if number < least or (most is not None and number > most):
            raise ValueError
        return number

    return parse


def _speed(value: object) -> float:
    if isinstance(value, bool):
        raise TypeError
    number = float(value) if isinstance(value, int | float) else float(parse_text(value))
    if not 0 < number <= MAX_SPEED:
        raise ValueError
    return number


def _duration(value: object) -> timedelta:
    return parse_duration(parse_text(value))


def _duration_up_to(longest: timedelta) -> Callable[[object], timedelta]:
    def parse(value: object) -> timedelta:
        duration = _duration(value)
        if not timedelta(0) < duration <= longest:
            raise ValueError
        return duration

    return parse


def _endpoint(value: object) -> ListenAddress:
    if isinstance(value, ListenAddress):
        return value
    host, _, port = parse_text(value).rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    number = int(port)
    if not 0 <= number <= 65_535:
        raise ValueError
    return ListenAddress(str(ip_address(host)), number)


def _guest_endpoint(value: object) -> ListenAddress:
    """Parse an address for guests, whose port can be left out."""
    if isinstance(value, str) and re.fullmatch(r"[^:]+|\[[^]]*\]", value):
        value = f"{value}:{GUEST_PORT}"
    return _endpoint(value)


def _texts(value: object, split: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
    """Parse a list of texts, or one text that contains all of them, as in a variable."""
    parts = value if isinstance(value, list | tuple) else split(parse_text(value))
    return tuple(parse_text(part) for part in parts)


def _interfaces(value: object) -> tuple[GuestInterface, ...]:
    found = tuple(_interface(part.strip()) for part in _texts(value, lambda text: text.split(",")))
    if not found or len({each.interface for each in found}) < len(found):
        raise ValueError
    return found


def _interface(text: str) -> GuestInterface:
    interface, has_network, network = text.partition("=")
    return GuestInterface(_name(interface), _name(network) if has_network else None)


def _program(value: object) -> tuple[str, ...]:
    words = _texts(value, shlex.split)
    if not words or not Path(words[0]).is_absolute() or any("\0" in word for word in words):
        raise ValueError
    return words


def _url(value: object) -> str:
    text = parse_text(value)
    parts = urlsplit(text)
    is_complete = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    if not is_complete or not text.isprintable() or " " in text:
        raise ValueError
    return text


def _urls(value: object) -> tuple[str, ...]:
    found = tuple(_url(part) for part in _texts(value, str.split))
    if not found or len(set(found)) < len(found):
        raise ValueError
    return found


def _host_names(value: object) -> tuple[str, ...]:
    names = tuple(part.strip() for part in _texts(value, lambda text: text.split(",")))
    if not names or not all(map(HOST_NAME.fullmatch, names)):
        raise ValueError
    return names


def _or_none(parse: Callable[[object], object], nothing: object = None) -> Callable[[object], object]:
    return lambda value: nothing if value == NONE else parse(value)


Flag = Annotated[bool, SettingType(_flag, "true or false")]
Name = Annotated[str, SettingType(_name, "a name of letters, digits, '.', '_' and '-'")]
Interfaces = Annotated[
    tuple[GuestInterface, ...],
    SettingType(
        _or_none(_interfaces, ()),
        f'a network interface such as "br0", several with their networks such as "br0=blue,br1=green", or "{NONE}"',
    ),
]
PathOrNone = Annotated[Path | None, SettingType(_or_none(_path), f'a path, or "{NONE}"', is_path=True)]
FleetSource = Annotated[
    Path | str | None,
    SettingType(
        _or_none(_fleet),
        f'the path of a fleet file, "{DEMONSTRATION}" or "{NONE}"',
        is_path=True,
        keywords=(NONE, DEMONSTRATION),
    ),
]
Count = Annotated[int, SettingType(_integer_between(1), "an integer, at least 1")]
CountOrNone = Annotated[int | None, SettingType(_or_none(_integer_between(1)), f'an integer, at least 1, or "{NONE}"')]
Retries = Annotated[int, SettingType(_integer_between(0, 100), "an integer from 0 to 100")]
AnyStatus = Annotated[int, SettingType(_integer_between(100, 599), "an HTTP status from 100 to 599")]
UrlOrNone = Annotated[
    str | None, SettingType(_or_none(_url), f'a URL such as "https://monitor.example/health", or "{NONE}"')
]
Urls = Annotated[
    tuple[str, ...],
    SettingType(_or_none(_urls, ()), f'URLs such as ["https://chat.example/hooks/maintenance"], or "{NONE}"'),
]
HostNames = Annotated[
    tuple[str, ...],
    SettingType(
        _or_none(_host_names, ()),
        f'host names without a port such as ["forewarn.example", "*.ops.example"], ["*"] for any, or "{NONE}"',
    ),
]
ErrorStatus = Annotated[int, SettingType(_integer_between(400, 499), "an HTTP status from 400 to 499")]
Speed = Annotated[float, SettingType(_speed, f"a number above 0, at most {MAX_SPEED}")]
Listen = Annotated[
    ListenAddress, SettingType(_endpoint, "HOST:PORT with an IP address as host, such as 127.0.0.1:8170")
]
ListenOrNone = Annotated[
    ListenAddress | None,
    SettingType(_or_none(_endpoint), f'HOST:PORT with an IP address as host, such as 127.0.0.1:8180, or "{NONE}"'),
]
GuestListenOrNone = Annotated[
    ListenAddress | None,
    SettingType(
        _or_none(_guest_endpoint),
        f'HOST or HOST:PORT with an IP address as host, such as 127.0.0.1:8180, or "{NONE}"',
    ),
]
Duration = Annotated[timedelta, SettingType(_duration, 'a duration such as "90s", "15m" or "1h30m"')]
DurationOrNone = Annotated[
    timedelta | None, SettingType(_or_none(_duration), f'a duration such as "15m" or "24h", or "{NONE}"')
]
DurationWithinDay = Annotated[
    timedelta, SettingType(_duration_up_to(timedelta(days=1)), 'a duration above 0s, at most "1d"')
]
PlatformSetting = Annotated[
    PlatformName,
    SettingType(
        lambda value: PlatformName(parse_text(value)),
        '"command" (your own program carries out maintenance) or "simulated" (nothing happens to any VM)',
    ),
]
RoleSetting = Annotated[
    RoleName,
    SettingType(
        lambda value: RoleName(parse_text(value)),
        '"single" (one process does everything), "control" (operators and time) or "host" (the VMs of one host)',
    ),
]
NameOrNone = Annotated[
    str | None, SettingType(_or_none(_name, None), f"a name of letters, digits, '.', '_' and '-', or \"{NONE}\"")
]
StoreSetting = Annotated[
    StoreName,
    SettingType(
        lambda value: StoreName(parse_text(value)),
        '"sqlite" (a file in the data directory) or "nats" (a cell on NATS servers)',
    ),
]
Program = Annotated[
    tuple[str, ...],
    SettingType(
        _or_none(_program, ()),
        f'the absolute path of a program and its arguments, such as ["/usr/local/bin/maintain", "-v"], or "{NONE}"',
    ),
]
Format = Annotated[LogFormat, SettingType(lambda value: LogFormat(parse_text(value)), '"text" or "json"')]
Level = Annotated[
    LogLevel, SettingType(lambda value: LogLevel(parse_text(value)), '"debug", "info", "warning" or "error"')
]


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the service logs to stderr, and in which format."""

    format: Format = LogFormat.JSON
    level: Level = LogLevel.INFO


def variable_name(key: str) -> str:
    """Return the environment variable of a key."""
    return VARIABLE_PREFIX + key.replace(".", "_").upper()


def flag_name(key: str) -> str:
    """Return the flag of a key."""
    return "--" + key.replace(".", "-").replace("_", "-")
