"""Targets of requests: which VMs are selected, how a request is split by scope, and how results are collected."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from forewarn.core.errors import Invalid, NoticeTooShort
from forewarn.core.event import EventType
from forewarn.core.schedule import ScheduleRequest
from forewarn.core.scope import Scope, SeenKey
from forewarn.fleet.errors import (
    AmbiguousVm,
    HostNotFound,
    OutcomeUnknown,
    PartialSchedule,
    SaveFailed,
    ScopeNotFound,
    VmNotFound,
)
from forewarn.fleet.replica import Replica
from forewarn.fleet.targets import collect_scheduled, select_vms, split_by_scope
from tests.core.sample_scopes import TEN, schedule_request, scope, vm

WEB = scope("web", vm("web-0", host="hv-0"), vm("web-1", domain=1, host="hv-1"), vm("same"))
DB = scope("db", vm("db-0", host="hv-0"), vm("same"))


def a_replica(*scopes: Scope) -> Replica:
    replica = Replica()
    for revision, value in enumerate(scopes or (WEB, DB), 1):
        replica.update(value.id, value, revision)
    return replica


def request_for(*vms: str, **fields: Any) -> ScheduleRequest:
    return schedule_request(EventType.REBOOT, *vms, **fields)


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ({"vms": ("web-1", "WEB-0", "web/web-1")}, ("web/web-1", "web/web-0")),
        ({"host": "hv-0"}, ("web/web-0", "db/db-0")),
        ({"host": "hv-0", "scope": "db"}, ("db/db-0",)),
        ({"scope": "web"}, ("web/web-0", "web/web-1", "web/same")),
        ({"scope": "web", "update_domain": 1}, ("web/web-1",)),
        ({"scope": "web", "host": "hv-1", "update_domain": 1}, ("web/web-1",)),
    ],
    ids=str,
)
def test_target_selects_vms(target: dict[str, object], names: tuple[str, ...]) -> None:
    assert select_vms(a_replica(), **target) == names  # type: ignore[arg-type]  # as each case says


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ({}, Invalid),
        ({"vms": ("web-0",), "host": "hv-0"}, Invalid),
        ({"vms": ("web-0",), "update_domain": 0}, Invalid),
        ({"update_domain": 1}, Invalid),
        ({"host": "hv-0", "update_domain": 1}, Invalid),
        ({"scope": "web", "update_domain": 7}, Invalid),
        ({"scope": "db", "host": "hv-1"}, Invalid),
        ({"host": "hv-9"}, HostNotFound),
        ({"scope": "nothing"}, ScopeNotFound),
        ({"vms": ("nothing",)}, VmNotFound),
        ({"vms": ("same",)}, AmbiguousVm),
    ],
    ids=str,
)
def test_target_that_selects_nothing_or_too_much_is_refused(target: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        select_vms(a_replica(), **target)  # type: ignore[arg-type]  # as each case says


def test_request_is_split_by_the_scopes_of_its_vms() -> None:
    request = request_for("web/same", "db-0", "web-0", why="patch")
    assert split_by_scope(a_replica(), request, now=TEN) == {
        "web": msgspec.structs.replace(request, vms=("same", "web-0")),
        "db": msgspec.structs.replace(request, vms=("db-0",)),
    }


def test_request_with_a_key_has_a_digest_of_all_that_it_asks_for() -> None:
    def digest(**fields: object) -> str:
        (part,) = split_by_scope(a_replica(), request_for("web-0", **{"key": "k", **fields}), now=TEN).values()
        return part.digest

    assert len(digest()) == 16
    assert digest(number=2, by="bob", key="other") == digest(), "who asks, the id and the key are not part of it"
    others = {digest(why="x"), digest(notice=timedelta(hours=1)), digest(type=EventType.FREEZE), digest()}
    assert len(others) == 4
    assert digest(digest="given") == "given"
    assert digest(key=None) == ""


def test_scope_that_has_answered_the_key_has_its_part_though_its_vm_has_left() -> None:
    left = msgspec.structs.replace(WEB, seen_keys=(SeenKey(key="k", request="R", at=TEN),))
    request = request_for("gone-0", key="k", digest="d")
    assert split_by_scope(a_replica(left), request, now=TEN) == {"web": request}
    with pytest.raises(VmNotFound):
        split_by_scope(a_replica(left), request, now=TEN + timedelta(days=1))
    with pytest.raises(VmNotFound):
        split_by_scope(a_replica(left), request_for("gone-0", key="other"), now=TEN)


def test_results_of_all_scopes_are_collected() -> None:
    assert collect_scheduled({"web": ("E1", "E2"), "db": ("E3",)}) == (("web", "E1"), ("web", "E2"), ("db", "E3"))
    assert collect_scheduled({}) == ()


def test_error_of_the_only_scope_is_raised_as_it_is() -> None:
    error = NoticeTooShort("Reboot", "15m", TEN, TEN)
    with pytest.raises(NoticeTooShort) as raised:
        collect_scheduled({"web": error})
    assert raised.value is error


def test_error_of_one_scope_has_what_the_others_created() -> None:
    error = ScopeNotFound("db")
    with pytest.raises(PartialSchedule) as raised:
        collect_scheduled({"web": ("E1", "E2"), "db": error})
    assert (raised.value.created, raised.value.reason) == (("web/E1", "web/E2"), str(error))
    assert raised.value.__cause__ is error


def test_unknown_outcome_of_one_scope_says_nothing_about_the_rest() -> None:
    error = OutcomeUnknown("disk I/O error")
    with pytest.raises(OutcomeUnknown) as raised:
        collect_scheduled({"web": ("E1",), "app": SaveFailed("full"), "db": error})
    assert raised.value is error


def test_cancellation_is_raised_whatever_was_created() -> None:
    with pytest.raises(KeyboardInterrupt):
        collect_scheduled({"web": ("E1",), "db": KeyboardInterrupt()})
