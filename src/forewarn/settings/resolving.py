"""Which value holds, and where it came from: flags over environment over `forewarn.toml` over the preset."""

import tomllib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from forewarn.settings.checking import check
from forewarn.settings.errors import BadSetting, Contradiction, UnknownSetting, UnreadableFile
from forewarn.settings.gates import BadPart
from forewarn.settings.keys import KEYS, Preset, Settings, flag, values, variable
from forewarn.settings.values import DEMONSTRATION, NONE, beside


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


def resolve(
    preset: Preset, *, flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None
) -> Resolved:
    """Find the value of every setting. `flags` has those that were given, by key; without `file`, none is read."""
    said = {key: (preset_value, Origin(Rank.PRESET, preset.name)) for key, preset_value in values(preset.settings)}
    for key, place, value in all_said(flags, environ, file):
        said[key] = (parsed(key, value, place), place)
    origins = {key: origin for key, (_, origin) in said.items()}
    found = {key: value for key, (value, _) in said.items()}
    _choose_data(found, origins)
    settings = _nested(preset.settings, found)
    unsaid = frozenset(key for key, origin in origins.items() if origin.rank is Rank.PRESET)
    check(preset, settings, {key: origin.name for key, origin in origins.items()}, unsaid)
    return Resolved(settings, origins)


def all_said(
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


def parsed(key: str, value: object, place: Origin) -> object:
    """Read a value as its key takes it."""
    takes = KEYS[key]
    try:
        return takes.parse(value)
    except BadPart as wrong:
        raise BadSetting(place.name, f"{key}.{wrong.key}", wrong.value, wrong.allowed) from None
    except (TypeError, ValueError, KeyError):
        raise BadSetting(place.name, key, value, takes.allowed) from None


def _read(file: Path) -> Iterator[tuple[str, object]]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(file, error.strerror or str(error)) from error
    except ValueError as error:
        raise UnreadableFile(file, f"this is not TOML: {error}") from error
    for key, value in _keys_of(content, file):
        # What a file names lies beside it, wherever the program was started.
        is_location = KEYS[key].is_path and isinstance(value, str) and value not in ("", NONE, DEMONSTRATION)
        yield key, beside(file.parent, str(value)) if is_location else value


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


def _nested(base: Settings, found: Mapping[str, object]) -> Settings:
    top = {key: value for key, value in found.items() if "." not in key}
    for section in {key.split(".")[0] for key in found if "." in key}:
        fields = {key.split(".")[1]: value for key, value in found.items() if key.startswith(f"{section}.")}
        top[section] = msgspec.structs.replace(getattr(base, section), **fields)
    return msgspec.structs.replace(base, **top)


def _choose_data(found: dict[str, object], origins: dict[str, Origin]) -> None:
    """A data directory and none at all exclude each other; whichever was said closer to the user wins."""
    if not found["ephemeral"] or found["data"] is None:
        return
    data, ephemeral = origins["data"], origins["ephemeral"]
    if data.rank == ephemeral.rank:
        raise Contradiction(f"{data.name} and {ephemeral.name}: a data directory, or none (ephemeral)? Say one of them")
    if data.rank > ephemeral.rank:
        found["ephemeral"] = False
    else:
        found["data"] = None
