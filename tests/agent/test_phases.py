"""The table of phase transitions: complete, enforced, and shown in the documentation."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent.phases import PHASE_TRANSITIONS, Phase, PhaseTrigger, next_phase

PAGE = Path(__file__).parents[2] / "docs/explanation/agent-workflow.md"
BEGIN, END = "<!-- transitions -->\n", "<!-- end of transitions -->\n"


def table() -> Iterator[str]:
    """Return the lines of the table."""
    yield "| phase | trigger | next phase |"
    yield "|---|---|---|"
    for trigger in PhaseTrigger:
        sources = [phase.value for phase in Phase if (phase, trigger) in PHASE_TRANSITIONS]
        targets = {PHASE_TRANSITIONS[Phase(source), trigger].value for source in sources}
        yield f"| {', '.join(sources)} | {trigger.value} | {', '.join(targets)} |"


def generated(page: str) -> str:
    """Return the page with the table as it should be."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "".join(f"{line}\n" for line in table()) + END + after


def test_page_has_the_table_of_the_code(rewrite: bool) -> None:
    page = PAGE.read_text()
    if rewrite:
        PAGE.write_text(generated(page))
    else:
        assert page == generated(page)


def test_stale_table_is_found() -> None:
    page = PAGE.read_text()
    stale = page.replace("| notice | handlers notified | prepare |", "| notice | handlers notified | ready |")
    assert stale != page
    assert generated(stale) == page


def test_every_trigger_leads_to_one_phase() -> None:
    targets = {
        trigger: {to for (_, each), to in PHASE_TRANSITIONS.items() if each is trigger} for trigger in PhaseTrigger
    }
    assert {trigger for trigger, phases in targets.items() if len(phases) != 1} == set()


def test_every_phase_is_reached_and_left() -> None:
    assert {to for _, to in PHASE_TRANSITIONS.items()} == set(Phase)
    assert {phase for phase, _ in PHASE_TRANSITIONS} == set(Phase)


def test_transition_outside_the_table_is_refused() -> None:
    with pytest.raises(LookupError, match=r"^a workflow in phase impact has no transition for 'may approve'$"):
        next_phase(Phase.IMPACT, PhaseTrigger.APPROVAL_ALLOWED)
