"""Schedule events: validate a request, and create one event per update domain and host with the notice it needs."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from forewarn.core.change import Change, Draft, derive_id, format_timestamp
from forewarn.core.errors import (
    EvictionNotAllowed,
    Invalid,
    KeyConflict,
    NoticeTooShort,
    SourceNotAllowed,
    TooManyOperations,
)
from forewarn.core.event import Cause, Event, EventType, Source, State, Trigger
from forewarn.core.event_type import EVENT_TYPES, FAILURE_TYPES, MAINTENANCE_TYPES
from forewarn.core.lifecycle import start_ready_events
from forewarn.core.limits import DIGEST_LENGTH
from forewarn.core.policy import AnnouncePolicy, RuleContext
from forewarn.core.scope import Scope
from forewarn.core.text import check_key, is_guid, join_choices
from forewarn.core.vm import Vm

MAX_NOTICE = timedelta(days=366)


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
    key: str | None = None
    campaign: str = ""
    wave: int = 0
    """The campaign that makes the request, and the number of its wave in the scope."""
    digest: str = ""
    """The digest of the whole request, by which a different request with the same key is detected."""

    def __post_init__(self) -> None:
        if not is_guid(self.id):
            raise Invalid(f"request id {self.id!r} is not a GUID")
        if not self.vms:
            raise Invalid("name at least one VM")
        if self.not_before is not None and self.notice is not None:
            raise Invalid("not_before and notice are mutually exclusive")
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


def schedule(scope: Scope, request: ScheduleRequest, context: RuleContext, *, now: datetime) -> Change[tuple[str, ...]]:
    """Create the events of a request and return their ids; a repeated request creates nothing.

    Repetition is detected by the request, not by event ids, because the request may have moved its VMs since.
    """
    draft = Draft(scope, now)
    if (repeated_id := _find_repeated(draft.scope, request)) is not None:
        return draft.finish(events_of_request(draft.scope, repeated_id))
    vms = scope.vms(request.vms)
    _check(scope, request, vms, context)
    ids = [_create_event(draft, request, group, context) for group in group_vms(vms)]
    if request.key is not None:
        draft.remember_key(request.key, request.request_id, request.digest)
    draft.check_room()
    start_ready_events(draft, context)
    return draft.finish(tuple(ids))


def events_of_request(scope: Scope, request_id: str) -> tuple[str, ...]:
    """Return the ids of a request's events, open or ended, as far as the scope remembers them."""
    ended = tuple(ended.id for ended in scope.ended if ended.request == request_id)
    return ended + tuple(event.id for event in scope.events if event.request == request_id)


def request_of_key(scope: Scope, key: str) -> str:
    """Return the request that was answered under this key."""
    return next((seen.request for seen in scope.seen_keys if seen.key == key), "")


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
            if seen.key == request.key:
                if request.digest != seen.digest:
                    raise KeyConflict(request.key)
                return seen.request
    return request.request_id if events_of_request(scope, request.request_id) else None


def _check(scope: Scope, request: ScheduleRequest, vms: Iterable[Vm], context: RuleContext) -> None:
    if request.source not in EVENT_TYPES[request.type].sources:
        raise SourceNotAllowed(request.type.value, request.source.value)
    if request.cause is Cause.EVICTION:
        for vm in vms:
            if not scope.is_low_priority(vm):
                raise EvictionNotAllowed(vm.name)
    if request.source is Source.USER:
        _check_operations(scope, context.policy.user_operations)


def _check_operations(scope: Scope, limit: int) -> None:
    operations = {event.request for event in scope.events if event.source is Source.USER}
    if len(operations) >= limit:
        raise TooManyOperations(scope.id, limit)


def _create_event(draft: Draft, request: ScheduleRequest, vms: tuple[Vm, ...], context: RuleContext) -> str:
    scope, first = draft.scope, vms[0]
    announced = scope.enabled or context.policy.announce is AnnouncePolicy.ALWAYS
    at_once = request.failure or (request.source is Source.USER and request.type in scope.auto_approve)
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
        not_before=draft.now if at_once else _not_before(draft, request, vms, context, announced=announced),
        duration=None if request.duration is None else request.duration / context.policy.speed,
        description=request.description or EVENT_TYPES[request.type].descriptions[request.cause],
        by=request.by,
        why=request.why,
        announced=announced,
        campaign=request.campaign,
    )
    _add_event(draft, event, request, at_once=at_once)
    return event.id


def _add_event(draft: Draft, event: Event, request: ScheduleRequest, *, at_once: bool) -> None:
    if at_once:
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
    policy = context.policy
    minimum = minimum_notice(draft.scope, request.type, vms, context) if announced else timedelta(0)
    earliest = draft.now + minimum / policy.speed
    if request.not_before is not None:
        requested = max(request.not_before, draft.now)
    elif request.notice is not None:
        requested = draft.now + request.notice / policy.speed
    else:
        requested = earliest
    if requested > draft.now + MAX_NOTICE:
        raise Invalid(f"not_before must be at most {MAX_NOTICE.days} days ahead")
    if requested < earliest and policy.enforce_notice:
        raise NoticeTooShort(request.type.value, minimum / policy.speed, ceil_to_second(earliest), requested)
    return ceil_to_second(requested)


def minimum_notice(scope: Scope, type_: EventType, vms: Iterable[Vm], context: RuleContext) -> timedelta:
    """Return the minimum notice for these VMs."""
    default = context.policy.minimum_notice[type_]
    if Cause.DELETION not in EVENT_TYPES[type_].descriptions:
        return default
    return max(scope.traits_of(vm).terminate_notice or default for vm in vms)


def ceil_to_second(moment: datetime) -> datetime:
    """Round up to whole seconds, as on the wire, so that no VM reads an earlier time than the real one."""
    whole = moment.replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)
