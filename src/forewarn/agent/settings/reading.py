"""From file and variables to settings: variables over `agent.toml` over defaults. A complaint names place and key."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from forewarn.agent.settings.agent import STATE_OF_THE_SYSTEM, AgentSettings, Rule
from forewarn.agent.settings.checking import check
from forewarn.agent.settings.handlers import KINDS, HandlerSettings, LogHandlerSettings
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
FILE_OF_THE_SYSTEM = Path("/etc/forewarn") / FILE_NAME
OWN_PREFIX = VARIABLE_PREFIX + "AGENT_"
SHARED = ("endpoint", "name")
"""Keys whose variables mean the same to every command on a VM."""


def variable(key: str) -> str:
    """Return the environment variable of a key that is there only once."""
    prefix = VARIABLE_PREFIX if key in SHARED else OWN_PREFIX
    return prefix + key.replace(".", "_").upper()


def settings_file(given: str | None, environ: Mapping[str, str], here: Path) -> Path | None:
    """Return the file to read: the one that is named, else `agent.toml` in `here`, else the system's, else none."""
    if named := given or environ.get(OWN_PREFIX + "CONFIG"):
        return Path(named).expanduser()
    return next((file for file in (here / FILE_NAME, FILE_OF_THE_SYSTEM) if file.is_file()), None)


def read_settings(file: Path | None, environ: Mapping[str, str]) -> AgentSettings:
    """Read and check everything; raises SettingsError. Without `file` there are variables and defaults."""
    content = {} if file is None else _content(file)
    place = "the environment" if file is None else str(file)
    handlers = tuple(_handlers(content.pop("handlers", {}), place))
    rules = tuple(_rules(content.pop("rules", []), place))
    settings = _section(AgentSettings, content, place)
    settings = msgspec.structs.replace(_with_variables(settings, environ), handlers=_with_log(handlers), rules=rules)
    if "state" not in content and not environ.get(variable("state")):
        settings = msgspec.structs.replace(settings, state=_usual_state(environ))
    check(settings, place)
    return settings


def _content(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettingsFile(file, error.strerror or str(error)) from error
    except ValueError as error:
        raise InvalidSettingsFile(file, f"this is not TOML: {error}") from error


def _section(section: type[S], content: Mapping[str, object], place: str, prefix: str = "", **given: object) -> S:
    """Read a table as a section takes it; `given` are fields that are no keys."""
    hints = _hints(section)
    known = tuple(field for field in hints if field not in given and _is_key(hints[field]))
    read: dict[str, object] = {}
    for key, value in content.items():
        if key not in known:
            raise SettingNotFound(place, prefix + key, known)
        hint = hints[key]
        if takes := _takes(hint):
            read[key] = _parsed(takes, value, place, prefix + key)
        else:
            read[key] = _section(hint, _table(value, place, prefix + key), place, f"{prefix}{key}.")
    return section(**given, **read)


def _parsed(takes: SettingType, value: object, place: str, key: str) -> object:
    try:
        return takes.parse(_beside(place, value) if takes.is_path else value)
    except (TypeError, ValueError, KeyError):
        raise InvalidSetting(place, key, value, takes.allowed) from None


def _beside(place: str, value: object) -> object:
    """What a file names lies beside it, wherever the program was started."""
    is_path = isinstance(value, str) and value not in ("", NONE)
    return Path(place).parent / Path(str(value)).expanduser() if is_path else value


def _table(value: object, place: str, key: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidSetting(place, key, value, "a table")
    return value


def _handlers(tables: object, place: str) -> Iterator[HandlerSettings]:
    for name, value in _table(tables, place, "handlers").items():
        key = f"handlers.{name}"
        try:
            check_name(name, "the name of a handler,")
        except Invalid as error:
            raise SettingsConflict(f"{place}: {key}: {error}") from None
        content = dict(_table(value, place, key))
        if "kind" not in content:
            raise SettingsConflict(f"{place}: {key}.kind is missing: it takes {_kinds()}")
        kind = content.pop("kind")
        if not isinstance(kind, str) or kind not in KINDS:
            raise InvalidSetting(place, f"{key}.kind", kind, _kinds())
        yield _section(KINDS[kind], content, place, f"{key}.", name=name)


def _kinds() -> str:
    return ", ".join(f'"{kind}"' for kind in KINDS)


def _rules(tables: object, place: str) -> Iterator[Rule]:
    if not isinstance(tables, list):
        raise InvalidSetting(place, "rules", tables, "a list of tables: begin each rule with [[rules]]")
    for number, value in enumerate(tables):
        key = f"rules[{number}]"
        content = _table(value, place, key)
        if "handlers" not in content:
            raise SettingsConflict(f"{place}: {key}.handlers is missing: it takes a list of the names of handlers")
        yield _section(Rule, content, place, f"{key}.")


def _with_variables(settings: S, environ: Mapping[str, str], prefix: str = "") -> S:
    said: dict[str, object] = {}
    for field, hint in _hints(type(settings)).items():
        key = prefix + field
        if takes := _takes(hint):
            if text := environ.get(variable(key)):
                said[field] = _variable(takes, text, key)
        elif _is_key(hint):
            said[field] = _with_variables(getattr(settings, field), environ, f"{key}.")
    return msgspec.structs.replace(settings, **said)


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


def _usual_state(environ: Mapping[str, str]) -> Path:
    """Return the directory that systemd made for us, or the system's, or the user's own."""
    if made := environ.get("STATE_DIRECTORY"):
        return Path(made.split(":")[0])
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return STATE_OF_THE_SYSTEM if is_root else user_data_directory(environ) / "agent"


def _hints(section: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(section, include_extras=True)
    return {field: hints[field] for field in section.__struct_fields__}


def _takes(hint: object) -> SettingType | None:
    return next((item for item in get_args(hint) if isinstance(item, SettingType)), None)


def _is_key(hint: object) -> bool:
    """Handlers, rules and names of handlers are not read as values."""
    return _takes(hint) is not None or (isinstance(hint, type) and issubclass(hint, msgspec.Struct))
