"""Faults: what they accept, how they are written, and what the journal keeps of them."""

from datetime import timedelta
from typing import Any

import pytest

from forewarn.core.errors import Invalid
from forewarn.core.fault import (
    DEFAULT_AMOUNTS,
    MAX_AMOUNTS,
    MAX_TIMES,
    STATUSES,
    Fault,
    FaultKind,
    add_fault_entry,
    default_amount,
    fault_facts,
    format_signed_duration,
    parse_fault_kind,
    parse_signed_duration,
)
from forewarn.core.journal import EntryKind
from tests.core.builders import NOW, a_scope, a_vm

HOUR = timedelta(hours=1)


def a_fault(kind: FaultKind = FaultKind.STATUS_500, **fields: Any) -> Fault:
    return Fault(id="f1", kind=kind, by="ann", set_at=NOW, **fields)


@pytest.mark.parametrize("text", ["status-500", "500", " 500 ", "STATUS-500"])
def test_status_is_parsed_from_its_name_or_its_number(text: str) -> None:
    assert parse_fault_kind(text) is FaultKind.STATUS_500


@pytest.mark.parametrize("text", ["404", "", "status-", "slow!"])
def test_unknown_kind_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_fault_kind(text)
    assert all(kind.value in str(refused.value) for kind in FaultKind)


def test_every_kind_is_parsed_from_its_own_name() -> None:
    assert [parse_fault_kind(kind.value) for kind in FaultKind] == list(FaultKind)


def test_status_kinds_carry_their_status() -> None:
    assert {kind.value: f"status-{status}" for kind, status in STATUSES.items()} == {
        kind.value: kind.value for kind in FaultKind if kind.value.startswith("status-")
    }


def test_kinds_with_an_amount_have_a_default_within_their_limit() -> None:
    assert DEFAULT_AMOUNTS.keys() == MAX_AMOUNTS.keys()
    assert [a_fault(kind, amount=amount).amount for kind, amount in DEFAULT_AMOUNTS.items()] == [
        *DEFAULT_AMOUNTS.values()
    ]
    assert {kind for kind in FaultKind if default_amount(kind) is None} == {*FaultKind} - {*DEFAULT_AMOUNTS}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (FaultKind.STATUS_500, {"times": 0}),
        (FaultKind.STATUS_500, {"times": MAX_TIMES + 1}),
        (FaultKind.STATUS_500, {"amount": HOUR}),
        (FaultKind.SLOW, {"amount": timedelta(0)}),
        (FaultKind.SLOW, {"amount": -HOUR}),
        (FaultKind.SLOW, {"amount": timedelta(minutes=10, microseconds=1)}),
        (FaultKind.LATE_FIRST_ANSWER, {"amount": timedelta(minutes=2, microseconds=1)}),
        (FaultKind.WRONG_DATE, {"amount": timedelta(0)}),
        (FaultKind.WRONG_DATE, {"amount": -timedelta(days=3651)}),
    ],
)
def test_fault_out_of_its_limits_is_refused(kind: FaultKind, fields: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        a_fault(kind, **fields)


def test_largest_fault_of_each_kind_is_accepted() -> None:
    assert a_fault(times=MAX_TIMES).times == MAX_TIMES
    assert {kind: a_fault(kind, amount=most).amount for kind, most in MAX_AMOUNTS.items()} == MAX_AMOUNTS
    assert a_fault(FaultKind.WRONG_DATE, amount=-timedelta(days=3650)).amount == -timedelta(days=3650)


def test_fault_is_exhausted_after_its_last_request() -> None:
    assert [a_fault(times=2, hits=hits).is_exhausted for hits in (0, 1, 2, 3)] == [False, False, True, True]
    assert not a_fault(hits=MAX_TIMES).is_exhausted


@pytest.mark.parametrize(
    ("text", "duration"), [("1h", HOUR), ("-1h", -HOUR), ("0s", timedelta(0)), ("-1m30s", -timedelta(seconds=90))]
)
def test_duration_may_be_negative(text: str, duration: timedelta) -> None:
    assert (parse_signed_duration(text), format_signed_duration(duration)) == (duration, text)


@pytest.mark.parametrize("text", ["--1h", "-", "1h-"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_signed_duration(text)


def test_journal_entry_has_the_fault_and_at_its_end_the_requests_it_hit() -> None:
    scope = a_scope([a_vm("v0")])
    fault = a_fault(FaultKind.WRONG_DATE, vm="web/v0", amount=-HOUR, times=3, until=NOW + HOUR, hits=2)
    facts = {
        "fault": "f1",
        "kind": "wrong-date",
        "vm": "web/v0",
        "amount": "-1h",
        "times": "3",
        "until": "2030-01-07T11:00:00Z",
    }
    assert fault_facts(fault, EntryKind.FAULT_SET) == facts
    assert fault_facts(fault, EntryKind.FAULT_ENDED) == {**facts, "hits": "2"}
    (entry,) = add_fault_entry(scope, EntryKind.FAULT_CLEARED, fault, by="bob", why="over", now=NOW).entries
    assert (entry.kind, entry.by, entry.why, entry.vms) == (EntryKind.FAULT_CLEARED, "bob", "over", ("v0",))
    assert entry.facts == {**facts, "hits": "2"}


def test_fault_of_all_vms_has_no_facts_that_were_not_given() -> None:
    assert a_fault().facts == {"fault": "f1", "kind": "status-500", "vm": "all"}
