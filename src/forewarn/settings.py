"""What can be set, and where each value came from: flags over environment over `forewarn.toml` over the preset.

SettingsError
├── UnreadableFile   the file cannot be read, or is not TOML
├── UnknownSetting   a key that does not exist
├── BadSetting       a value that is not allowed
└── Contradiction    two settings that exclude each other
"""

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from enum import IntEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, NamedTuple, get_args, get_type_hints

import msgspec

from forewarn.core.conditions import EMULATOR as EMULATOR_POLICY
from forewarn.core.conditions import PRODUCTION as PRODUCTION_POLICY
from forewarn.core.conditions import Announce
from forewarn.core.duration import parse_duration
from forewarn.core.text import check_name

FILE_NAME = "forewarn.toml"
VARIABLE_PREFIX = "FOREWARN_"
NONE = "none"
"""How a setting is switched off, wherever a value is expected."""


class SettingsError(Exception):
    """The service cannot be started with these settings; the message names the place, the key and what is allowed."""


class UnreadableFile(SettingsError):
    """The file cannot be read, or is not TOML."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path}: {why}")


class UnknownSetting(SettingsError):
    """There is no such key."""

    def __init__(self, place: str, key: str, known: tuple[str, ...]) -> None:
        self.place, self.key, self.known = place, key, known
        super().__init__(f"{place}: there is no setting {key}; known here: {', '.join(known)}")


class BadSetting(SettingsError):
    """The value is not allowed."""

    def __init__(self, place: str, key: str, value: object, allowed: str) -> None:
        self.place, self.key, self.value, self.allowed = place, key, value, allowed
        super().__init__(f"{place}: {key} takes {allowed}, not {value!r}")


class Contradiction(SettingsError):
    """Two settings exclude each other."""


class Endpoint(msgspec.Struct, frozen=True):
    """An address and a port to listen on; port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach it."""
        return ip_address(self.host).is_loopback


class Takes(NamedTuple):
    """What a setting takes: from a text as flags and variables give it, or from a value of TOML."""

    parse: Callable[[object], object]
    allowed: str


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _name(value: object) -> str:
    check_name(_text(value), "name")
    return _text(value)


def _path(value: object) -> Path:
    return value if isinstance(value, Path) else Path(_text(value)).expanduser()


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[_text(value).lower()]


def _whole(value: object) -> int:
    if isinstance(value, bool):
        raise TypeError
    return value if isinstance(value, int) else int(_text(value))


def _at_least_one(value: object) -> int:
    number = _whole(value)
    if number < 1:
        raise ValueError
    return number


def _error_status(value: object) -> int:
    status = _whole(value)
    if not 400 <= status <= 499:
        raise ValueError
    return status


def _speed(value: object) -> float:
    if isinstance(value, bool):
        raise TypeError
    number = float(value) if isinstance(value, int | float) else float(_text(value))
    if not 0 < number <= 1_000_000:
        raise ValueError
    return number


def _duration(value: object) -> timedelta:
    return parse_duration(_text(value))


def _endpoint(value: object) -> Endpoint:
    if isinstance(value, Endpoint):
        return value
    host, _, port = _text(value).rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    number = int(port)
    if not 0 <= number <= 65_535:
        raise ValueError
    return Endpoint(str(ip_address(host)), number)


def _or_none(parse: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value == NONE else parse(value)


Flag = Annotated[bool, Takes(_flag, "true or false")]
Name = Annotated[str, Takes(_name, "a name of letters, digits, '.', '_' and '-'")]
Interface = Annotated[str | None, Takes(_or_none(_name), f'the name of a network interface, or "{NONE}"')]
Location = Annotated[Path | None, Takes(_or_none(_path), f'a path, or "{NONE}"')]
Count = Annotated[int, Takes(_at_least_one, "a whole number from 1 on")]
CountOrNone = Annotated[int | None, Takes(_or_none(_at_least_one), f'a whole number from 1 on, or "{NONE}"')]
ErrorStatus = Annotated[int, Takes(_error_status, "an HTTP status from 400 to 499")]
Speed = Annotated[float, Takes(_speed, "a number above 0, at most 1000000")]
Listen = Annotated[Endpoint, Takes(_endpoint, "HOST:PORT with an IP address as host, such as 127.0.0.1:8170")]
ListenOrNone = Annotated[
    Endpoint | None,
    Takes(_or_none(_endpoint), f'HOST:PORT with an IP address as host, such as 127.0.0.1:8180, or "{NONE}"'),
]
Duration = Annotated[timedelta, Takes(_duration, 'a duration such as "90s", "15m" or "1h30m"')]
DurationOrNone = Annotated[
    timedelta | None, Takes(_or_none(_duration), f'a duration such as "15m" or "24h", or "{NONE}"')
]
Announcing = Annotated[Announce, Takes(lambda value: Announce(_text(value)), '"always" or "when-enabled"')]


class GuestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the endpoint answers VMs."""

    requests_per_second: CountOrNone = 5
    unsupported_version_status: ErrorStatus = 404
    enable_delay: Duration = timedelta(0)


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules leave to whoever runs the service."""

    announce: Announcing = PRODUCTION_POLICY.announce
    enforce_notice: Flag = PRODUCTION_POLICY.enforce_notice
    idle_after: DurationOrNone = PRODUCTION_POLICY.idle_after
    user_operations: Count = PRODUCTION_POLICY.user_operations


class SimulatedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long the simulated platform takes for each kind of work."""

    freeze: Duration = timedelta(seconds=9)
    reboot: Duration = timedelta(seconds=60)
    redeploy: Duration = timedelta(seconds=120)
    preempt: Duration = timedelta(seconds=10)
    terminate: Duration = timedelta(seconds=10)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set. `data` None is the user's own data directory."""

    data: Location = None
    ephemeral: Flag = False
    fleet: Location = None
    listen: ListenOrNone = None
    listen_link_local: Interface = None
    network: Name = "default"
    operator: Listen = Endpoint("127.0.0.1", 8170)
    manual_time: Flag = False
    speed: Speed = 1.0
    guest: GuestSettings = GuestSettings()
    policy: PolicySettings = PolicySettings()
    simulated: SimulatedSettings = SimulatedSettings()


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """What holds unless something else is said, and what cannot be said at all."""

    name: str
    settings: Settings
    loopback_only: bool
    own_time: bool


