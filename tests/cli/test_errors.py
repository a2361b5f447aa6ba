"""Exit codes and error messages of the program."""

from pathlib import Path

import pytest

from forewarn.api.errors import AmbiguousService, InvalidUrl, NotFound, RequestRefused, ServiceUnreachable
from forewarn.cli.errors import HINTS, CliError, ExitCode, error_message, exit_code
from forewarn.settings.errors import SettingsConflict
from forewarn.settings.file_reader import FileError


def refused(code: str, status: int = 409, message: str = "no") -> RequestRefused:
    return (NotFound if status == 404 else RequestRefused)(status, code, message, {})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CliError(ExitCode.UNFINISHED, "later"), 6),
        (SettingsConflict("both"), 2),
        (FileError("f", "k", "wrong"), 2),
        (AmbiguousService({}), 2),
        (InvalidUrl("x"), 2),
        (refused("invalid-request", 400), 2),
        (refused("refused"), 3),
        (refused("vm-not-found", 404), 4),
        (ServiceUnreachable("http://h", "down"), 5),
        (ValueError(Path("/x")), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_exit_code_tells_programs_how_it_ended(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_refusal_is_reported_once_with_the_next_step() -> None:
    hint = HINTS["vm-not-found"]
    assert error_message(refused("vm-not-found", 404)) == f"no{hint}"
    assert error_message(refused("vm-not-found", 404, f"no{hint}")) == f"no{hint}"
    assert error_message(refused("unknown-code")) == "no"
    assert error_message(CliError(ExitCode.USAGE, "wrong")) == "wrong"
