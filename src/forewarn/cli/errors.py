"""Exit codes and error messages of the program. The codes are documented in docs/reference/cli.md and do not change."""

from enum import IntEnum

from forewarn.api.errors import NOT_FOUND_HINTS, AmbiguousService, ApiError, InvalidUrl, NotFound, RequestRefused
from forewarn.core.base_error import BaseError
from forewarn.settings import SettingsError
from forewarn.settings.file_reader import FileError


class ExitCode(IntEnum):
    """What the exit code says."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    UNREACHABLE = 5
    UNFINISHED = 6


EXIT_INTERRUPTED = 130
"""How a command ends on Ctrl-C, as shells expect it."""


class CliError(BaseError):
    """The command ends here, with a message for the user and an exit code for programs."""

    template = "{message}"
    code: ExitCode
    message: str


EXPECTED_ERRORS = (CliError, ApiError, SettingsError, FileError)
"""What a command may raise: the sentence is shown, not the trace."""


HINTS = NOT_FOUND_HINTS | {
    "forbidden": " (FOREWARN_TOKEN or --token-file)",
    "scope-forbidden": " (FOREWARN_TOKEN or --token-file)",
    "invalid-token": " (say which with FOREWARN_TOKEN or --token-file)",
}
"""What a person at a terminal can do about a refusal, by its code."""


def error_message(error: Exception) -> str:
    """Say what happened, and what to do next, unless the service has said that, too."""
    message = str(error)
    hint = HINTS.get(error.code, "") if isinstance(error, RequestRefused) else ""
    return message if message.endswith(hint) else message + hint


def exit_code(error: Exception) -> ExitCode:
    """Tell how the program ends after an expected error."""
    match error:
        case CliError():
            return error.code
        case SettingsError() | FileError() | AmbiguousService() | InvalidUrl():
            return ExitCode.USAGE
        case NotFound():
            return ExitCode.NOT_FOUND
        case RequestRefused(code="invalid-request"):
            return ExitCode.USAGE
        case RequestRefused():
            return ExitCode.REFUSED
        case ApiError():
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.FAILED
