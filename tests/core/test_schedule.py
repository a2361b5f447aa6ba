"""Schedule requests: what they refuse, the events they create, and what a repeated request returns."""

import itertools
import re
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from forewarn.core.api_version import ApiVersion
from forewarn.core.change import (
    derive_id,
)
from forewarn.core.errors import (
    CoreError,
    EvictionNotAllowed,
    Invalid,
    KeyConflict,
    NotAnnounced,
    NoticeTooShort,
    RefusedError,
    SourceNotAllowed,
    TooManyOperations,
    TypeNotReleased,
)
from forewarn.core.event import Cause, Event, EventType, Source, State
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.journal import EntryKind
from forewarn.core.limits import (
    MAX_RECENT_ITEMS,
    MAX_TEXT_LENGTH,
)
from forewarn.core.operations import cancel
from forewarn.core.policy import EMULATOR, Policy, RuleContext
from forewarn.core.schedule import (
    MAX_NOTICE,
    ceil_to_second,
    events_of_request,
    group_vms,
    join_refusals,
    minimum_notice,
    request_of_key,
    schedule,
)
from forewarn.core.scope import SeenKey
from forewarn.core.vm import Priority, Traits
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

ALWAYS = RuleContext(policy=EMULATOR)


def test_key_is_remembered_after_its_events_are_forgotten() -> None:
    """An old key whose event is no longer in `ended` must not create the event again."""
    scope = a_scope([a_vm("v0")])
    scope = saved_scope(schedule(scope, a_request("v0", key="first"), ALWAYS, now=NOW))
    scope = saved_scope(cancel(scope, scope.events[0].id, ALWAYS, by="test", now=NOW))
    for number in range(MAX_RECENT_ITEMS):
        scope = saved_scope(schedule(scope, a_request("v0", id=guid(number)), ALWAYS, now=NOW))
        scope = saved_scope(cancel(scope, scope.events[0].id, ALWAYS, by="test", now=NOW))
    change = schedule(scope, a_request("v0", id=guid("other"), key="first"), ALWAYS, now=NOW)
    assert (change.scope, change.entries, change.result) == (scope, (), ())


def test_request_ids_are_not_case_sensitive() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0", id=guid(1).lower()), ALWAYS, now=NOW))
    assert schedule(scope, a_request("v0", id=guid(1)), ALWAYS, now=NOW).result == events_of_request(scope, guid(1))


@pytest.mark.parametrize("field", ["description", "why", "by"])
def test_texts_of_an_event_have_a_limit(field: str) -> None:
    scope = a_scope([a_vm("v0")])
    schedule(scope, a_request("v0", **{field: "x" * MAX_TEXT_LENGTH}), ALWAYS, now=NOW)
    with pytest.raises(Invalid, match="has 513 characters: at most 512 are allowed"):
        schedule(scope, a_request("v0", **{field: "x" * (MAX_TEXT_LENGTH + 1)}), ALWAYS, now=NOW)


@pytest.mark.parametrize("key", ["", "k" * 65, "a b", "ü", 'a"b', "a\\b", "a\n"])
def test_invalid_request_key_is_refused(key: str) -> None:
    with pytest.raises(Invalid, match="a request key must be 1 to 64 printable ASCII characters"):
        a_request("v0", key=key)


def test_refusal_changes_nothing() -> None:
    """A draft that is refused leaves no trace: the scope is a value."""
    scope = a_scope([a_vm("v0")])
    before = msgspec.json.encode(scope)
    with pytest.raises(RefusedError):
        schedule(scope, a_request("v0", type=EventType.PREEMPT), ALWAYS, now=NOW)
    assert msgspec.json.encode(scope) == before


def test_every_possible_cause_has_a_description() -> None:
    """Make one request of each allowed kind; the description is one short sentence."""
    vms = [a_vm("v0", traits=Traits(priority=Priority.LOW))]
    described: set[tuple[EventType, Cause]] = set()
    everything = RuleContext(policy=msgspec.structs.replace(ALWAYS.policy, allows_unreleased=True))
    for type_, source, failure in itertools.product(EventType, Source, (False, True)):
        try:
            change = schedule(
                a_scope(vms), a_request("v0", type=type_, source=source, failure=failure), everything, now=NOW
            )
        except CoreError:
            continue
        (event,) = saved_scope(change).events
        described.add((event.type, event.cause))
        assert event.description == EVENT_TYPES[event.type].descriptions[event.cause]
        assert re.fullmatch(r"[A-Z][^;]{10,80}\.", event.description)
    assert described == {(type_, cause) for type_, spec in EVENT_TYPES.items() for cause in spec.descriptions}


