"""Phases of a workflow: the table of transitions."""

from itertools import product

import pytest

from forewarn.agent.phases import PHASE_TRANSITIONS, HandlerCall, Phase, PhaseTrigger, next_phase


@pytest.mark.parametrize(("phase", "trigger"), list(product(Phase, PhaseTrigger)))
def test_transition_is_in_the_table_or_refused(phase: Phase, trigger: PhaseTrigger) -> None:
    if (phase, trigger) in PHASE_TRANSITIONS:
        assert next_phase(phase, trigger) is PHASE_TRANSITIONS[phase, trigger]
    else:
        with pytest.raises(LookupError, match=phase.value):
            next_phase(phase, trigger)


def test_every_event_that_is_gone_is_recovered_from() -> None:
    assert {phase for phase in Phase if PHASE_TRANSITIONS.get((phase, PhaseTrigger.REMOVED)) is Phase.RECOVER} == (
        {*Phase} - {Phase.RECOVER}
    )


def test_started_event_is_never_prepared_or_approved() -> None:
    after = {PHASE_TRANSITIONS[phase, trigger] for phase, trigger in PHASE_TRANSITIONS if phase is Phase.IMPACT}
    assert after == {Phase.RECOVER}


def test_calls_of_handlers_are_phases() -> None:
    assert [Phase(call.value) for call in HandlerCall] == [Phase.PREPARE, Phase.RECOVER]
