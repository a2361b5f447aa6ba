"""Schedule events: validate a request, and create one event per update domain and host with the notice it needs."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from forewarn.core.change import Change, Draft, derive_id, format_timestamp
from forewarn.core.duration import at_speed, format_duration
from forewarn.core.errors import (
    EvictionNotAllowed,
    Invalid,
    KeyConflict,
    NotAnnounced,
    NoticeTooShort,
    SourceNotAllowed,
    TooManyOperations,
    TypeNotReleased,
)
from forewarn.core.event import Cause, Event, EventType, Source, State, Trigger
from forewarn.core.event_type import EVENT_TYPES, FAILURE_TYPES, MAINTENANCE_TYPES
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.lifecycle import start_ready_events
from forewarn.core.limits import DIGEST_LENGTH
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope
from forewarn.core.text import check_key, is_guid, join_choices
from forewarn.core.vm import Vm

MAX_NOTICE = timedelta(days=366)

MAX_SCOPES_SHOWN = 5
"""How many scopes a refusal explains; the others are only counted."""

NOW_ADVICE = "; to start at once in a scope that does not poll for events, use now"


class ScheduleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for events. The ids of its events are derived from `id`, so a repeated request creates no event."""

    id: str
    type: EventType
    vms: tuple[str, ...]
    by: str
    source: Source = Source.PLATFORM
    not_before: datetime | None = None
    notice: timedelta | None = None
    duration: timedelta | None = None
    description: str = ""
    why: str = ""
    failure: bool = False
    at_once: bool = False
    """Whether to start without notice; only a scope that is not enabled allows it."""
    unannounced: bool = False
    """Whether the caller consents to an event that VMs will not hear of."""
    key: str | None = None
    campaign: str = ""
    wave: int = 0
    """The campaign that makes the request, and the number of its wave in the scope."""
    digest: str = ""
    """The digest of the whole request, by which a different request with the same key is detected."""
    caller: str = ""
    """The token that the key belongs to."""

    def __post_init__(self) -> None:
        if not is_guid(self.id):
            raise Invalid(f"request id {self.id!r} is not a GUID")
        if not self.vms:
            raise Invalid("name at least one VM")
        if self.not_before is not None and self.notice is not None:
            raise Invalid("not_before and notice are mutually exclusive")
        if self.at_once and (self.notice is not None or self.not_before is not None):
            raise Invalid("now excludes notice and not_before: it means no notice")
        if self.notice is not None and not timedelta(0) <= self.notice <= MAX_NOTICE:
            raise Invalid(f"notice must be 0 to {MAX_NOTICE.days} days, got {self.notice}")
        if self.failure and self.type not in FAILURE_TYPES:
            raise Invalid(f"a hardware failure must be a {join_choices(FAILURE_TYPES)}, not a {self.type.value}")
        if self.failure and (self.notice is not None or self.not_before is not None or self.source is Source.USER):
            raise Invalid("a hardware failure has no notice, and its source is Platform")
        if self.key is not None:
            check_key(self.key)
        if self.campaign and self.cause is not Cause.MAINTENANCE:
            raise Invalid(f"a campaign's events must be {join_choices(MAINTENANCE_TYPES)} of source Platform")
        if len(self.digest) > DIGEST_LENGTH or not self.digest.isascii():
            raise Invalid(f"a digest is at most {DIGEST_LENGTH} ASCII characters")

    @property
    def request_id(self) -> str:
        """The id in its stored form; ids are not case-sensitive."""
        return self.id.upper()

    @property
    def cause(self) -> Cause:
        """The cause of these events."""
        if self.failure:
            return Cause.FAILURE
        return EVENT_TYPES[self.type].causes.get(self.source, Cause.USER)

    def with_key(self, idempotency_key: IdempotencyKey | None) -> "ScheduleRequest":
        """Return the same request under this key."""
        if idempotency_key is None:
            return self
        return msgspec.structs.replace(
            self, key=idempotency_key.key, digest=idempotency_key.digest, caller=idempotency_key.caller
        )


