"""Load the agent's settings: environment variables over `agent.toml` over defaults. Errors name source and key."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from forewarn.agent.settings.handlers import KINDS, HandlerSettings, LogHandlerSettings
from forewarn.agent.settings.schema import SYSTEM_STATE_DIRECTORY, AgentSettings, Rule
from forewarn.agent.settings.validation import validate
from forewarn.core.errors import Invalid
from forewarn.core.text import check_name
from forewarn.settings import (
    NONE,
    VARIABLE_PREFIX,
    InvalidSetting,
    InvalidSettingsFile,
    SettingNotFound,
    SettingsConflict,
    SettingType,
    user_data_directory,
)

S = TypeVar("S", bound=msgspec.Struct)

FILE_NAME = "agent.toml"
SYSTEM_FILE = Path("/etc/forewarn") / FILE_NAME
AGENT_PREFIX = VARIABLE_PREFIX + "AGENT_"
SHARED = ("endpoint", "name")
"""Keys whose variables mean the same to every command on a VM."""


def variable(key: str) -> str:
    """Return the environment variable of a key that is there only once."""
    prefix = VARIABLE_PREFIX if key in SHARED else AGENT_PREFIX
    return prefix + key.replace(".", "_").upper()


def settings_file(given: str | None, environ: Mapping[str, str], here: Path) -> Path | None:
    """Return the file to read: the one that is named, else `agent.toml` in `here`, else the system's, else none."""
    if named := given or environ.get(AGENT_PREFIX + "CONFIG"):
        return Path(named).expanduser()
    return next((file for file in (here / FILE_NAME, SYSTEM_FILE) if file.is_file()), None)


def read_settings(file: Path | None, environ: Mapping[str, str]) -> AgentSettings:
    """Read and check everything; raises SettingsError. Without `file` there are variables and defaults."""
    content = {} if file is None else _content(file)
    source = "the environment" if file is None else str(file)
    handlers = tuple(_handlers(content.pop("handlers", {}), source))
    rules = tuple(_rules(content.pop("rules", []), source))
    settings = _section(AgentSettings, content, source)
    settings = msgspec.structs.replace(_with_variables(settings, environ), handlers=_with_log(handlers), rules=rules)
    if "state" not in content and not environ.get(variable("state")):
        settings = msgspec.structs.replace(settings, state=_default_state_directory(environ))
    validate(settings, source)
    return settings


def _content(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettingsFile(file, error.strerror or str(error)) from error
    except ValueError as error:
        raise InvalidSettingsFile(file, f"this is not TOML: {error}") from error


def _section(section: type[S], content: Mapping[str, object], source: str, prefix: str = "", **given: object) -> S:
    """Read a table as a section takes it; `given` are fields that are no keys."""
    hints = _hints(section)
    known = tuple(field for field in hints if field not in given and _is_key(hints[field]))
    read: dict[str, object] = {}
    for key, value in content.items():
        if key not in known:
            raise SettingNotFound(source, prefix + key, known)
        hint = hints[key]
        if takes := _takes(hint):
            read[key] = _parse_value(takes, value, source, prefix + key)
        else:
            read[key] = _section(hint, _table(value, source, prefix + key), source, f"{prefix}{key}.")
    return section(**given, **read)


def _parse_value(takes: SettingType, value: object, source: str, key: str) -> object:
    try:
        return takes.parse(_resolve_path(source, value) if takes.is_path else value)
    except (TypeError, ValueError, KeyError):
        raise InvalidSetting(source, key, value, takes.allowed) from None


def _resolve_path(source: str, value: object) -> object:
    """What a file names lies beside it, wherever the program was started."""
    is_path = isinstance(value, str) and value not in ("", NONE)
    return Path(source).parent / Path(str(value)).expanduser() if is_path else value


def _table(value: object, source: str, key: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidSetting(source, key, value, "a table")
    return value


def _handlers(tables: object, source: str) -> Iterator[HandlerSettings]:
    for name, value in _table(tables, source, "handlers").items():
        key = f"handlers.{name}"
        try:
            check_name(name, "the name of a handler,")
        except Invalid as error:
            raise SettingsConflict(f"{source}: {key}: {error}") from None
        content = dict(_table(value, source, key))
        if "kind" not in content:
            raise SettingsConflict(f"{source}: {key}.kind is missing: it takes {_kinds()}")
        kind = content.pop("kind")
        if not isinstance(kind, str) or kind not in KINDS:
            raise InvalidSetting(source, f"{key}.kind", kind, _kinds())
        yield _section(KINDS[kind], content, source, f"{key}.", name=name)


def _kinds() -> str:
    return ", ".join(f'"{kind}"' for kind in KINDS)


def _rules(tables: object, source: str) -> Iterator[Rule]:
    if not isinstance(tables, list):
        raise InvalidSetting(source, "rules", tables, "a list of tables: begin each rule with [[rules]]")
    for number, value in enumerate(tables):
        key = f"rules[{number}]"
        content = _table(value, source, key)
        if "handlers" not in content:
            raise SettingsConflict(f"{source}: {key}.handlers is missing: it takes a list of the names of handlers")
        yield _section(Rule, content, source, f"{key}.")


def _with_variables(settings: S, environ: Mapping[str, str], prefix: str = "") -> S:
    values: dict[str, object] = {}
    for field, hint in _hints(type(settings)).items():
        key = prefix + field
        if takes := _takes(hint):
            if text := environ.get(variable(key)):
                values[field] = _variable(takes, text, key)
        elif _is_key(hint):
            values[field] = _with_variables(getattr(settings, field), environ, f"{key}.")
    return msgspec.structs.replace(settings, **values)


def _variable(takes: SettingType, text: str, key: str) -> object:
    try:
        return takes.parse(text)
    except (TypeError, ValueError, KeyError):
        raise InvalidSetting(variable(key), key, text, takes.allowed) from None


def _with_log(handlers: tuple[HandlerSettings, ...]) -> tuple[HandlerSettings, ...]:
    """There is always a handler that logs: an event that nobody heard of is the worst one."""
    if any(isinstance(each, LogHandlerSettings) or each.name == LogHandlerSettings.kind for each in handlers):
        return handlers
    return (*handlers, LogHandlerSettings(name=LogHandlerSettings.kind))


def _default_state_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory that systemd made for us, or the system's, or the user's own."""
    if made := environ.get("STATE_DIRECTORY"):
        return Path(made.split(":")[0])
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return SYSTEM_STATE_DIRECTORY if is_root else user_data_directory(environ) / "agent"


def _hints(section: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(section, include_extras=True)
    return {field: hints[field] for field in section.__struct_fields__}


def _takes(hint: object) -> SettingType | None:
    return next((item for item in get_args(hint) if isinstance(item, SettingType)), None)


def _is_key(hint: object) -> bool:
    """Handlers, rules and names of handlers are not read as values."""
    return _takes(hint) is not None or (isinstance(hint, type) and issubclass(hint, msgspec.Struct))
