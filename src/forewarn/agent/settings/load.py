"""Load the agent's settings: flags over environment over `agent.toml` over default. Errors name source and key."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from forewarn.agent.settings.handlers import KINDS, HandlerSettings, LogHandlerSettings
from forewarn.agent.settings.schema import SYSTEM_STATE_DIRECTORY, AgentSettings, Rule
from forewarn.agent.settings.validation import validate
from forewarn.core.errors import Invalid
from forewarn.core.text import check_name
from forewarn.settings.errors import InvalidSetting, SettingsConflict
from forewarn.settings.file_reader import FileValue, value_text
from forewarn.settings.loader import (
    LoadedSettings,
    LoadOptions,
    Precedence,
    SettingSource,
    load_struct,
    place,
    read_section,
    read_settings_file,
    read_table,
)
from forewarn.settings.paths import user_data_directory
from forewarn.settings.types import VARIABLE_PREFIX, flag_name

FILE_NAME = "agent.toml"
SYSTEM_FILE = Path("/etc/forewarn") / FILE_NAME
AGENT_PREFIX = VARIABLE_PREFIX + "AGENT_"
TABLES = frozenset({"handlers", "rules"})
"""Tables with any number of entries; all other tables are sections with fixed keys."""

SHARED = ("endpoint", "name")
"""Keys whose variables are shared by all commands inside a VM."""


def variable(key: str) -> str:
    """Return the environment variable of a key outside of handlers and rules."""
    prefix = VARIABLE_PREFIX if key in SHARED else AGENT_PREFIX
    return prefix + key.replace(".", "_").upper()


def settings_file(given: str | None, environ: Mapping[str, str], here: Path) -> Path | None:
    """Return the settings file: the given one, else `agent.toml` in `here`, else the system's file, else None."""
    if named := given or environ.get(AGENT_PREFIX + "CONFIG"):
        return Path(named).expanduser()
    return next((file for file in searched_files(here) if file.is_file()), None)


def searched_files(here: Path) -> tuple[Path, ...]:
    """Return where a settings file is looked for if none is given, in this order."""
    return (here / FILE_NAME, SYSTEM_FILE)


def read_settings(
    file: Path | None, environ: Mapping[str, str], *, flags: Mapping[str, object] | None = None
) -> AgentSettings:
    """Read and validate the settings from flags, variables, file and defaults. Raises SettingsError."""
    return load_agent_settings(file, environ, flags=flags).settings


def load_agent_settings(
    file: Path | None, environ: Mapping[str, str], *, flags: Mapping[str, object] | None = None
) -> LoadedSettings[AgentSettings]:
    """Return the value of every setting and its source. `flags` has the given flags by key. Raises SettingsError."""
    document = FileValue("the environment", "", {}) if file is None else read_settings_file(file)
    tables = read_table(document)
    handlers = tuple(_handlers(tables["handlers"])) if "handlers" in tables else ()
    rules = tuple(_rules(tables["rules"])) if "rules" in tables else ()
    options = LoadOptions(document, environ, variable, flags or {}, flag_name, TABLES)
    loaded = load_struct(AgentSettings(), "default", options)
    settings = msgspec.structs.replace(loaded.settings, handlers=_with_log(handlers), rules=rules)
    sources = loaded.sources
    if sources["state"].precedence is Precedence.PRESET:
        state, source = _default_state_directory(environ, sources["state"])
        settings, sources = msgspec.structs.replace(settings, state=state), sources | {"state": source}
    loaded = LoadedSettings(settings, sources)
    validate(settings, loaded.places, document)
    return loaded


def _handlers(tables: FileValue) -> Iterator[HandlerSettings]:
    for name, value in read_table(tables).items():
        try:
            check_name(name, "handler name")
        except Invalid as error:
            raise SettingsConflict(f"{place(value)}: {value.key}: {error}") from None
        fields = read_table(value)
        if "kind" not in fields:
            raise SettingsConflict(f"{place(value)}: {value.key}.kind is missing; use one of {_kinds()}")
        kind = fields["kind"].value
        if not isinstance(kind, str) or kind not in KINDS:
            raise InvalidSetting(place(fields["kind"]), fields["kind"].key, value_text(kind), _kinds())
        content = {key: field.value for key, field in fields.items() if key != "kind"}
        yield read_section(KINDS[kind], value.with_value(content), name=name)


def _kinds() -> str:
    return ", ".join(f'"{kind}"' for kind in KINDS)


def _rules(tables: FileValue) -> Iterator[Rule]:
    if not isinstance(tables.value, list):
        allowed = "a list of tables: begin each rule with [[rules]]"
        raise InvalidSetting(place(tables), tables.key, value_text(tables.value), allowed)
    for value in tables.items():
        if "handlers" not in read_table(value):
            raise SettingsConflict(f"{place(value)}: {value.key}.handlers is missing: expected a list of handler names")
        yield read_section(Rule, value)


def _with_log(handlers: tuple[HandlerSettings, ...]) -> tuple[HandlerSettings, ...]:
    """Add a log handler if none is configured, so that every event is at least logged."""
    if any(isinstance(each, LogHandlerSettings) or each.name == LogHandlerSettings.kind for each in handlers):
        return handlers
    return (*handlers, LogHandlerSettings(name=LogHandlerSettings.kind))


def _default_state_directory(environ: Mapping[str, str], default: SettingSource) -> tuple[Path, SettingSource]:
    """Return the state directory that systemd provides, else the system's for root, else the user's; and its source."""
    if made := environ.get("STATE_DIRECTORY"):
        return Path(made.split(":")[0]), SettingSource(Precedence.ENVIRONMENT, "STATE_DIRECTORY")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return SYSTEM_STATE_DIRECTORY if is_root else user_data_directory(environ) / "agent", default