def schedule(
    scope: Scope, request: ScheduleRequest, context: RuleContext, *, now: datetime, poll_version: str | None = None
) -> Change[tuple[str, ...]]:
    """Create the events of a request and return their ids; a repeated request creates nothing.

    Repetition is detected by the request, not by event ids, because the request may have moved its VMs since.
    `poll_version` is the newest api-version with which VMs of the scope poll; None: it is not known.
    """
    draft = Draft(scope, now)
    if (repeated_id := _find_repeated(draft.scope, request)) is not None:
        return draft.finish(events_of_request(draft.scope, repeated_id))
    vms = scope.vms(request.vms)
    _check(scope, request, vms, context)
    ids = [_create_event(draft, request, group, context) for group in group_vms(vms)]
    _check_announced(scope, request, vms, context, poll_version)
    if request.key is not None:
        draft.remember_key(request.key, request.request_id, request.digest, request.caller)
    draft.check_room()
    start_ready_events(draft, context)
    return draft.finish(tuple(ids))


def events_of_request(scope: Scope, request_id: str) -> tuple[str, ...]:
    """Return the ids of a request's events, open or ended, as far as the scope remembers them."""
    ended = tuple(ended.id for ended in scope.ended if ended.request == request_id)
    return ended + tuple(event.id for event in scope.events if event.request == request_id)


def request_of_key(scope: Scope, key: str, caller: str) -> str:
    """Return the request that was answered under this key of this caller."""
    return next((seen.request for seen in scope.seen_keys if seen.belongs_to(key, caller)), "")


def group_vms(vms: Iterable[Vm]) -> list[tuple[Vm, ...]]:
    """Group VMs by update domain and host: each group gets one event."""
    groups: dict[tuple[int, str | None], tuple[Vm, ...]] = {}
    for vm in vms:
        group_key = (vm.update_domain, vm.host)
        groups[group_key] = (*groups.get(group_key, ()), vm)
    return list(groups.values())


def _find_repeated(scope: Scope, request: ScheduleRequest) -> str | None:
    """Return the earlier request that this one repeats, by key or by id, if there is one."""
    if request.key is not None:
        for seen in scope.seen_keys:
            if seen.belongs_to(request.key, request.caller):
                if request.digest != seen.digest:
                    raise KeyConflict(request.key)
                return seen.request
    return request.request_id if events_of_request(scope, request.request_id) else None


def _check(scope: Scope, request: ScheduleRequest, vms: Iterable[Vm], context: RuleContext) -> None:
    if not EVENT_TYPES[request.type].is_released and not context.policy.allows_unreleased:
        raise TypeNotReleased(request.type.value)
    if request.source not in EVENT_TYPES[request.type].sources:
        raise SourceNotAllowed(request.type.value, request.source.value)
    if EVENT_TYPES[request.type].needs_low_priority:
        for vm in vms:
            if not scope.is_low_priority(vm):
                raise EvictionNotAllowed(vm.name)
    if request.source is Source.USER:
        _check_operations(scope, context.policy.user_operations)


def _check_operations(scope: Scope, limit: int) -> None:
    operations = {event.request for event in scope.events if event.source is Source.USER}
    if len(operations) >= limit:
        raise TooManyOperations(scope.id, limit)


def _appears_started(scope: Scope, request: ScheduleRequest) -> bool:
    return request.failure or (request.source is Source.USER and request.type in scope.auto_approve)


def _check_announced(
    scope: Scope, request: ScheduleRequest, vms: Sequence[Vm], context: RuleContext, poll_version: str | None
) -> None:
    """Refuse an event that VMs will not hear of, unless the caller consents; a campaign's start has consented."""
    if request.unannounced or request.campaign or not context.policy.enforce_notice or _appears_started(scope, request):
        return
    if reason := unannounced_reason(scope, request.type, context, poll_version):
        problem = f"scope {scope.id} will not hear of the {request.type.value}: {reason}"
        raise NotAnnounced(problem, (scope.id,), 1, len(vms))


def join_refusals(refusals: Sequence[NotAnnounced]) -> NotAnnounced:
    """Return one refusal for all scopes of a request; its message has the first ones."""
    more = len(refusals) - MAX_SCOPES_SHOWN
    problem = "; ".join(refusal.problem for refusal in refusals[:MAX_SCOPES_SHOWN])
    return NotAnnounced(
        problem + (f"; and {more} more" if more > 0 else ""),
        tuple(scope for refusal in refusals for scope in refusal.scopes),
        len(refusals),
        sum(refusal.vm_count for refusal in refusals),
    )


