"""Making events: one per update domain and host, with the notice that its type needs."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from forewarn.core.change import Change, Draft, derived_id, stamp
from forewarn.core.conditions import Announce, Conditions
from forewarn.core.errors import Invalid, KeyReused, NotEvictable, NoticeTooShort, SourceNotAllowed, TooManyOperations
from forewarn.core.event import Cause, Event, EventType, Move, Source, State
from forewarn.core.limits import DIGEST_LENGTH
from forewarn.core.progress import start_what_may
from forewarn.core.scope import Scope
from forewarn.core.text import check_key, is_guid
from forewarn.core.vm import Vm

LONGEST_NOTICE = timedelta(days=366)

SOURCES: dict[EventType, tuple[Source, ...]] = {
    EventType.FREEZE: (Source.PLATFORM,),
    EventType.REBOOT: (Source.PLATFORM, Source.USER),
    EventType.REDEPLOY: (Source.PLATFORM, Source.USER),
    EventType.PREEMPT: (Source.PLATFORM,),
    EventType.TERMINATE: (Source.PLATFORM, Source.USER),
}

DESCRIPTIONS: dict[tuple[EventType, Cause], str] = {
    (EventType.FREEZE, Cause.MAINTENANCE): "The VM is paused for a moment while its host is maintained.",
    (EventType.REBOOT, Cause.MAINTENANCE): "The VM restarts because its host is maintained.",
    (EventType.REDEPLOY, Cause.MAINTENANCE): "The VM moves to another host because its own is maintained.",
    (EventType.REBOOT, Cause.USER): "A user asked for a restart of the VM.",
    (EventType.REDEPLOY, Cause.USER): "A user asked for the VM to be redeployed.",
    (EventType.REBOOT, Cause.FAILURE): "Emergency repair: the VM restarts after a failure of its host.",
    (EventType.REDEPLOY, Cause.FAILURE): "Emergency repair: the VM moves because its host has failed.",
    (EventType.PREEMPT, Cause.EVICTION): "The low-priority VM is taken away because its capacity is needed.",
    (EventType.TERMINATE, Cause.DELETION): "The VM is going to be deleted.",
}


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request for events. The ids of its events are computed from `id`: asking twice makes nothing twice."""

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
    """The campaign that asks, and which of its waves in the scope this is."""
    digest: str = ""
    """What stands for the whole request beside its key, so that another one with the same key is noticed."""

    def __post_init__(self) -> None:
        if not is_guid(self.id):
            raise Invalid(f"request id {self.id!r} is not a GUID")
        if not self.vms:
            raise Invalid("name at least one VM")
        if self.not_before is not None and self.notice is not None:
            raise Invalid("say not_before or notice, not both")
        if self.notice is not None and not timedelta(0) <= self.notice <= LONGEST_NOTICE:
            raise Invalid(f"notice is 0 to {LONGEST_NOTICE.days} days, not {self.notice}")
        if self.failure and self.type not in (EventType.REBOOT, EventType.REDEPLOY):
            raise Invalid(f"a hardware failure is a Redeploy or a Reboot, not a {self.type.value}")
        if self.failure and (self.notice is not None or self.not_before is not None or self.source is Source.USER):
            raise Invalid("a hardware failure comes without notice, and from the platform")
        if self.key is not None:
            check_key(self.key)
        if self.campaign and self.cause is not Cause.MAINTENANCE:
            raise Invalid("a campaign makes planned maintenance: Freeze, Reboot or Redeploy of source Platform")
        if len(self.digest) > DIGEST_LENGTH or not self.digest.isascii():
            raise Invalid(f"a digest is at most {DIGEST_LENGTH} ASCII characters")

    @property
    def request(self) -> str:
        """The id as it is kept: case does not tell requests apart."""
        return self.id.upper()

    @property
    def cause(self) -> Cause:
        """Why these events exist."""
        if self.failure:
            return Cause.FAILURE
        if self.type is EventType.PREEMPT:
            return Cause.EVICTION
        if self.type is EventType.TERMINATE:
            return Cause.DELETION
        return Cause.USER if self.source is Source.USER else Cause.MAINTENANCE


def schedule(scope: Scope, ask: Ask, conditions: Conditions, *, now: datetime) -> Change[tuple[str, ...]]:
    """Make the events of a request and return their ids; a request that was made before makes nothing.

    That is decided by the request and not by the ids of the events: its VMs may have been moved by it since.
    """
    draft = Draft(scope, now)
    if (request := _made_before(draft.scope, ask)) is not None:
        return draft.finish(events_of(draft.scope, request))
    vms = scope.vms(ask.vms)
    _check(scope, ask, vms, conditions)
    ids = [_make(draft, ask, group, conditions) for group in grouped(vms)]
    if ask.key is not None:
        draft.remember(ask.key, ask.request, ask.digest)
    draft.check_room()
    start_what_may(draft, conditions)
    return draft.finish(tuple(ids))


def events_of(scope: Scope, request: str) -> tuple[str, ...]:
    """Return the ids of the events that a request made, open or ended, as far as they are remembered."""
    ended = tuple(ended.id for ended in scope.ended if ended.request == request)
    return ended + tuple(event.id for event in scope.events if event.request == request)


