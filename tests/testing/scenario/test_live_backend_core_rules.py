"""The rules' scenarios in a running service, as far as it supports them: the facts are those of the core."""

from pathlib import Path

import pytest

from forewarn.testing.scenario import commands, parse
from tests.testing.scenario.backends import run_on_core, run_on_service, without_reasons

FILES = sorted((Path(__file__).parents[2] / "core/scenarios").glob("*.txt"))

CORE_ONLY = (
    commands.Begin,
    commands.Done,
    commands.Failed,
    commands.Later,
    commands.Unknown,
    commands.State,
    commands.Wake,
)
"""A service's platform carries out its work itself, and a service does not show its records."""

NOT_IN_A_SERVICE = {
    "event-ids-and-vm-names-ignore-case": "the service creates its own ids",
    "repeated-request-creates-no-second-event": "a service identifies requests by their keys, which it keeps for a day",
    "clearing-removes-only-the-campaigns-own-hold": "a campaign creates its events itself",
    "clock-step-back-only-delays": "a manual clock cannot go back",
    "due-times-go-by-the-callers-clock": "a manual clock cannot go back",
    "eleventh-user-operation-is-refused": "the policy changes during the scenario",
    "event-of-a-disabled-scope-is-unannounced": "even a refused guest request enables the scope",
    "campaign-event-starts-only-when-cleared": "a campaign creates its events itself",
    "scope-hold-stops-planned-maintenance": "the API refuses an empty reason before the rules do",
    "notice-that-is-too-short-is-refused": "the policy changes during the scenario",
    "outage-does-not-count-towards-the-idle-timeout": "a running service cannot simulate an outage",
    "stuck-work-can-be-resolved-on-one-vm-or-on-all": "the API refuses an empty reason before the rules do",
}


def supported(text: str) -> str:
    """Return the scenario with an automatic platform and without the commands that only the core supports."""
    script = parse(text)
    left_out = {
        number
        for step in script.steps
        if isinstance(step.command, CORE_ONLY)
        for number in range(step.line, step.last_line + 1)
    }
    lines = [line for number, line in enumerate(script.lines, start=1) if number not in left_out]
    return "\n".join(["platform automatic", *lines])


@pytest.mark.parametrize("file", [file for file in FILES if file.stem not in NOT_IN_A_SERVICE], ids=lambda f: f.stem)
def test_service_gives_the_same_facts_as_the_core(file: Path) -> None:
    text = supported(file.read_text())
    assert without_reasons(run_on_service(text)) == without_reasons(run_on_core(text))


def test_excluded_scenarios_exist_and_are_few() -> None:
    assert set(NOT_IN_A_SERVICE) <= {file.stem for file in FILES}
    assert len(NOT_IN_A_SERVICE) * 5 < len(FILES)
