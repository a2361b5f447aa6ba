"""Exit codes and error messages of the program. The codes are documented in docs/reference/cli.md and do not change."""

import re
from enum import IntEnum

from forewarn.api.errors import (
    NOT_FOUND_HINTS,
    AmbiguousService,
    ApiError,
    CellNotChosen,
    CellNotFound,
    InvalidCells,
    InvalidUrl,
    NotFound,
    RequestRefused,
)
from forewarn.core.base_error import BaseError
from forewarn.settings.errors import SettingsError
from forewarn.settings.file_reader import FileError


class ExitCode(IntEnum):
    """Exit codes of the program."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    UNREACHABLE = 5
    UNFINISHED = 6


EXIT_INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells expect it."""


class CliError(BaseError):
    """An error that ends the command with a message and an exit code."""

    template = "{message}"
    code: ExitCode
    message: str


EXPECTED_ERRORS = (CliError, ApiError, SettingsError, FileError)
"""Errors whose message is shown without a stack trace."""


HINTS = NOT_FOUND_HINTS | {
    "forbidden": " (FOREWARN_TOKEN or --token-file)",
    "scope-forbidden": " (FOREWARN_TOKEN or --token-file)",
    "invalid-token": " (use FOREWARN_TOKEN or --token-file)",
}
"""What the user can do about a refusal, by its code."""


KEY_PATH = re.compile(r"(?P<path>(?:policy\.|selection\.)?(?P<field>[a-z_]+)(?:[.\[].*?)?): ")
"""The key at the beginning of a message of the service, such as `policy.windows[1].zone`, and the field of its option.

The fields of a campaign are in two tables.
"""

ADVISED_FIELD = re.compile(r"\b(?:use|set|consent with|revoke it with) (now|unannounced|force)$")
"""The end of a message of the service that advises a field of the API whose option has the same name."""


def with_advised_option(message: str) -> str:
    """Return a message of the service that advises the option instead of the field."""
    return ADVISED_FIELD.sub(r"use --\1", message)


def error_message(error: Exception) -> str:
    """Return the message with a hint about the next step, unless the service has already added it."""
    if not isinstance(error, RequestRefused):
        return str(error)
    message, hint = with_advised_option(str(error)), HINTS.get(error.code, "")
    return message if message.endswith(hint) else message + hint


def exit_code(error: Exception) -> ExitCode:
    """Return the exit code for an expected error."""
    match error:
        case CliError():
            return error.code
        case SettingsError() | FileError() | AmbiguousService() | InvalidUrl() | CellNotChosen() | InvalidCells():
            return ExitCode.USAGE
        case NotFound() | CellNotFound():
            return ExitCode.NOT_FOUND
        case RequestRefused(code="invalid-request"):
            return ExitCode.USAGE
        case RequestRefused():
            return ExitCode.REFUSED
        case ApiError():
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.FAILED
