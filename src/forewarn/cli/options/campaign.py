"""Campaign options: build a campaign spec from a campaign file and options; options take precedence."""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click

from forewarn.api import v1
from forewarn.api.campaign_file import NONE, parse_campaign, read_campaign
from forewarn.api.campaign_spec import spec_view
from forewarn.api.campaign_windows import parse_blackout, parse_window
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import FILE_PATH, ChoiceType, Command, Decorator, OptionTable, with_options
from forewarn.cli.options.completion import complete_hosts, complete_scopes
from forewarn.cli.options.times import read_duration
from forewarn.core.campaign.spec import Limit
from forewarn.core.errors import Invalid
from forewarn.settings.file_reader import FileError

STDIN = Path("-")

Content = dict[str, Any]


def _one(name: str, metavar: str, help_: str) -> tuple[str, Decorator]:
    """Declare an option with one value."""
    return name, click.option(_flag(name), metavar=metavar, help=help_)


def _many(name: str, metavar: str, help_: str, **attributes: Any) -> tuple[str, Decorator]:
    """Declare an option that can be repeated; its parameter has the plural of its name."""
    flag = _flag(name.removesuffix("s"))
    return name, click.option(flag, name, metavar=metavar, multiple=True, help=help_, **attributes)


def _switch(name: str, help_: str) -> tuple[str, Decorator]:
    """Declare an option that is on, off, or left to the file."""
    flag = _flag(name)
    return name, click.option(f"{flag}/--no-{flag.removeprefix('--')}", default=None, help=help_)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


SPEC = (
    _one("name", "NAME", "The name of the campaign."),
    (
        "type_",
        click.option(
            "--type",
            "type_",
            type=ChoiceType(v1.CampaignType),
            metavar="TYPE",
            help="The type of its events: Freeze, Reboot or Redeploy.",
        ),
    ),
    _one("duration", "DURATION", "How long each VM is interrupted: 90s."),
    _one("description", "TEXT", "The description that VMs get."),
    _one("start_at", "TIME", "Announce nothing before: 2026-01-31T10:15Z."),
)
SELECTION = (
    _many("scopes", "NAME", "VMs of this scope, or web-*.", shell_complete=complete_scopes),
    _many("hosts", "NAME", "VMs on this host, or hv-*.", shell_complete=complete_hosts),
    _many("tags", "NAME=VALUE", "VMs with this tag; of several, with all."),
    ("all_", click.option("--all", "all_", is_flag=True, help="All VMs.")),
    _many("exclude_scopes", "NAME", "No VMs of this scope."),
    _many("exclude_hosts", "NAME", "No VMs on this host."),
    _many("exclude_vms", "VM", "Not this VM."),
    _many("exclude_tags", "NAME=VALUE", "No VMs with this tag."),
)
POLICY = (
    _one("gap", "DURATION", "Between two waves of a scope: 30m."),
    _one("notice", "DURATION", "Between the announcement and the start."),
    _one("expected", "DURATION", "How long a wave is expected to take."),
    _one("scopes_at_once", "LIMIT", "In how many scopes at once: 10, or 10%."),
    _one("hosts_at_once", "LIMIT", "On how many hosts at once."),
    _one("vms_at_once", "LIMIT", "How many VMs at once."),
    _many("windows", "WINDOW", "When waves may start: 'sat,sun 22:00-04:00 Europe/Vienna'."),
    _many("blackouts", "FROM/TO", "When no wave may start: 2026-12-24T12:00Z/2027-01-02T06:00Z."),
    _one("zone", "ZONE", "The zone of windows that name none: Europe/Vienna."),
    _switch("must_end_inside", "Waves must also end in their window."),
    _one("gate", "GATE", "Ask this before each wave: a gate of the settings, or a URL."),
    _one("gate_patience", "DURATION", "Halt if the gate is closed for this long: 30m."),
    _one("halt_after", "NUMBER", "Halt after this many failures, or none."),
    _switch("advance", "Waves may start earlier than planned."),
)
OPTIONS: OptionTable = dict((*SPEC, *SELECTION, *POLICY))
REQUIRED = {"name": "--name NAME", "type": "--type TYPE", "selection": "--scope, --host, --tag or --all"}
"""What has to be said, and how."""

SELECTION_KEYS = ("scopes", "hosts", "tags", "all")
ALL = {"all": True}
EMPTY_VALUES: tuple[object, ...] = ([], {}, False)
"""What only takes the place of what the file says."""

CLEARABLE_KEYS = {
    "": ("duration", "start_at"),
    "selection": ("exclude_scopes", "exclude_hosts", "exclude_vms", "exclude_tags"),
    "policy": ("notice", "expected", "scopes_at_once", "hosts_at_once", "vms_at_once", "windows", "blackouts", "gate"),
}
"""By table, the options that switch off what the file says when they say `none`."""

DURATIONS = ("gap", "notice", "expected", "gate_patience")
LIMITS = ("scopes_at_once", "hosts_at_once", "vms_at_once")


def with_campaign(command: Command) -> Command:
    """Give a command the file and the options of a campaign, and in their place `spec`: what they ask for."""

    @wraps(command)
    def wrapped(file: Path | None, **given: Any) -> None:
        values = {name: _given_value(given.pop(name)) for name in OPTIONS}
        command(spec=campaign_from_options(file, values), **given)

    file_argument = click.argument("file", type=FILE_PATH, metavar="[FILE]", required=False)
    return with_options((file_argument, *OPTIONS.values()))(wrapped)


def _given_value(value: Any) -> Any:
    """Return None for a repeatable option that was not given; Click has an empty tuple for it."""
    return (list(value) or None) if isinstance(value, tuple) else value