def test_description_of_the_request_takes_precedence() -> None:
    (event,) = saved_scope(
        schedule(a_scope([a_vm("v0")]), a_request("v0", description="Mine."), ALWAYS, now=NOW)
    ).events
    assert event.description == "Mine."


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "request id": (lambda: a_request("v0", id="1"), "request id '1' is not a GUID"),
    "request without VMs": (a_request, "name at least one VM"),
    "two times": (
        lambda: a_request("v0", not_before=NOW, notice=timedelta(0)),
        "not_before and notice are mutually exclusive",
    ),
    "digest that is too long": (lambda: a_request("v0", digest="d" * 17), "a digest is at most 16 ASCII characters"),
    "failure with notice": (
        lambda: a_request("v0", failure=True, notice=timedelta(0)),
        "a hardware failure has no notice, and its source is Platform",
    ),
    "failure of a user's": (
        lambda: a_request("v0", failure=True, source=Source.USER),
        "a hardware failure has no notice, and its source is Platform",
    ),
    "now with a notice": (
        lambda: a_request("v0", at_once=True, notice=timedelta(0)),
        "now excludes notice and not_before",
    ),
    "now with a start": (lambda: a_request("v0", at_once=True, not_before=NOW), "now excludes notice and not_before"),
    "negative notice": (lambda: a_request("v0", notice=timedelta(seconds=-1)), "notice must be 0 to 366 days"),
    "failing Freeze": (
        lambda: a_request("v0", type=EventType.FREEZE, failure=True),
        "a hardware failure must be a Reboot or Redeploy, not a Freeze",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_request_is_refused(case: str) -> None:
    create, message = REFUSED[case]
    with pytest.raises(Invalid, match=re.escape(message)):
        create()


def test_request_becomes_one_event_per_update_domain_and_host() -> None:
    vms = [a_vm("v0", host="hv-0"), a_vm("v1", host="hv-0"), a_vm("v2", host="hv-1"), a_vm("v3", update_domain=1)]
    assert group_vms(vms) == [(vms[0], vms[1]), (vms[2],), (vms[3],)]
    change = schedule(a_scope(vms), a_request("v3", "v2", "v1", "v0"), ALWAYS, now=NOW)
    scope = saved_scope(change)
    assert [(event.vms, event.update_domain, event.host) for event in scope.events] == [
        (("v3",), 1, None),
        (("v2",), 0, "hv-1"),
        (("v1", "v0"), 0, "hv-0"),
    ]
    assert change.result == tuple(event.id for event in scope.events) == events_of_request(scope, guid("request"))


def test_created_event_has_everything_that_was_asked_for() -> None:
    vms = [a_vm("v0", host="hv-0", role_instance=True), a_vm("v1", host="hv-0")]
    ask = a_request("v0", "v1", why="patch", duration=timedelta(seconds=30), campaign="c1", wave=2, key="k", digest="d")
    change = schedule(a_scope(vms), ask, RuleContext(policy=Policy(speed=2.0)), now=NOW)
    scope = saved_scope(change)
    assert scope.events == (
        Event(
            id=derive_id(ask.id, "web", 0, "hv-0"),
            request=guid("request"),
            type=EventType.REBOOT,
            state=State.SCHEDULED,
            source=Source.PLATFORM,
            cause=Cause.MAINTENANCE,
            vms=("v0", "v1"),
            role_instances=("v0",),
            update_domain=0,
            host="hv-0",
            created_at=NOW,
            not_before=NOW + timedelta(minutes=7, seconds=30),
            duration=timedelta(seconds=15),
            description=EVENT_TYPES[EventType.REBOOT].descriptions[Cause.MAINTENANCE],
            by="test",
            why="patch",
            announced=False,
            campaign="c1",
        ),
    )
    assert scope.seen_keys == (SeenKey(key="k", request=guid("request"), at=NOW, digest="d"),)
    assert [(entry.kind, entry.facts) for entry in change.entries] == [
        (
            EntryKind.SCHEDULED,
            {
                "not_before": "2030-01-07T10:07:30Z",
                "type": "Reboot",
                "source": "Platform",
                "campaign": "c1",
                "unannounced": change.entries[0].facts["unannounced"],
                "wave": "2",
            },
        )
    ]


def test_notice_that_is_too_short_is_refused_with_the_earliest_start() -> None:
    scope = msgspec.structs.replace(a_scope([a_vm("v0")]), enabled=True, seen_at=NOW)
    with pytest.raises(NoticeTooShort) as refused:
        schedule(scope, a_request("v0", notice=timedelta(minutes=14)), RuleContext(), now=NOW)
    error = refused.value
    assert (error.minimum_notice, error.earliest_start_at, error.requested_start_at) == (
        "15m",
        NOW + timedelta(minutes=15),
        NOW + timedelta(minutes=14),
    )


@pytest.mark.parametrize("ahead", [timedelta(0), MAX_NOTICE])
def test_notice_of_up_to_a_year_is_accepted(ahead: timedelta) -> None:
    scope = a_scope([a_vm("v0")])
    for ask in (a_request("v0", notice=ahead), a_request("v0", not_before=NOW + ahead)):
        assert saved_scope(schedule(scope, ask, ALWAYS, now=NOW)).events[0].not_before == NOW + ahead


def test_start_more_than_a_year_ahead_is_refused() -> None:
    ask = a_request("v0", not_before=NOW + MAX_NOTICE + timedelta.resolution)
    with pytest.raises(Invalid):
        schedule(a_scope([a_vm("v0")]), ask, ALWAYS, now=NOW)


def test_start_is_rounded_up_to_a_whole_second() -> None:
    assert ceil_to_second(NOW) == NOW
    assert ceil_to_second(NOW + timedelta.resolution) == NOW + timedelta(seconds=1)
    scope = a_scope([a_vm("v0")])
    late = NOW + timedelta(microseconds=1)
    (event,) = saved_scope(schedule(scope, a_request("v0", notice=timedelta(0)), ALWAYS, now=late)).events
    assert event.not_before == NOW + timedelta(seconds=1)


def test_terminate_notice_is_the_longest_of_its_vms() -> None:
    traits = [Traits(terminate_notice=timedelta(minutes=minutes)) for minutes in (6, 9)]
    scope = a_scope([a_vm("v0", traits=traits[0]), a_vm("v1", traits=traits[1]), a_vm("v2")])
    notices = [
        minimum_notice(scope, EventType.TERMINATE, scope.vms(names), ALWAYS) for names in (["v0"], ["v0", "v1"], ["v2"])
    ]
    assert notices == [timedelta(minutes=6), timedelta(minutes=9), timedelta(minutes=5)]
    assert minimum_notice(scope, EventType.REBOOT, scope.vms(["v0"]), ALWAYS) == timedelta(minutes=15)


@pytest.mark.parametrize("type_", [EventType.FREEZE, EventType.PREEMPT])
def test_user_can_neither_freeze_nor_preempt(type_: EventType) -> None:
    scope = a_scope([a_vm("v0", traits=Traits(priority=Priority.LOW))])
    with pytest.raises(SourceNotAllowed) as refused:
        schedule(scope, a_request("v0", type=type_, source=Source.USER), ALWAYS, now=NOW)
    assert (refused.value.type, refused.value.source) == (type_.value, "User")


def test_only_low_priority_vms_are_preempted() -> None:
    scope = a_scope([a_vm("v0", traits=Traits(priority=Priority.LOW)), a_vm("v1")])
    with pytest.raises(EvictionNotAllowed) as refused:
        schedule(scope, a_request("v0", "v1", type=EventType.PREEMPT), ALWAYS, now=NOW)
    assert refused.value.vm == "v1"


def test_open_operations_of_users_are_limited_by_request() -> None:
    """Two events of one request are one operation."""
    context = RuleContext(policy=Policy(user_operations=2))
    scope = a_scope([a_vm("v0", host="hv-0"), a_vm("v1", host="hv-1")], enabled=True)
    for n in range(2):
        scope = saved_scope(schedule(scope, a_request("v0", "v1", id=guid(n), source=Source.USER), context, now=NOW))
    assert len(scope.events) == 4
    with pytest.raises(TooManyOperations) as refused:
        schedule(scope, a_request("v0", id=guid(2), source=Source.USER), context, now=NOW)
    assert (refused.value.scope, refused.value.limit) == ("web", 2)


@pytest.mark.parametrize("fields", [{}, {"notice": timedelta(days=1)}, {"at_once": True}], ids=str)
def test_event_that_vms_will_not_hear_of_needs_consent(fields: dict[str, object]) -> None:
    scope = a_scope([a_vm("v0"), a_vm("v1")])
    with pytest.raises(NotAnnounced) as refused:
        schedule(scope, a_request("v0", "v1", **fields), RuleContext(), now=NOW)
    assert refused.value.details == {"scopes": ("web",), "scope_count": 1, "vm_count": 2}
    (event,) = saved_scope(
        schedule(scope, a_request("v0", "v1", unannounced=True, **fields), RuleContext(), now=NOW)
    ).events
    assert event.announced is False


def test_repeated_request_needs_no_further_consent() -> None:
    scope = saved_scope(
        schedule(a_scope([a_vm("v0")]), a_request("v0", key="k", unannounced=True), RuleContext(), now=NOW)
    )
    again = schedule(scope, a_request("v0", key="k"), RuleContext(), now=NOW)
    assert (again.entries, again.result) == ((), (scope.events[0].id,))


def test_scope_that_polls_with_an_old_version_keeps_its_minimum_notice() -> None:
    scope = a_scope([a_vm("v0", traits=Traits(priority=Priority.LOW))], enabled=True)
    request = a_request("v0", type=EventType.PREEMPT, at_once=True, unannounced=True)
    with pytest.raises(NoticeTooShort):
        schedule(scope, request, RuleContext(), now=NOW, poll_version=ApiVersion.V2017_08_01)


def test_joined_refusal_names_all_scopes_and_explains_the_first_ones() -> None:
    refusals = [NotAnnounced(f"scope s{n} will not", (f"s{n}",), 1, 2) for n in range(7)]
    joined = join_refusals(refusals)
    assert joined.details == {"scopes": tuple(f"s{n}" for n in range(7)), "scope_count": 7, "vm_count": 14}
    assert str(joined).startswith("scope s0 will not; scope s1 will not; ")
    assert "scope s4 will not; and 2 more; nothing has happened" in str(joined)


def test_auto_approved_event_of_a_user_starts_at_once() -> None:
    scope = a_scope([a_vm("v0")], auto_approve=(EventType.REBOOT,))
    for source, state in ((Source.USER, State.STARTED), (Source.PLATFORM, State.SCHEDULED)):
        (event,) = saved_scope(schedule(scope, a_request("v0", source=source), ALWAYS, now=NOW)).events
        assert event.state is state


def test_key_of_another_request_is_refused() -> None:
    scope = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0", key="k", digest="a"), ALWAYS, now=NOW))
    assert request_of_key(scope, "k", "") == guid("request")
    assert request_of_key(scope, "other", "") == ""
    with pytest.raises(KeyConflict) as refused:
        schedule(scope, a_request("v0", id=guid(2), key="k", digest="b"), ALWAYS, now=NOW)
    assert refused.value.key == "k"


def test_type_that_is_not_released_needs_the_policy_and_a_low_priority_vm() -> None:
    request = a_request("v0", type=EventType.SPOT_REBALANCE_RECOMMENDATION)
    low = a_scope([a_vm("v0", traits=Traits(priority=Priority.LOW))])
    with pytest.raises(TypeNotReleased, match=r"guest\.unreleased_version"):
        schedule(low, request, ALWAYS, now=NOW)
    allowed = RuleContext(policy=msgspec.structs.replace(ALWAYS.policy, allows_unreleased=True))
    with pytest.raises(EvictionNotAllowed):
        schedule(a_scope([a_vm("v0")]), request, allowed, now=NOW)
    (event,) = saved_scope(schedule(low, request, allowed, now=NOW)).events
    assert (event.type, event.source) == (EventType.SPOT_REBALANCE_RECOMMENDATION, Source.PLATFORM)
