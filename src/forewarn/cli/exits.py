"""How the program ends. The numbers are documented in docs/reference/cli.md and do not change."""

from enum import IntEnum

from forewarn.api.advice import LISTED_BY
from forewarn.api.errors import ApiError, NotFound, NoUrl, Refusal, SeveralServices
from forewarn.api.written import FleetFileError
from forewarn.settings import SettingsError


class Exit(IntEnum):
    """What the exit code says."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    UNREACHABLE = 5
    UNFINISHED = 6


INTERRUPTED = 130
"""How a command ends on Ctrl-C, as shells expect it."""


class Stop(Exception):
    """The command ends here, with a sentence for the user and a code for programs."""

    def __init__(self, code: Exit, message: str) -> None:
        self.code = code
        super().__init__(message)


EXPECTED = (Stop, ApiError, SettingsError, FleetFileError)
"""What a command may raise: the sentence is shown, not the trace."""


HINTS = LISTED_BY | {
    "forbidden": " (FOREWARN_TOKEN or --token-file)",
    "scope-forbidden": " (FOREWARN_TOKEN or --token-file)",
    "wrong-token": " (say which with FOREWARN_TOKEN or --token-file)",
}
"""What a person at a terminal can do about a refusal, by its code."""


def sentence(error: Exception) -> str:
    """Say what happened, and what to do next, unless the service has said that, too."""
    said = str(error)
    hint = HINTS.get(error.code, "") if isinstance(error, Refusal) else ""
    return said if said.endswith(hint) else said + hint


def exit_code(error: Exception) -> Exit:
    """Tell how the program ends after an expected error."""
    match error:
        case Stop():
            return error.code
        case SettingsError() | FleetFileError() | SeveralServices() | NoUrl():
            return Exit.USAGE
        case NotFound():
            return Exit.NOT_FOUND
        case Refusal(code="malformed"):
            return Exit.USAGE
        case Refusal():
            return Exit.REFUSED
        case ApiError():
            return Exit.UNREACHABLE
        case _:
            return Exit.FAILED