def unannounced_reason(scope: Scope, type_: EventType, context: RuleContext, poll_version: str | None) -> str:
    """Return why the documents of the scope's VMs would not show an event of this type; empty if one would."""
    if not context.policy.announces(enabled=scope.enabled):
        return "none of its VMs polls for events"
    if scope.enabled and poll_version is not None and not EVENT_TYPES[type_].is_visible(poll_version):
        return f"its VMs poll with api-version {poll_version}, which has no {type_.value}"
    return ""


def _create_event(draft: Draft, request: ScheduleRequest, vms: tuple[Vm, ...], context: RuleContext) -> str:
    scope, first = draft.scope, vms[0]
    announced = context.policy.announces(enabled=scope.enabled)
    is_started = _appears_started(scope, request)
    event = Event(
        id=derive_id(request.id, scope.id, first.update_domain, first.host or ""),
        request=request.request_id,
        type=request.type,
        state=State.SCHEDULED,
        source=request.source,
        cause=request.cause,
        vms=tuple(vm.name for vm in vms),
        role_instances=tuple(vm.name for vm in vms if vm.role_instance),
        update_domain=first.update_domain,
        host=first.host,
        created_at=draft.now,
        not_before=draft.now if is_started else _not_before(draft, request, vms, context, announced=announced),
        duration=None if request.duration is None else at_speed(request.duration, context.policy.speed),
        description=request.description or EVENT_TYPES[request.type].descriptions[request.cause],
        by=request.by,
        why=request.why,
        announced=announced,
        campaign=request.campaign,
    )
    _add_event(draft, event, request, is_started=is_started)
    return event.id


def _add_event(draft: Draft, event: Event, request: ScheduleRequest, *, is_started: bool) -> None:
    if is_started:
        reason = event.cause.value if request.failure else "auto-approved"
        draft.apply(event, Trigger.START_AT_ONCE, by=request.by, why=request.why or reason, **event_facts(event))
    else:
        facts = {"wave": str(request.wave)} if request.campaign else {}
        not_before = format_timestamp(event.not_before)
        draft.apply(
            event,
            Trigger.SCHEDULE,
            by=request.by,
            why=request.why,
            not_before=not_before,
            **event_facts(event),
            **facts,
        )


def event_facts(event: Event) -> dict[str, str]:
    """Return the facts of a new event's journal entry, besides its VMs."""
    facts = {"type": event.type.value, "source": event.source.value}
    if event.campaign:
        facts["campaign"] = event.campaign
    if not event.announced:
        facts["unannounced"] = "the scope is not enabled"
    return facts


def _not_before(
    draft: Draft, request: ScheduleRequest, vms: tuple[Vm, ...], context: RuleContext, *, announced: bool
) -> datetime:
    """Return the start. If notices are enforced, only `at_once` can start without the minimum, and only unannounced."""
    policy = context.policy
    has_minimum = announced or policy.enforce_notice
    minimum = minimum_notice(draft.scope, request.type, vms, context) if has_minimum else timedelta(0)
    earliest = draft.now + policy.faster_notice(minimum)
    if request.not_before is not None:
        requested = max(request.not_before, draft.now)
    elif request.at_once:
        requested = draft.now
    elif request.notice is not None:
        requested = draft.now + policy.faster_notice(request.notice)
    else:
        requested = earliest
    if requested > draft.now + MAX_NOTICE:
        raise Invalid(f"not_before must be at most {MAX_NOTICE.days} days ahead")
    if requested < earliest and policy.enforce_notice and (announced or not request.at_once):
        advice = "" if announced else NOW_ADVICE
        shown = format_duration(minimum)
        raise NoticeTooShort(request.type.value, shown, ceil_to_second(earliest), requested, advice)
    return ceil_to_second(requested)


def minimum_notice(scope: Scope, type_: EventType, vms: Iterable[Vm], context: RuleContext) -> timedelta:
    """Return the minimum notice for these VMs."""
    default = context.policy.minimum_notice[type_]
    if not EVENT_TYPES[type_].has_terminate_notice:
        return default
    return max(scope.traits_of(vm).terminate_notice or default for vm in vms)


def ceil_to_second(moment: datetime) -> datetime:
    """Round up to whole seconds, as on the wire, so that no VM reads an earlier time than the real one."""
    whole = moment.replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)
