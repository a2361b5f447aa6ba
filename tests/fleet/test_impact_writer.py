"""The impact writer: the steps of an impact of a host can be repeated, and only with the attempt that it names."""

import pytest

from forewarn.core.errors import InvalidTransition
from forewarn.core.impact import Done, Failed, ImpactState
from forewarn.core.impact_lifecycle import Worker, begin
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import Scope
from forewarn.fleet.impact_writer import begin_work, describe_work, settle_work
from tests.core.builders import NOW, a_request, a_scope, a_vm, saved_scope

CONTEXT = RuleContext(policy=EMULATOR)
HV_0 = Worker("hv-0", 1)


def started() -> tuple[Scope, str]:
    change = schedule(a_scope([a_vm("v0", host="hv-0")]), a_request("v0", failure=True), CONTEXT, now=NOW)
    return saved_scope(change), change.result[0]


def test_repeated_begin_returns_the_work_and_changes_nothing() -> None:
    scope, event = started()
    first = begin_work(scope, event, "v0", now=NOW, again=False, attempt=1, worker=HV_0)
    begun = saved_scope(first)
    again = begin_work(begun, event, "v0", now=NOW, again=False, attempt=1, worker=HV_0)
    assert (again.scope, again.entries, again.result) == (begun, (), first.result)
    assert first.result == describe_work(begun, event, "v0")
    assert (first.result.attempt, first.result.host) == (1, "hv-0")


@pytest.mark.parametrize(("worker", "attempt"), [(HV_0, 2), (Worker("hv-0", 2), 1)])
def test_begin_of_another_attempt_or_term_is_no_repetition(worker: Worker, attempt: int) -> None:
    scope, event = started()
    begun = saved_scope(begin(scope, event, "v0", now=NOW, worker=HV_0))
    with pytest.raises(InvalidTransition):
        begin_work(begun, event, "v0", now=NOW, again=False, attempt=attempt, worker=worker)


def test_process_without_hosts_is_refused_to_begin_twice() -> None:
    scope, event = started()
    begun = saved_scope(begin_work(scope, event, "v0", now=NOW, again=False))
    with pytest.raises(InvalidTransition):
        begin_work(begun, event, "v0", now=NOW, again=False, attempt=1)


def test_outcome_is_saved_once() -> None:
    scope, event = started()
    begun = saved_scope(begin(scope, event, "v0", now=NOW, worker=HV_0))
    failed = saved_scope(settle_work(begun, event, "v0", Failed("no"), CONTEXT, now=NOW, attempt=1, worker=HV_0))
    assert failed.event(event).impacts[0].state is ImpactState.FAILED
    assert settle_work(failed, event, "v0", Failed("no"), CONTEXT, now=NOW, attempt=1, worker=HV_0).entries == ()
    ended = saved_scope(settle_work(begun, event, "v0", Done(), CONTEXT, now=NOW, attempt=1, worker=HV_0))
    assert settle_work(ended, event, "v0", Done(), CONTEXT, now=NOW, attempt=1, worker=HV_0).entries == ()
