"""The checker finds each violation when it is planted into a history that has none."""

from collections.abc import Callable

import msgspec
import pytest

from tests.end_to_end.cluster.checker import CHECKS, violations
from tests.end_to_end.cluster.history import (
    Document,
    FinalState,
    FinalVm,
    History,
    Limits,
    Line,
    Operation,
    OperationKind,
    Outcome,
    SeenEvent,
    Work,
)

SAVED, REFUSED, UNKNOWN = Outcome.SAVED, Outcome.REFUSED, Outcome.UNKNOWN
NOON = 1_800_000_000.0
"""A point in time on a full second."""

NOT_BEFORE = "2027-01-15T08:00:00Z"
"""The same point."""


def operation(kind: OperationKind, key: str, at: float = 0, outcome: Outcome = SAVED, **fields: str) -> Operation:
    """Return an operation that takes a second."""
    made = Operation(
        kind=kind,
        key=key,
        target="web",
        node="control-0",
        begun_at=NOON + at,
        ended_at=NOON + at + 1,
        outcome=outcome,
    )
    return msgspec.structs.replace(made, **fields)


def line(
    position: int,
    action: str,
    record: str = "scope/web",
    *,
    reason: str = "",
    event: str = "",
    actor: str = "",
    vms: tuple[str, ...] = (),
    facts: dict[str, str] | None = None,
) -> Line:
    return Line(
        position=position,
        record=record,
        action=action,
        reason=reason,
        event=event,
        actor=actor,
        vms=vms,
        facts=facts or {},
    )


def work(vm: str, event: str, at: float, seconds: float | None = 1, scope: str = "web") -> Work:
    ended_at = None if seconds is None else NOON + at + seconds
    return Work(host="hv-0", scope=scope, vm=vm, event=event, begun_at=NOON + at, ended_at=ended_at)


def document(incarnation: int, at: float = 0, *events: SeenEvent, host: str = "hv-0", epoch: str = "e") -> Document:
    return Document(
        host=host, scope="web", vm="web-0", at=NOON + at, epoch=epoch, incarnation=incarnation, events=events
    )


def lived(position: int, event: str, vm: str, reason: str, **facts: str) -> list[Line]:
    """Return the lines of an event from its schedule to its end."""
    return [
        line(position, "scheduled", reason=reason, event=event, vms=(vm,), facts={"not_before": NOT_BEFORE} | facts),
        *(
            line(position + n, action, event=event, vms=(vm,))
            for n, action in enumerate(("started", "impact-begun", "impact-done", "completed"), start=1)
        ),
    ]


def good() -> History:
    """Return the history of a day without faults."""
    final = FinalState(
        vms={
            "web/web-0": FinalVm(host="hv-0", vm_id="id-0", tag="red"),
            "web/web-1": FinalVm(host="hv-1", vm_id="id-1"),
            "web/new": FinalVm(host="hv-0", vm_id="id-2", addresses=("10.0.0.1",)),
        },
        open_events={},
    )
    return History(
        operations=[
            operation(OperationKind.SCHEDULE, "k1", -100, vm="web-0", event="E1"),
            operation(OperationKind.HOLD, "k2", 10),
            operation(OperationKind.READ_HOLD, "k3", 12, value="k2"),
            operation(OperationKind.RELEASE, "k4", 14),
            operation(OperationKind.CHANGE_VM, "k5", 20, vm="web-0", value="red"),
            operation(OperationKind.ADD_VM, "k6", 30, vm="new", value="10.0.0.1"),
            operation(OperationKind.CREATE_TOKEN, "k7", 40, target="ci"),
            operation(OperationKind.START_CAMPAIGN, "k8", 50, target="kernel"),
            operation(OperationKind.SCHEDULE, "k9", 60, UNKNOWN, vm="web-1"),
            operation(OperationKind.SCHEDULE, "k10", 70, REFUSED, vm="web-1"),
            operation(OperationKind.SCHEDULE, "k11", 80, vm="web-0", event="E4"),
            operation(OperationKind.APPROVE, "k12", 82, vm="web-0", event="E4", node="hv-0"),
            operation(OperationKind.CANCEL, "k13", 84, event="E4"),
        ],
        journal=[
            *lived(1, "E1", "web-0", "k1"),
            line(10, "held", reason="k2"),
            line(11, "released", reason="k4"),
            line(12, "vm-changed", vms=("web-0",)),
            line(13, "vm-added", vms=("new",)),
            line(14, "token-created", "token/t", facts={"name": "ci"}),
            line(15, "campaign-started", "campaign/C", reason="k8"),
            *lived(20, "E2", "web-0", "", campaign="C"),
            *lived(30, "E3", "web-1", "", campaign="C"),
            line(40, "scheduled", event="E4", vms=("web-0",), reason="k11", facts={"not_before": NOT_BEFORE}),
            line(41, "approved", event="E4", vms=("web-0",), actor="vm:web-0"),
            line(42, "canceled", event="E4", vms=("web-0",), reason="k13"),
        ],
        work=[work("web-0", "E1", 0), work("web-0", "E2", 55), work("web-1", "E3", 57)],
        documents=[
            document(1),
            document(2, 1, SeenEvent("E1", "Started", ("web-0",))),
            document(1, 2, host="hv-1"),
            document(3, 3),
        ],
        finals={"control-0": final, "control-1": final},
        domains={"web/web-0": 0, "web/web-1": 1, "web/new": 2},
        limits={"C": Limits(scopes=1, vms=1)},
    )