def request_of(scope: Scope, key: str) -> str:
    """Return the request that was answered under this key."""
    return next((answered.request for answered in scope.answered if answered.key == key), "")


def grouped(vms: Iterable[Vm]) -> list[tuple[Vm, ...]]:
    """Part VMs by what one operation hits: the same update domain on the same host."""
    groups: dict[tuple[int, str | None], tuple[Vm, ...]] = {}
    for vm in vms:
        place = (vm.update_domain, vm.host)
        groups[place] = (*groups.get(place, ()), vm)
    return list(groups.values())


def _made_before(scope: Scope, ask: Ask) -> str | None:
    """Return the request that this one repeats, if it does: one with its key, or itself."""
    if ask.key is not None:
        for answered in scope.answered:
            if answered.key == ask.key:
                if ask.digest != answered.digest:
                    raise KeyReused(ask.key)
                return answered.request
    return ask.request if events_of(scope, ask.request) else None


def _check(scope: Scope, ask: Ask, vms: Iterable[Vm], conditions: Conditions) -> None:
    if ask.source not in SOURCES[ask.type]:
        raise SourceNotAllowed(ask.type.value, ask.source.value)
    if ask.type is EventType.PREEMPT:
        for vm in vms:
            if not scope.is_low_priority(vm):
                raise NotEvictable(vm.name)
    if ask.source is Source.USER:
        _check_operations(scope, conditions.policy.user_operations)


def _check_operations(scope: Scope, limit: int) -> None:
    operations = {event.request for event in scope.events if event.source is Source.USER}
    if len(operations) >= limit:
        raise TooManyOperations(scope.id, limit)


def _make(draft: Draft, ask: Ask, vms: tuple[Vm, ...], conditions: Conditions) -> str:
    scope, place = draft.scope, vms[0]
    announced = scope.enabled or conditions.policy.announce is Announce.ALWAYS
    at_once = ask.failure or (ask.source is Source.USER and ask.type in scope.auto_approve)
    event = Event(
        id=derived_id(ask.id, scope.id, place.update_domain, place.host or ""),
        request=ask.request,
        type=ask.type,
        state=State.SCHEDULED,
        source=ask.source,
        cause=ask.cause,
        vms=tuple(vm.name for vm in vms),
        role_instances=tuple(vm.name for vm in vms if vm.role_instance),
        update_domain=place.update_domain,
        host=place.host,
        made_at=draft.now,
        not_before=draft.now if at_once else _not_before(draft, ask, vms, conditions, announced=announced),
        duration=None if ask.duration is None else ask.duration / conditions.policy.speed,
        description=ask.description or DESCRIPTIONS[ask.type, ask.cause],
        by=ask.by,
        why=ask.why,
        announced=announced,
        campaign=ask.campaign,
    )
    _announce(draft, event, ask, at_once=at_once)
    return event.id


def _announce(draft: Draft, event: Event, ask: Ask, *, at_once: bool) -> None:
    if at_once:
        reason = event.cause.value if ask.failure else "auto-approved"
        draft.move(event, Move.START_AT_ONCE, by=ask.by, why=ask.why or reason, **told(event))
    else:
        facts = {"wave": str(ask.wave)} if ask.campaign else {}
        not_before = stamp(event.not_before)
        draft.move(event, Move.SCHEDULE, by=ask.by, why=ask.why, not_before=not_before, **told(event), **facts)


def told(event: Event) -> dict[str, str]:
    """Return what the journal keeps of every new event, besides its VMs."""
    facts = {"type": event.type.value, "source": event.source.value}
    if event.campaign:
        facts["campaign"] = event.campaign
    if not event.announced:
        facts["unannounced"] = "the scope is not enabled"
    return facts


def _not_before(draft: Draft, ask: Ask, vms: tuple[Vm, ...], conditions: Conditions, *, announced: bool) -> datetime:
    policy = conditions.policy
    minimum = minimum_notice(draft.scope, ask.type, vms, conditions) if announced else timedelta(0)
    earliest = draft.now + minimum / policy.speed
    if ask.not_before is not None:
        asked = max(ask.not_before, draft.now)
    elif ask.notice is not None:
        asked = draft.now + ask.notice / policy.speed
    else:
        asked = earliest
    if asked > draft.now + LONGEST_NOTICE:
        raise Invalid(f"not_before is at most {LONGEST_NOTICE.days} days ahead")
    if asked < earliest and policy.enforce_notice:
        raise NoticeTooShort(ask.type.value, minimum / policy.speed, whole_second(earliest), asked)
    return whole_second(asked)


def minimum_notice(scope: Scope, type_: EventType, vms: Iterable[Vm], conditions: Conditions) -> timedelta:
    """Return the notice that these VMs must be given."""
    usual = conditions.policy.minimum_notice[type_]
    if type_ is not EventType.TERMINATE:
        return usual
    return max(scope.traits_of(vm).terminate_notice or usual for vm in vms)


def whole_second(moment: datetime) -> datetime:
    """Round up to what the wire can show, so that no VM reads an earlier time than the one that holds."""
    whole = moment.replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)
