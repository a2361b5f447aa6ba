"""Random commands on scopes never break a rule of the table of transitions."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.core.scope_state_machine import ScopeStateMachine
from tests.support.examples import examples


@pytest.mark.timeout(900)  # shrinking a failure takes minutes
def test_no_random_command_sequence_breaks_a_rule() -> None:
    run_state_machine_as_test(
        ScopeStateMachine, settings=settings(max_examples=examples(200), stateful_step_count=50, print_blob=True)
    )


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_long_random_command_sequence_breaks_a_rule() -> None:
    run_state_machine_as_test(
        ScopeStateMachine,
        settings=settings(
            max_examples=2000,
            stateful_step_count=100,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
