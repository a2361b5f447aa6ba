"""Campaign options: build a campaign spec from a campaign file and options; options take precedence."""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from forewarn.api import v1
from forewarn.api.campaign_file import NONE, parse_campaign, read_campaign
from forewarn.api.campaign_spec import spec_view
from forewarn.api.campaign_windows import parse_blackout, parse_window
from forewarn.api.file_reader import FileError
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import choice_option, option, with_options
from forewarn.cli.options.completion import complete_hosts, complete_scopes
from forewarn.cli.options.times import read_duration
from forewarn.core.campaign.spec import Limit
from forewarn.core.errors import Invalid

STDIN = Path("-")

Command = Callable[..., None]
Content = dict[str, Any]


def _text(metavar: str, help_: str, **more: Any) -> Any:
    return Annotated[str | None, typer.Option(metavar=metavar, help=help_, **more)]


def _texts(name: str, metavar: str, help_: str, **more: Any) -> Any:
    return Annotated[list[str] | None, typer.Option(name, metavar=metavar, help=help_, **more)]


FILE = Parameter(
    "file",
    Parameter.KEYWORD_ONLY,
    annotation=Annotated[Path | None, typer.Argument(metavar="FILE", hidden=True)],
    default=None,
)

SPEC = (
    option("name", _text("NAME", "What the campaign is called.")),
    option(
        "type_",
        Annotated[
            v1.CampaignType | None,
            choice_option(v1.CampaignType, "--type", metavar="TYPE", help_="What happens: Freeze, Reboot or Redeploy."),
        ],
    ),
    option("duration", _text("DURATION", "For how long each VM is interrupted: 90s.")),
    option("description", _text("TEXT", "What the VMs are told.")),
    option("start_at", _text("TIME", "Announce nothing before: 2026-01-31T10:15Z.")),
)
SELECTION = (
    option("scopes", _texts("--scope", "NAME", "VMs of this scope, or web-*.", autocompletion=complete_scopes)),
    option("hosts", _texts("--host", "NAME", "VMs on this host, or hv-*.", autocompletion=complete_hosts)),
    option("tags", _texts("--tag", "NAME=VALUE", "VMs with this tag; of several, with all.")),
    option("all_", Annotated[bool, typer.Option("--all", help="All VMs.")], default=False),
    option("exclude_scopes", _texts("--exclude-scope", "NAME", "But none of this scope.")),
    option("exclude_hosts", _texts("--exclude-host", "NAME", "But none on this host.")),
    option("exclude_vms", _texts("--exclude-vm", "VM", "But not this VM.")),
    option("exclude_tags", _texts("--exclude-tag", "NAME=VALUE", "But none with this tag.")),
)
POLICY = (
    option("gap", _text("DURATION", "From a scope's wave to its next: 30m.")),
    option("notice", _text("DURATION", "From the announcement to the start.")),
    option("expected", _text("DURATION", "How long a wave is expected to take.")),
    option("scopes_at_once", _text("LIMIT", "In how many scopes at once: 10, or 10%.")),
    option("hosts_at_once", _text("LIMIT", "On how many hosts at once.")),
    option("vms_at_once", _text("LIMIT", "How many VMs at once.")),
    option(
        "windows",
        _texts("--window", "WINDOW", "When waves may start: 'sat,sun 22:00-04:00 Europe/Vienna'."),
    ),
    option("blackouts", _texts("--blackout", "FROM/TO", "When none may start: 2026-12-24T12:00Z/2027-01-02T06:00Z.")),
    option("zone", _text("ZONE", "Of windows that name none: Europe/Vienna.")),
    option(
        "must_end_inside",
        Annotated[
            bool | None,
            typer.Option("--must-end-inside/--no-must-end-inside", help="Waves have to end in their window, too."),
        ],
    ),
    option("gate", _text("GATE", "Ask this before each next wave: a gate of the settings, or a URL.")),
    option("gate_patience", _text("DURATION", "Halt if the gate is shut for so long: 30m.")),
    option("halt_after", _text("NUMBER", "Halt after so many failures, or none.")),
    option("advance", Annotated[bool | None, typer.Option("--advance/--no-advance", help="Waves may move up.")]),
)
OPTIONS = (*SPEC, *SELECTION, *POLICY)
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
    """Give a command the file and the options of a campaign, and in their place what is asked."""

    @wraps(command)
    def wrapped(connection: object, file: Path | None, **given: Any) -> None:
        values = {item.name: given.pop(item.name) for item in OPTIONS}
        command(connection, campaign_from_options(file, values), **given)

    connection, _, *own = signature(command).parameters.values()
    return with_options(wrapped, (connection, FILE, *OPTIONS, *own))


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


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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
