"""A campaign as a user types it: as the texts of a form and as TOML, which have the same content."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from forewarn.api.campaign_file import parse_campaign, read_campaign
from forewarn.api.table_comments import keep_comments
from forewarn.api.table_writer import toml_text
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.errors import Invalid, NoticeTooShort
from forewarn.fleet.errors import GateNotFound
from forewarn.operator.dashboard.campaign_form import Content, form_content, form_fields, form_texts
from forewarn.operator.errors import GateNotAllowed, ScopeNotAllowed, SelectionNotAllowed
from forewarn.settings.file_reader import FileError, FileValue

MISSING = ("required key is missing", "select VMs by ")
"""How the problems of a file begin that is not complete yet."""

ERROR_KEYS: Mapping[type[Exception], str] = {
    NoticeTooShort: "policy.notice",
    GateNotFound: "policy.gate",
    GateNotAllowed: "policy.gate",
    ScopeNotAllowed: "selection.scopes",
    SelectionNotAllowed: "selection",
}
"""The key that an error is about."""

SYNTAX_LINE = re.compile(r"\(at line (\d+), column \d+\)$")


class InputError(NamedTuple):
    """What is wrong with an input. The message names line and key, as far as they are known."""

    message: str
    key: str = ""
    """The field of the form; empty if none."""
    line: int | None = None
    is_incomplete: bool = False
    """Whether something is still missing, rather than wrong."""


class CampaignInput(NamedTuple):
    """A campaign as a user types it."""

    toml: str
    texts: dict[str, str] | None
    """The texts of the form, by key; None if the form cannot show all that the TOML has."""
    spec: CampaignSpec | None
    error: InputError | None
    """Why it has no spec."""

    def locate(self, error: Exception) -> InputError:
        """Return an error of a rule, a permission or the plan with the line and key that it is about."""
        key, problem = ERROR_KEYS.get(type(error), ""), str(error)
        if isinstance(error, Invalid):
            key, problem = error.field, error.problem
        return _input_error(parse_campaign(self.toml, file="").at(key).error(problem))


def read_input(texts: Mapping[str, str] | None, toml: str) -> CampaignInput:
    """Return the input for what the user has typed: in the form, if its texts are given, else in the TOML."""
    try:
        return input_from_toml(toml) if texts is None else input_from_form(texts, before=toml)
    except RecursionError:
        return unread_input(texts, toml, "it has more levels of tables and lists than can be read")


def unread_input(texts: Mapping[str, str] | None, toml: str, problem: str) -> CampaignInput:
    """Return the input for what cannot be read."""
    return CampaignInput(toml, None if texts is None else dict(texts), None, InputError(problem))


def input_from_form(texts: Mapping[str, str], *, before: str = "") -> CampaignInput:
    """Return the input for the texts of the form; the TOML keeps the comments that it had before."""
    toml = keep_comments(toml_text(form_content(texts)), before=before)
    spec, error = _read(parse_campaign(toml, file=""))
    return CampaignInput(toml, dict(texts), spec, error)


def input_from_toml(toml: str) -> CampaignInput:
    """Return the input for a TOML text."""
    try:
        file = parse_campaign(toml, file="")
    except FileError as error:
        found = SYNTAX_LINE.search(error.problem)
        line = int(found[1]) if found else error.line or toml.rstrip().count("\n") + 1  # the end of the document
        return CampaignInput(toml, None, None, InputError(str(error), line=line))
    content: Content = {key: each.value for key, each in file.entries().items()}  # type: ignore[misc]  # TOML values
    texts = form_texts(content)
    spec, wrong = _read(file)
    again = form_content(texts)
    is_same = again == content or (spec is not None and _read(FileValue("", "", again))[0] == spec)
    return CampaignInput(toml, texts if is_same else None, spec, wrong)


def _read(file: FileValue) -> tuple[CampaignSpec | None, InputError | None]:
    try:
        return read_campaign(file, file=""), None
    except FileError as error:
        return None, _input_error(error)


def _input_error(error: FileError) -> InputError:
    return InputError(str(error), _field_key(error.key), error.line, error.problem.startswith(MISSING))


def _field_key(key: str) -> str:
    """Return the field of the form to which a key belongs: `policy.windows` for `policy.windows[1].zone`."""
    keys, place = {field.key for field in form_fields()}, re.sub(r"\[\d+\].*", "", key)
    while place and place not in keys:
        place = place.rpartition(".")[0]
    return place
