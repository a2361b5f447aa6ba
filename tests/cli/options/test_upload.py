"""`--upload`: the report of a check is on the pages of the emulator that the environment names."""

import pytest

from forewarn.cli.errors import ExitCode
from forewarn.testing import Forewarn
from tests.cli.in_process import run
from tests.support.program import Machine
from tests.testing.conformance.mock import MockEndpoint, run_mock

QUICK = ("--pace", "10000", "--timeout", "30s", "--upload")


def test_report_is_added_to_the_named_emulator(machine: Machine, forewarn: Forewarn) -> None:
    with run_mock(MockEndpoint()) as url:
        ended = run(machine, "conformance", url, *QUICK, **forewarn.environment)
    (report,) = forewarn.api.reports().reports
    assert (ended.code, report.kind, report.subject, report.passed) == (0, "conformance", url, True)
    assert f"Report: {forewarn.url}/ui/emulator/reports/{report.id}\n" in ended.stderr


def test_token_is_read_from_the_named_file(machine: Machine, forewarn: Forewarn) -> None:
    (machine.home / "token").write_text("wrong")
    environ = {"FOREWARN_URL": forewarn.url, "FOREWARN_TOKEN_FILE": str(machine.home / "token"), "FOREWARN_CELLS": "-"}
    ended = run(machine, "conformance", "http://127.0.0.1:1", *QUICK, **environ)
    assert (ended.code, ended.stdout) == (ExitCode.REFUSED, ""), ended.stderr


def test_missing_emulator_is_noticed_before_the_check(machine: Machine) -> None:
    ended = run(machine, "conformance", "http://127.0.0.1:1", *QUICK)
    assert (ended.code != 0, ended.stdout, "no service" in ended.stderr) == (True, "", True), ended.stderr


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"FOREWARN_TOKEN": "a b"}, "FOREWARN_TOKEN: the value is not a token"),
        (
            {"FOREWARN_URL": "http://127.0.0.1:1"},
            "FOREWARN_URL requires a token: set FOREWARN_TOKEN or use FOREWARN_TOKEN_FILE",
        ),
        ({"FOREWARN_URL": "ftp://x", "FOREWARN_TOKEN": "t"}, "FOREWARN_URL: ftp://x is not the URL of a service"),
        ({"FOREWARN_CONFIG": "gone.toml"}, "FOREWARN_CONFIG: gone.toml: cannot be read"),
    ],
    ids=["token", "no token", "url", "config"],
)
def test_wrong_variable_is_named(machine: Machine, variables: dict[str, str], message: str) -> None:
    """The commands with `--upload` have no options for the connection."""
    ended = run(machine, "conformance", "http://127.0.0.1:1", *QUICK, **variables)
    assert (ended.code, ended.stdout) == (ExitCode.USAGE, "")
    assert ended.stderr.startswith(f"forewarn: {message}")
