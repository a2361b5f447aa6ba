"""The paths of events."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from litestar import Controller, Response, get, post, route
from litestar.params import JSONBody

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.duration import parse_duration
from forewarn.core.errors import Invalid
from forewarn.core.schedule import Ask
from forewarn.fleet.errors import NoSuchScope
from forewarn.fleet.service import Fleet
from forewarn.operator.access import AskedBy, needs
from forewarn.operator.backstage import Backstage
from forewarn.operator.parameters import After, Key, Limit, OnlyScope, OnlyVm, refusals
from forewarn.operator.showing_events import show_event, show_events

JUST_NOW = timedelta(seconds=60)
"""A time that has passed by no more than this was the present when it was said, and means at once."""


class EventController(Controller):
    """Events that are open."""

    path = "/v1/events"
    tags = ("events",)

    @get(
        operation_id="listEvents",
        summary="List open events",
        opt=needs(Role.VIEWER),
        responses=refusals(_404="No such scope or VM.", _409="The VM's name is ambiguous."),
    )
    async def list_events(
        self,
        state: Backstage,
        caller: AskedBy,
        only_scope: OnlyScope = None,
        only_vm: OnlyVm = None,
        after: After = "",
        limit: Limit = v1.PAGE,
    ) -> v1.EventPage:
        """List open events by scope, in the order in which they were made."""
        return show_events(state.fleet, scope=only_scope, vm=only_vm, after=after, limit=limit, caller=caller)

    @post(
        operation_id="scheduleEvents",
        summary="Make events",
        opt=needs(Role.OPERATOR),
        responses=refusals(
            _404="A VM does not exist.",
            _409="The rules do not allow it.",
            _422="A value breaks its own rules.",
            _503="It could not be saved; nothing has changed.",
        ),
    )
    async def schedule(
        self, state: Backstage, caller: AskedBy, data: JSONBody[v1.ScheduleEvents], key: Key = None
    ) -> v1.Scheduled:
        """Make events for VMs: one per scope, update domain and host. All scopes are asked before any is changed."""
        fleet = state.fleet
        ask = _ask(data, id_=fleet.new_id(), key=key, by=caller.name)
        _check_future(fleet, ask)
        for vm in ask.vms:
            view, _ = fleet.replica.find(vm)
            caller.check(view.id)
        made = await fleet.schedule(ask)
        return v1.Scheduled(
            made=tuple(v1.Made(id=event, scope=scope) for scope, event in made), events=tuple(_open_events(fleet, made))
        )

    @route(http_method="OPTIONS", status_code=204, include_in_schema=False, opt=needs(Role.VIEWER))
    async def allow(self) -> Response[None]:
        """Tell the methods: where a path has two, the framework's own answer knows but the first."""
        return Response(None, headers={"Allow": "GET, OPTIONS, POST"})


def _ask(data: JSONBody[v1.ScheduleEvents], *, id_: str, key: str | None, by: str) -> Ask:
    return Ask(
        id=id_,
        type=data.type,
        vms=tuple(data.vms),
        by=by,
        source=data.source,
        not_before=None if data.not_before is None else _utc(data.not_before),
        notice=None if data.notice is None else parse_duration(data.notice),
        duration=None if data.duration is None else parse_duration(data.duration),
        description=data.description,
        why=data.why,
        failure=data.failure,
        key=key,
    )


def _utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"not_before {moment.isoformat()} is no moment of UTC") from None


def _check_future(fleet: Fleet, ask: Ask) -> None:
    """Refuse a time that has passed, which is hardly meant; but a repeated request is answered as it was then."""
    now = fleet.clock.now()
    if ask.not_before is None or ask.not_before >= now - JUST_NOW:
        return
    if ask.key is not None and any(
        view.scope and view.scope.has_answered(ask.key, now=now) for view in fleet.replica.views()
    ):
        return
    raise Invalid(
        f"not_before {ask.not_before:%Y-%m-%d %H:%M:%SZ} is in the past: the service's clock says "
        f"{now:%Y-%m-%d %H:%M:%SZ}; to start at once, give a notice of 0s"
    )


def _open_events(fleet: Fleet, made: tuple[tuple[str, str], ...]) -> Iterator[v1.Event]:
    """Show those that are still open: what was made long ago, or takes no time, has gone again."""
    now = fleet.clock.now()
    for scope_id, event_id in made:
        with suppress(NoSuchScope):
            scope = fleet.replica.scope(scope_id)
            if (event := scope.find_event(event_id)) is not None:
                yield show_event(fleet, scope, event, now=now)
