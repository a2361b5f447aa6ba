"""Campaign options: build a campaign spec from a campaign file and options. Options override the file.

The options are derived from the fields of `core/campaign/spec.py`: a new key of a policy needs no change here.
"""

import sys
from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from forewarn.api import v1
from forewarn.api.campaign_file import parse_campaign, read_campaign
from forewarn.api.errors import RequestRefused
from forewarn.api.table_reader import NONE
from forewarn.api.v1.campaign_spec import spec_request
from forewarn.cli.errors import KEY_PATH, CliError, ExitCode
from forewarn.cli.options.common import FILE_PATH, Command, with_options
from forewarn.cli.options.field_option import SELECTION_KEYS, FieldOption, field_options
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Selection
from forewarn.settings.file_reader import FileError, FileValue

STDIN = Path("-")

Content = dict[str, Any]

TABLES: Mapping[str, type[msgspec.Struct]] = {"": CampaignSpec, "selection": Selection, "policy": CampaignPolicy}
"""The structs whose fields are options, by the table of the campaign file that has them."""

OPTIONS = field_options(TABLES)
REQUIRED = {"name": "--name", "type": "--type", "selection": "one of --scope, --host, --tag and --all"}
"""The required keys and the options that set them."""

ALL = {"all": True}


def with_campaign(command: Command) -> Command:
    """Add the argument FILE and the campaign options to a command, which receives the resulting `spec`."""

    @wraps(command)
    def wrapped(file: Path | None, **given: Any) -> None:
        values = {each.parameter: given.pop(each.parameter) for each in OPTIONS}
        document = read_document(file)
        spec = campaign_from_options(document, values)
        try:
            command(spec=spec, **given)
        except RequestRefused as error:
            raise _with_line(error, document) from error

    file_argument = click.argument("file", type=FILE_PATH, metavar="[FILE]", required=False)
    return with_options((file_argument, *(each.declare() for each in OPTIONS)))(wrapped)


def campaign_from_options(document: FileValue, values: Mapping[str, Any]) -> v1.CampaignRequest:
    """Build the campaign spec from the file's content and options. Errors name the key or option.

    `values` has the typed values by parameter.
    """
    content: Content = {key: each.value for key, each in document.entries().items()}
    given: dict[str, Content] = {table: {} for table in TABLES}
    for each in OPTIONS:
        typed = values[each.parameter]
        if each.is_clearable and typed in (NONE, (NONE,)):
            _remove(content, each)
        elif (value := each.read(typed)) is not None:
            _check_option(each, value)
            given[each.table][each.key] = value
    _check_exclusive(given["selection"])
    if not given["selection"].keys().isdisjoint(SELECTION_KEYS):  # replaces the selection of the file
        given["selection"] = {"scopes": [], "hosts": [], "tags": {}, "all": False} | given["selection"]
    for table, values in given.items():
        _merge(content, table, values)
    if not document.file:
        _check_complete(content)
    return spec_request(read_campaign(document.with_value(content), file=document.file))


def _with_line(error: RequestRefused, document: FileValue) -> RequestRefused:
    """Return the refusal with file and line of the key at its beginning, if the value comes from the file.

    If it comes from an option, the message begins with the option instead.
    """
    found = KEY_PATH.match(error.message)
    line = document.at(found["path"]).line if found else None
    if line is None:
        return error
    message = str(FileError(document.file, "", error.message, line))
    return type(error)(error.status, error.code, message, error.details)


def _remove(content: Content, cleared: FieldOption) -> None:
    """Remove the option's key from the file's content."""
    written = content.get(cleared.table) if cleared.table else content
    if isinstance(written, dict):
        written.pop(cleared.key, None)


def _check_option(given: FieldOption, value: object) -> None:
    """Check an option's value in an otherwise valid spec, so that an error names the option and not the file."""
    key, is_selection = given.key, given.table == "selection" and given.key in SELECTION_KEYS
    content: Content = {"name": "any", "type": v1.CampaignType.FREEZE.value, "selection": {} if is_selection else ALL}
    _merge(content, given.table, {key: value})
    try:
        read_campaign(FileValue("", "", content), file="")
    except FileError as error:
        raise CliError(ExitCode.USAGE, f"{given.flag}: {error.problem}") from None


def _check_exclusive(selection: Content) -> None:
    """Refuse --all together with options that select some VMs."""
    keys = selection.keys() & {*SELECTION_KEYS} - {"all"}
    if "all" in selection and keys:
        some = " or ".join(each.flag for each in OPTIONS if each.key in keys)
        raise CliError(ExitCode.USAGE, f"--all and {some} are mutually exclusive")


def read_document(file: Path | None) -> FileValue:
    """Read the campaign file, without checking its keys; without a file it is empty and has no name."""
    if file is None:
        return FileValue("", "", {})
    name = "stdin" if file == STDIN else str(file)
    try:
        text = sys.stdin.read() if file == STDIN else file.read_text(encoding="utf-8")
    except OSError as error:
        raise CliError(ExitCode.USAGE, f"FILE: cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise CliError(ExitCode.USAGE, f"FILE: {name}: not valid UTF-8: {error}") from error
    return parse_campaign(text, file=name)


def _merge(content: Content, table: str, values: Content) -> None:
    """Override the content of a table with the options' values; a value that is not a table is refused later."""
    if not table:
        content.update(values)
    elif values and isinstance(written := content.get(table, {}), dict):
        content[table] = {**written, **values}


def _check_complete(content: Content) -> None:
    missing = [how for key, how in REQUIRED.items() if key not in content]
    if missing:
        raise CliError(ExitCode.USAGE, f"missing: {'; '.join(missing)}; or use a FILE that has it")
