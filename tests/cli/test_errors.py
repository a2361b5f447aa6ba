"""Exit codes and error messages of the program."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import forewarn.cli
from forewarn.api.errors import AmbiguousService, InvalidUrl, NotFound, RequestRefused, ServiceUnreachable
from forewarn.cli.errors import HINTS, KEY_PATH, CliError, ExitCode, error_message, exit_code
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


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("too early; to start at once, use now", "too early; to start at once, use --now"),
        ("to go ahead anyway, set unannounced", "to go ahead anyway, use --unannounced"),
        ("to start it, consent with unannounced", "to start it, use --unannounced"),
        ("create another first, or revoke it with force", "create another first, or use --force"),
        ("the VM named now", "the VM named now"),
    ],
)
def test_field_that_the_service_advises_is_shown_as_its_option(message: str, shown: str) -> None:
    assert error_message(refused("refused", message=message)) == shown


NAMES_PARAMETER = re.compile(r"--[a-z]|\b[A-Z]{2,}\b|\b(?:flag|options?|given_options|missing_options)\b")
"""An option, the metavar of an argument, or a variable that has the option."""

NOT_ABOUT_PARAMETERS = {"the service needs ", "needs nats-py"}
"""The beginning of messages with the exit code of wrong usage that no option or argument causes."""


def usage_errors() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every usage error of the commands; variables are in braces."""
    root = Path(forewarn.cli.__file__).parent
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name("CliError"), args=[ast.Attribute(attr="USAGE"), message]):
                    yield f"{file.relative_to(root)}:{node.lineno}", ast.unparse(message)
                case _:
                    pass


def test_every_usage_error_names_the_option_or_argument() -> None:
    found = dict(usage_errors())
    assert len(found) > 40
    silent = {place: text for place, text in found.items() if not NAMES_PARAMETER.search(text)}
    assert {
        place: text for place, text in silent.items() if not any(each in text for each in NOT_ABOUT_PARAMETERS)
    } == {}


def test_key_of_a_message_is_found_in_linear_time() -> None:
    """A nested repetition would try each of 2 to the power of 2,000 divisions of this text."""
    assert KEY_PATH.match("tags" + ".a" * 2_000) is None
    found = KEY_PATH.match("policy.windows[1].zone: wrong: x")
    assert found is not None
    assert (found["path"], found["field"]) == ("policy.windows[1].zone", "windows")