def test_history_without_faults_has_no_violations() -> None:
    assert violations(good()) == []


def replace_operation(history: History, key: str, **fields: object) -> None:
    place = next(n for n, each in enumerate(history.operations) if each.key == key)
    history.operations[place] = msgspec.structs.replace(history.operations[place], **fields)


def replace_final(history: History, node: str, **fields: object) -> None:
    history.finals[node] = msgspec.structs.replace(history.finals[node], **fields)


def lose_change(history: History) -> None:
    """A schedule that was acknowledged is not in the journal."""
    history.journal = [each for each in history.journal if each.event != "E4"]


def lose_approval(history: History) -> None:
    history.journal = [each for each in history.journal if each.event != "E4" or each.action == "scheduled"]
    history.operations = [each for each in history.operations if each.key != "k13"]


def lose_added_vm(history: History) -> None:
    history.journal = [each for each in history.journal if each.action != "vm-added"]


def lose_tag(history: History) -> None:
    """An older value of the tag came back."""
    history.operations.append(operation(OperationKind.CHANGE_VM, "k20", 200, vm="web-0", value="blue"))


def invent_tag(history: History) -> None:
    replace_operation(history, "k5", outcome=REFUSED)


def refuse_what_happened(history: History) -> None:
    replace_operation(history, "k1", outcome=REFUSED)


def refuse_added_vm(history: History) -> None:
    replace_operation(history, "k6", outcome=REFUSED)


def give_a_token_name_twice(history: History) -> None:
    history.operations.append(operation(OperationKind.CREATE_TOKEN, "k20", 90, target="ci"))


def repeat_a_key(history: History) -> None:
    history.journal += lived(50, "E5", "web-0", "k9")
    history.journal += lived(60, "E6", "web-0", "k9")
    history.work += [work("web-0", "E5", 100), work("web-0", "E6", 102)]


def answer_with_another_event(history: History) -> None:
    replace_operation(history, "k11", event="E9")


def reorder_changes(history: History) -> None:
    """A change that ended before another began follows it in the journal."""
    replace_operation(history, "k2", begun_at=NOON + 30, ended_at=NOON + 31)
    replace_operation(history, "k3", value="")


def start_after_the_end(history: History) -> None:
    history.journal.append(line(90, "started", event="E4", vms=("web-0",)))


def complete_without_a_start(history: History) -> None:
    history.journal = [each for each in history.journal if each.event != "E1" or each.action != "scheduled"]
    history.journal = [each for each in history.journal if each.event != "E1" or each.action != "started"]
    replace_operation(history, "k1", outcome=UNKNOWN)


def read_an_old_hold(history: History) -> None:
    replace_operation(history, "k3", value="")


def read_an_old_hold_of_another_node(history: History) -> None:
    """A fresh read does not show what the other node has acknowledged."""
    replace_operation(history, "k2", node="control-1")
    replace_operation(history, "k3", value="", is_fresh=True)


def go_back_in_reads(history: History) -> None:
    """A node shows a hold, then that there was none yet."""
    replace_operation(history, "k2", node="control-1")
    history.operations.append(operation(OperationKind.READ_HOLD, "k20", 13.5, value="k2"))
    replace_operation(history, "k4", begun_at=NOON + 20, ended_at=NOON + 21, node="control-1")
    history.journal = [each for each in history.journal if each.action != "released"]
    history.journal.append(line(11, "held", reason="k21"))
    history.journal.append(line(100, "released", reason="k4"))
    history.operations.append(operation(OperationKind.HOLD, "k21", 15, node="control-1"))
    history.operations.append(operation(OperationKind.READ_HOLD, "k22", 17, value="k21"))
    history.operations.append(operation(OperationKind.READ_HOLD, "k23", 19, value="k2"))