def campaign_from_options(file: Path | None, values: Mapping[str, Any]) -> v1.CampaignSpec:
    """Return the campaign that file and options ask for; what is wrong is named by its key or option."""
    content = _read(file) if file is not None else {}
    values = _apply_none(content, values)
    for table, options in (("", _spec(values)), ("selection", _selection(values)), ("policy", _policy(values))):
        for key, value in options.items():
            if value not in EMPTY_VALUES:
                _check_option(table, key, value)
        _merge(content, table, options)
    if file is None:
        _check_complete(content)
    return spec_view(read_campaign(content, file=_name_of(file)))


def _apply_none(content: Content, values: Mapping[str, Any]) -> Content:
    """Take away what is switched off from what is written, and return what else was said."""
    kept = dict(values)
    for table, keys in CLEARABLE_KEYS.items():
        written = content.get(table) if table else content
        for key in keys:
            if values[key] in (NONE, [NONE]):
                kept[key] = None
                if isinstance(written, dict):
                    written.pop(key, None)
    return kept


def _check_option(table: str, key: str, value: object) -> None:
    """Read an option's value where nothing else can be wrong, so that the file is not blamed for it."""
    is_selection = table == "selection" and key in SELECTION_KEYS
    content: Content = {"name": "any", "type": v1.CampaignType.FREEZE.value, "selection": {} if is_selection else ALL}
    _merge(content, table, {key: value})
    try:
        read_campaign(content, file="")
    except FileError as error:
        flag = _flag(key.removesuffix("s") if isinstance(value, list | dict) else key)
        named = error.problem.startswith((f"{key} ", f"{key}: "))
        problem = error.problem.removeprefix(key) if named else f": {error.problem}"
        raise CliError(ExitCode.USAGE, flag + problem) from None


def _name_of(file: Path | None) -> str:
    return "" if file is None else "stdin" if file == STDIN else str(file)


def _read(file: Path) -> Content:
    try:
        text = sys.stdin.read() if file == STDIN else file.read_text(encoding="utf-8")
    except OSError as error:
        raise CliError(ExitCode.USAGE, f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise CliError(ExitCode.USAGE, f"{_name_of(file)}: this is not UTF-8: {error}") from error
    return parse_campaign(text, file=_name_of(file))


def _merge(content: Content, table: str, values: Content) -> None:
    """Lay what was said over what is written; a table that is none is left for the reader to refuse."""
    if not table:
        content.update(values)
    elif values and isinstance(written := content.get(table, {}), dict):
        content[table] = {**written, **values}


def _check_complete(content: Content) -> None:
    missing = [how for key, how in REQUIRED.items() if key not in content]
    if missing:
        raise CliError(ExitCode.USAGE, f"say {', and '.join(missing)}; or name a FILE that says it")


def _spec(values: Mapping[str, Any]) -> Content:
    read = {
        "name": values["name"],
        "type": values["type_"] and values["type_"].value,
        "duration": read_duration(values["duration"], "--duration"),
        "description": values["description"],
        "start_at": values["start_at"],
    }
    return _without_none(read)


def _selection(values: Mapping[str, Any]) -> Content:
    """Return the selection; one that is said takes the place of the file's, whichever way that has it."""
    chosen = {
        "scopes": values["scopes"],
        "hosts": values["hosts"],
        "tags": _tags(values["tags"], "--tag"),
        "all": values["all_"] or None,
    }
    if any(chosen.values()):
        chosen = {"scopes": [], "hosts": [], "tags": {}, "all": False} | _without_none(chosen)
    excluded = {
        "exclude_scopes": values["exclude_scopes"],
        "exclude_hosts": values["exclude_hosts"],
        "exclude_vms": values["exclude_vms"],
        "exclude_tags": _tags(values["exclude_tags"], "--exclude-tag"),
    }
    return _without_none(chosen | excluded)


def _policy(values: Mapping[str, Any]) -> Content:
    durations = {name: read_duration(values[name], _flag(name)) for name in DURATIONS}
    limits = {name: _checked(values[name], Limit.parse, _flag(name)) for name in LIMITS}
    others = {
        "windows": _each(values["windows"], parse_window, "--window"),
        "blackouts": _each(values["blackouts"], parse_blackout, "--blackout"),
        "zone": values["zone"],
        "must_end_inside": values["must_end_inside"],
        "gate": _gate(values["gate"]),
        "halt_after": _halt_after(values["halt_after"]),
        "advance": values["advance"],
    }
    return _without_none(durations | limits | others)


def _without_none(content: Mapping[str, Any]) -> Content:
    return {key: value for key, value in content.items() if value is not None}


def _checked(text: str | None, parse: Callable[[str], object], flag: str) -> str | None:
    if text is not None:
        try:
            parse(text)
        except Invalid as error:
            raise CliError(ExitCode.USAGE, f"{flag}: {error}") from None
    return text


def _each(texts: Iterable[str] | None, parse: Callable[[str], object], flag: str) -> list[str] | None:
    for text in texts or ():
        _checked(text, parse, flag)
    return list(texts) if texts else None


def _gate(text: str | None) -> str | Content | None:
    return {"url": text} if text is not None and "://" in text else text


def _halt_after(text: str | None) -> int | str | None:
    if text is None or text == NONE:
        return text
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1_000_000:
        raise CliError(ExitCode.USAGE, f"--halt-after: {text!r} is no number from 1 on, and not {NONE}")
    return int(text)


def _tags(texts: Iterable[str] | None, flag: str) -> dict[str, str] | None:
    tags = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise CliError(ExitCode.USAGE, f"{flag}: {text!r} is no tag: write it like team=web")
        tags[name] = value
    return tags or None
