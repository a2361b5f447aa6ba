"""Gate settings: named health checks, by program or HTTP, that campaigns run before their next wave."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, get_args, get_type_hints

import msgspec

from forewarn.core.campaign.spec import HttpCheck
from forewarn.core.text import check_name
from forewarn.settings.file_reader import value_text
from forewarn.settings.types import (
    NONE,
    AnyStatus,
    DurationWithinDay,
    InvalidField,
    Program,
    Retries,
    SettingType,
    UrlOrNone,
    format_value,
)

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(HttpCheck)}


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to check one gate: run a program, whose exit code 0 means open, or send a GET request.

    The other keys are those of a campaign's own gate (`HttpCheck`), with its defaults, but their limits are wider: only
    who runs the service may let a slow check keep others waiting.
    """

    command: Program = ()
    url: UrlOrNone = None
    expect_status: AnyStatus = _DEFAULTS["expect_status"]
    timeout: DurationWithinDay = _DEFAULTS["timeout"]
    retries: Retries = _DEFAULTS["retries"]
    pause: DurationWithinDay = _DEFAULTS["pause"]


class Gate(msgspec.Struct, frozen=True):
    """A gate and its name."""

    name: str
    settings: GateSettings

    def __str__(self) -> str:
        """Format it as in a settings file, on one line."""
        fields = {
            field: format_value(value)
            for field in GateSettings.__struct_fields__
            if (value := getattr(self.settings, field)) not in (None, ())
        }
        return json.dumps({self.name: fields})


KEYS = {
    field: next(item for item in get_args(hint) if isinstance(item, SettingType))
    for field, hint in get_type_hints(GateSettings, include_extras=True).items()
}
"""The keys of a gate."""


def _parse_gates(value: object) -> tuple[Gate, ...]:
    """Parse tables by name; a text, such as a variable, contains them as JSON, and so does each text of a list."""
    if value == NONE:
        return ()
    tables: dict[str, object] = {}
    for part in value if isinstance(value, list | tuple) else [value]:
        tables |= _parse_tables(part)
    return tuple(sorted(_build_gates(tables), key=lambda gate: gate.name))


def _parse_tables(value: object) -> Mapping[str, object]:
    read = json.loads(value) if isinstance(value, str) else value
    if not isinstance(read, dict):
        raise TypeError
    return read


def _build_gates(tables: Mapping[str, object]) -> Iterator[Gate]:
    for name, table in tables.items():
        check_name(name, "gate")
        if not isinstance(table, Mapping):
            raise InvalidField(name, value_text(table), f"a table with {', '.join(KEYS)}")
        fields = {key: _parse_field(name, key, value) for key, value in table.items()}
        if bool(fields.get("command")) is bool(fields.get("url")):
            raise InvalidField(name, value_text(table), "either command or url")
        yield Gate(name, msgspec.structs.replace(GateSettings(), **fields))


def _parse_field(name: str, key: str, value: object) -> object:
    if key not in KEYS:
        raise InvalidField(f"{name}.{key}", value_text(value), f"nothing: there is no such key, only {', '.join(KEYS)}")
    try:
        return KEYS[key].parse(value)
    except (TypeError, ValueError, KeyError):
        raise InvalidField(f"{name}.{key}", value_text(value), KEYS[key].allowed) from None


Gates = Annotated[
    tuple[Gate, ...],
    SettingType(
        _parse_gates,
        f'tables by name, each with command or url, such as {{ web = {{ url = "http://…" }} }}, or "{NONE}"',
    ),
]