EMULATOR = Preset(
    name="emulator",
    settings=Settings(
        listen=Endpoint("127.0.0.1", 8180),
        guest=GuestSettings(requests_per_second=None),
        policy=PolicySettings(
            announce=EMULATOR_POLICY.announce,
            enforce_notice=EMULATOR_POLICY.enforce_notice,
            idle_after=EMULATOR_POLICY.idle_after,
        ),
    ),
    loopback_only=True,
    own_time=True,
)
"""`forewarn up`: always announces, limits nothing, takes any notice; time can be moved; loopback only."""

PRODUCTION = Preset(name="production", settings=Settings(), loopback_only=False, own_time=False)
"""`forewarn serve`: the protocol's own limits, in real time."""


class Rank(IntEnum):
    """Where a value can come from; the higher one wins."""

    PRESET = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


class Origin(NamedTuple):
    """Where a value came from: a flag, a variable, a file or a preset, by name."""

    rank: Rank
    name: str

    def __str__(self) -> str:
        return f"{self.name} preset" if self.rank is Rank.PRESET else self.name


class Resolved(msgspec.Struct, frozen=True):
    """The settings that hold, and the origin of each by its key."""

    settings: Settings
    origins: dict[str, Origin]


def _declared(section: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, Takes]]:
    for field, hint in get_type_hints(section, include_extras=True).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from _declared(hint, f"{prefix}{field}.")
        else:
            yield prefix + field, next(item for item in get_args(hint) if isinstance(item, Takes))


KEYS: dict[str, Takes] = dict(_declared(Settings))
"""Every key, `section.field` where it is in a section, and what it takes."""


def variable(key: str) -> str:
    """Return the environment variable of a key."""
    return VARIABLE_PREFIX + key.replace(".", "_").upper()


def flag(key: str) -> str:
    """Return the flag of a key."""
    return "--" + key.replace(".", "-").replace("_", "-")


def resolve(
    preset: Preset, *, flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None
) -> Resolved:
    """Find the value of every setting. `flags` has those that were given, by key; without `file`, none is read."""
    said = {key: (preset_value, Origin(Rank.PRESET, preset.name)) for key, preset_value in _flat(preset.settings)}
    for key, place, value in _all_said(flags, environ, file):
        said[key] = (_parsed(key, value, place), place)
    origins = {key: origin for key, (_, origin) in said.items()}
    values = {key: value for key, (value, _) in said.items()}
    _choose_data(values, origins)
    settings = _nested(preset.settings, values)
    _check(preset, settings, origins)
    return Resolved(settings, origins)


def _all_said(
    flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None
) -> Iterator[tuple[str, Origin, object]]:
    """Give what is said anywhere, the weakest first."""
    if file is not None:
        for key, value in _read(file):
            yield key, Origin(Rank.FILE, str(file)), value
    for key in KEYS:
        if value := environ.get(variable(key)):
            yield key, Origin(Rank.ENVIRONMENT, variable(key)), value
    for key, given in flags.items():
        yield key, Origin(Rank.FLAG, flag(key)), given


