"""The table of transitions: a transition that is not in the table is refused."""

import pytest

from forewarn.core.errors import InvalidTransition
from forewarn.core.event import TRANSITIONS, State, Trigger, find_transition


@pytest.mark.parametrize(("state", "move"), [(state, move) for state in State for move in Trigger])
def test_transition_is_in_the_table_or_refused(state: State, move: Trigger) -> None:
    if (state, move) in TRANSITIONS:
        assert find_transition("E", state, move) == TRANSITIONS[state, move]
    else:
        with pytest.raises(InvalidTransition, match=f"event E is {state.value}: it cannot {move.value}"):
            find_transition("E", state, move)


def test_no_transition_leaves_the_end_or_returns_to_the_beginning() -> None:
    assert {state for state, _ in TRANSITIONS} == {State.NONE, State.SCHEDULED, State.STARTED}
    assert State.NONE not in {found.to for found in TRANSITIONS.values()}
    assert (State.STARTED, State.SCHEDULED) not in {(state, found.to) for (state, _), found in TRANSITIONS.items()}