def read_from_the_future(history: History) -> None:
    replace_operation(history, "k3", begun_at=NOON + 2, ended_at=NOON + 3)


def work_too_early(history: History) -> None:
    history.work[0] = work("web-0", "E1", -6)
    history.documents.clear()


def show_a_start_too_early(history: History) -> None:
    history.documents[1] = document(2, -6, SeenEvent("E1", "Started", ("web-0",)))


def approve_too_late(history: History) -> None:
    """The only approval was sent after the work had begun."""
    work_too_early(history)
    history.operations.append(operation(OperationKind.APPROVE, "k20", -5, UNKNOWN, vm="web-0", event="E1", node="hv-0"))


def start_while_held(history: History) -> None:
    history.journal.insert(1, line(2, "started", event="E1", vms=("web-0",)))
    history.journal[0] = msgspec.structs.replace(history.journal[0], position=0)
    history.journal.insert(0, line(1, "held", reason="x"))
    history.journal.append(line(6, "released", reason="x"))


def start_while_the_fleet_is_held(history: History) -> None:
    history.journal.append(line(19, "held", "fleet/hold", reason="x"))
    history.journal.append(line(99, "released", "fleet/hold", reason="x"))


def start_while_the_campaign_is_paused(history: History) -> None:
    history.journal.append(line(19, "campaign-paused", "campaign/C", reason="x"))


def work_in_two_domains(history: History) -> None:
    history.limits.clear()
    history.work[2] = work("web-1", "E3", 55.5)


def work_without_end_in_two_domains(history: History) -> None:
    history.limits.clear()
    history.work[1] = work("web-0", "E2", 55, None)


def show_two_domains(history: History) -> None:
    events = (SeenEvent("E2", "Started", ("web-0",)), SeenEvent("E3", "Started", ("web-1",)))
    history.documents.append(document(4, 60, *events))


def go_back_in_incarnations(history: History) -> None:
    history.documents.append(document(2, 60, SeenEvent("E1", "Started", ("web-0",))))


def show_two_documents_of_one_incarnation(history: History) -> None:
    history.documents.append(document(3, 60, SeenEvent("E2", "Scheduled", ("web-0",)), host="hv-1"))


def share_an_address(history: History) -> None:
    for node in history.finals:
        vms = history.finals[node].vms
        other = msgspec.structs.replace(vms["web/web-1"], addresses=("10.0.0.1",))
        replace_final(history, node, vms=vms | {"web/web-1": other})


def share_an_id(history: History) -> None:
    for node in history.finals:
        vms = history.finals[node].vms
        replace_final(history, node, vms=vms | {"web/web-1": msgspec.structs.replace(vms["web/web-1"], vm_id="id-0")})


def give_an_address_twice(history: History) -> None:
    history.operations.append(operation(OperationKind.ADD_VM, "k20", 90, vm="other", value="10.0.0.1"))
    history.journal.append(line(99, "vm-added", vms=("other",)))


def add_a_vm_twice(history: History) -> None:
    """Two requests were told that they have added the VM."""
    history.operations.append(operation(OperationKind.ADD_VM, "k20", 30, vm="new", value="10.0.0.2"))


def skip_an_impact(history: History) -> None:
    history.work = history.work[1:]


def leave_an_impact_half_done(history: History) -> None:
    history.work[2] = work("web-1", "E3", 57, None)


def complete_an_unsettled_event(history: History) -> None:
    history.journal = [each for each in history.journal if (each.event, each.action) != ("E1", "impact-done")]


def repeat_an_impact(history: History) -> None:
    history.work.append(work("web-0", "E1", 20))


def work_for_a_canceled_event(history: History) -> None:
    history.work.append(work("web-0", "E4", 90))


def leave_an_event_started(history: History) -> None:
    for node in history.finals:
        replace_final(history, node, open_events={"E7": "Started"})


def exceed_the_limit_of_vms(history: History) -> None:
    history.domains["web/web-1"] = 0
    history.work[2] = work("web-1", "E3", 55.5)


def exceed_the_limit_of_scopes(history: History) -> None:
    history.limits["C"] = Limits(scopes=1, vms=2)
    history.work[2] = work("web-1", "E3", 55.5, scope="db")