def _read(file: Path) -> Iterator[tuple[str, object]]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(file, error.strerror or str(error)) from error
    except ValueError as error:
        raise UnreadableFile(file, f"this is not TOML: {error}") from error
    for key, value in _keys_of(content, file):
        # What a file names lies beside it, wherever the program was started.
        in_file = file.parent / Path(value).expanduser() if _is_path(key) and isinstance(value, str) else value
        yield key, value if value == NONE else in_file


def _keys_of(content: Mapping[str, object], file: Path, section: str = "") -> Iterator[tuple[str, object]]:
    for name, value in content.items():
        key = section + name
        if isinstance(value, dict) and any(known.startswith(f"{key}.") for known in KEYS):
            yield from _keys_of(value, file, f"{key}.")
        elif key in KEYS:
            yield key, value
        else:
            raise UnknownSetting(str(file), key, _known_in(section))


def _known_in(section: str) -> tuple[str, ...]:
    inside = (key.removeprefix(section) for key in KEYS if key.startswith(section))
    return tuple(dict.fromkeys(key.split(".")[0] for key in inside))


def _is_path(key: str) -> bool:
    return key in {"data", "fleet"}


def _parsed(key: str, value: object, place: Origin) -> object:
    takes = KEYS[key]
    try:
        return takes.parse(value)
    except (TypeError, ValueError, KeyError):
        raise BadSetting(place.name, key, value, takes.allowed) from None


def _flat(section: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, object]]:
    for field in section.__struct_fields__:
        value = getattr(section, field)
        if isinstance(value, Endpoint) or not isinstance(value, msgspec.Struct):
            yield prefix + field, value
        else:
            yield from _flat(value, f"{prefix}{field}.")


def _nested(base: Settings, values: Mapping[str, object]) -> Settings:
    top = {key: value for key, value in values.items() if "." not in key}
    for section in {key.split(".")[0] for key in values if "." in key}:
        fields = {key.split(".")[1]: value for key, value in values.items() if key.startswith(f"{section}.")}
        top[section] = msgspec.structs.replace(getattr(base, section), **fields)
    return msgspec.structs.replace(base, **top)


def _choose_data(values: dict[str, object], origins: dict[str, Origin]) -> None:
    """A data directory and none at all exclude each other; whichever was said closer to the user wins."""
    if not values["ephemeral"] or values["data"] is None:
        return
    data, ephemeral = origins["data"], origins["ephemeral"]
    if data.rank == ephemeral.rank:
        raise Contradiction(f"{data.name} and {ephemeral.name}: a data directory, or none (ephemeral)? Say one of them")
    if data.rank > ephemeral.rank:
        values["ephemeral"] = False
    else:
        values["data"] = None


def _check(preset: Preset, settings: Settings, origins: Mapping[str, Origin]) -> None:
    if preset.loopback_only:
        for key, endpoint in (("listen", settings.listen), ("operator", settings.operator)):
            if endpoint is not None and not endpoint.is_loopback:
                allowed = "a loopback address such as 127.0.0.1 or [::1] here, because the emulator protects nothing"
                raise BadSetting(origins[key].name, key, str(endpoint), allowed)
    if not preset.own_time:
        for key, value in (("manual_time", settings.manual_time), ("speed", settings.speed != 1)):
            if value:
                raise Contradiction(f"{origins[key].name}: {key} is for the emulator; a real service runs in real time")


def settings_file(given: str | None, environ: Mapping[str, str], here: Path) -> Path | None:
    """Return the file to read: the one that is named, else `forewarn.toml` in the directory `here` if there is one."""
    if named := given or environ.get(VARIABLE_PREFIX + "CONFIG"):
        return Path(named).expanduser()
    usual = here / FILE_NAME
    return usual if usual.is_file() else None


def user_data_directory(environ: Mapping[str, str], *, system: str = sys.platform) -> Path:
    """Return where data of the user's own belongs on this system."""
    home = Path(environ.get("HOME") or Path.home())
    if system == "darwin":
        return home / "Library" / "Application Support" / "forewarn"
    if system == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "forewarn"
    given = Path(environ.get("XDG_DATA_HOME") or "")
    return (given if given.is_absolute() else home / ".local" / "share") / "forewarn"


def data_directory(given: str | None, environ: Mapping[str, str], file: Path | None) -> Path | None:
    """Return the data directory that is said anywhere, without looking at any other setting; None: nowhere."""
    flags = {} if given is None else {"data": given}
    said = [(value, place) for key, place, value in _all_said(flags, environ, file) if key == "data"]
    path = _parsed("data", *said[-1]) if said else None
    return path if isinstance(path, Path) else None
