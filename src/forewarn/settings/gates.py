"""Gate settings: named health checks, by program or HTTP, that campaigns run before their next wave."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec

from forewarn.core.campaign.spec import HttpCheck
from forewarn.core.text import check_name
from forewarn.settings.errors import InvalidSetting
from forewarn.settings.file_reader import FileValue, value_text
from forewarn.settings.loader import read_section, read_table
from forewarn.settings.types import (
    NONE,
    AnyStatus,
    DurationWithinDay,
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
    """Read each table. Errors have no source: the loader adds it."""
    for name, table in read_table(FileValue("", "", tables)).items():
        check_name(name, "gate")
        settings = read_section(GateSettings, table)
        if bool(settings.command) is bool(settings.url):
            reason = "it has both" if settings.url else "it has neither"
            raise InvalidSetting("", name, value_text(table.value), "either command or url", reason)
        yield Gate(name, settings)


Gates = Annotated[
    tuple[Gate, ...],
    SettingType(
        _parse_gates,
        f'tables by name, each with command or url, such as {{ web = {{ url = "http://…" }} }}, or "{NONE}"',
    ),
]