def disagree(history: History) -> None:
    replace_final(history, "control-1", incarnations={"web": 9})


def purge_old_lines(history: History) -> None:
    """Purge what is old from one node, and only a part of it from the other."""
    history.expired = history.journal[4].position
    history.journals = {"control-0": history.journal[5:], "control-1": history.journal[2:]}


def purge_a_line_that_is_not_old(history: History) -> None:
    purge_old_lines(history)
    history.journals["control-0"] = history.journal[6:]


def lose_a_line_after_a_kept_one(history: History) -> None:
    purge_old_lines(history)
    del history.journals["control-1"][1]


def bring_a_line_that_was_never_read(history: History) -> None:
    purge_old_lines(history)
    history.journals["control-0"].append(line(99, "vm-changed"))


def show_an_event_again(history: History) -> None:
    history.documents.append(document(1, 9, SeenEvent("E1", "Started", ("web-0",)), epoch="f"))


PLANTED: dict[Callable[[History], None], str] = {
    lose_change: "saved",
    lose_approval: "saved",
    lose_added_vm: "saved",
    lose_tag: "saved",
    invent_tag: "saved",
    refuse_what_happened: "saved",
    refuse_added_vm: "saved",
    give_a_token_name_twice: "saved",
    repeat_a_key: "keys",
    answer_with_another_event: "keys",
    reorder_changes: "order",
    start_after_the_end: "order",
    complete_without_a_start: "order",
    read_an_old_hold: "order",
    read_an_old_hold_of_another_node: "order",
    go_back_in_reads: "order",
    read_from_the_future: "order",
    work_too_early: "not-before",
    show_a_start_too_early: "not-before",
    approve_too_late: "not-before",
    start_while_held: "holds",
    start_while_the_fleet_is_held: "holds",
    start_while_the_campaign_is_paused: "holds",
    work_in_two_domains: "domains",
    work_without_end_in_two_domains: "domains",
    show_two_domains: "domains",
    go_back_in_incarnations: "incarnations",
    show_two_documents_of_one_incarnation: "incarnations",
    share_an_address: "unique",
    share_an_id: "unique",
    give_an_address_twice: "unique",
    add_a_vm_twice: "unique",
    skip_an_impact: "impacts",
    leave_an_impact_half_done: "impacts",
    complete_an_unsettled_event: "impacts",
    repeat_an_impact: "impacts",
    work_for_a_canceled_event: "impacts",
    leave_an_event_started: "impacts",
    exceed_the_limit_of_vms: "campaigns",
    exceed_the_limit_of_scopes: "campaigns",
    disagree: "agreement",
    purge_a_line_that_is_not_old: "purges",
    lose_a_line_after_a_kept_one: "purges",
    bring_a_line_that_was_never_read: "purges",
    show_an_event_again: "purges",
}
"""What is planted, and the check that must find it."""


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_violation_is_found(plant: Callable[[History], None]) -> None:
    history = good()
    plant(history)
    assert list(CHECKS[PLANTED[plant]](history))


def test_every_check_has_a_planted_violation() -> None:
    assert set(PLANTED.values()) == set(CHECKS)


def test_old_lines_may_be_purged() -> None:
    history = good()
    purge_old_lines(history)
    assert violations(history) == []


def test_work_may_be_repeated_if_the_program_is_repeatable() -> None:
    history = good()
    repeat_an_impact(history)
    history.is_repeatable = True
    assert violations(history) == []


def test_early_work_is_right_after_an_approval() -> None:
    history = good()
    work_too_early(history)
    history.operations.append(operation(OperationKind.APPROVE, "k20", -8, UNKNOWN, vm="web-0", event="E1", node="hv-0"))
    assert violations(history) == []


def test_plain_read_may_be_behind_another_node() -> None:
    history = good()
    read_an_old_hold_of_another_node(history)
    replace_operation(history, "k3", is_fresh=False)
    assert violations(history) == []


def test_one_of_two_requests_for_the_same_vm_is_refused() -> None:
    history = good()
    history.operations.append(operation(OperationKind.ADD_VM, "k20", 30, REFUSED, vm="new", value="10.0.0.1"))
    assert violations(history) == []


def test_unknown_outcome_may_have_happened_or_not() -> None:
    history = good()
    history.journal += lived(50, "E5", "web-1", "k9")
    history.work.append(work("web-1", "E5", 100))
    assert violations(history) == []
