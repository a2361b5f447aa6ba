"""The scenarios of the rules, as far as a service can run them: it tells what the pure core tells."""

from pathlib import Path

import pytest

from forewarn.testing.scenario import commands, parse
from tests.testing.scenario.backends import run_on_core, run_on_service, without_reasons

FILES = sorted((Path(__file__).parents[2] / "core/scenarios").glob("*.txt"))

OF_THE_CORE_ALONE = (
    commands.Begin,
    commands.Done,
    commands.Failed,
    commands.Later,
    commands.Unknown,
    commands.State,
    commands.Wake,
)
"""In a service the platform does its work itself, and records are not shown."""

NOT_IN_A_SERVICE = {
    "approvals-may-name-events-in-any-case": "the service draws its own ids",
    "asking-twice-makes-nothing-twice": "requests are told apart by their keys, which are kept for a day",
    "clearing-lifts-nothing-but-the-campaigns-own-hold": "a campaign makes its events itself",
    "clock-step-back-delays-and-never-undoes": "a manual clock does not go back",
    "eleventh-user-operation-is-refused": "the policy changes on the way",
    "event-made-while-off-is-unannounced": "whoever refuses to answer has been asked: the scope is enabled",
    "event-of-a-campaign-starts-only-when-it-is-cleared": "a campaign makes its events itself",
    "held-scope-starts-nothing-planned": "the API refuses an empty reason before the rules do",
    "notice-that-is-too-short-is-refused": "the policy changes on the way",
    "outage-does-not-count-as-silence": "a service that is down answers nobody",
    "stuck-work-is-resolved-on-one-vm-or-on-all": "the API refuses an empty reason before the rules do",
}


def playable(text: str) -> str:
    """The scenario without what a service cannot do; its platform does its work itself."""
    script = parse(text)
    left_out = {
        number
        for step in script.steps
        if isinstance(step.command, OF_THE_CORE_ALONE)
        for number in range(step.line, step.last_line + 1)
    }
    lines = [line for number, line in enumerate(script.lines, start=1) if number not in left_out]
    return "\n".join(["platform automatic", *lines])


@pytest.mark.parametrize("file", [file for file in FILES if file.stem not in NOT_IN_A_SERVICE], ids=lambda f: f.stem)
def test_service_tells_what_the_core_tells(file: Path) -> None:
    text = playable(file.read_text())
    assert without_reasons(run_on_service(text)) == without_reasons(run_on_core(text))


def test_only_stories_that_are_there_are_left_out() -> None:
    assert set(NOT_IN_A_SERVICE) <= {file.stem for file in FILES}
    assert len(NOT_IN_A_SERVICE) * 5 < len(FILES)
