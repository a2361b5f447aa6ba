"""The operator API as an application: its paths, and what each asks of the fleet."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from litestar import Controller, Litestar, MediaType, Request, Response, get, post, route
from litestar.datastructures import State
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.params import HeaderParameter, JSONBody, QueryParameter
from litestar.types import ASGIApp

from forewarn import __version__
from forewarn.api import v1
from forewarn.clock import ManualClock
from forewarn.core.duration import parse_duration
from forewarn.core.errors import CoreError, Invalid
from forewarn.core.limits import KEY_LENGTH
from forewarn.core.schedule import Ask
from forewarn.fleet.errors import FleetError, NoSuchScope
from forewarn.fleet.service import Fleet
from forewarn.operator.access import TokenGate
from forewarn.operator.reading import StrictRequest
from forewarn.operator.refusals import answer_failure, answer_malformed, answer_refusal
from forewarn.operator.showing import GuestUrl, show_event, show_events, show_vms

BODY_BYTES = 1024 * 1024
OPERATOR = "operator"
"""Who the journal names for what is asked here."""

LAST_MOMENT = datetime(9000, 1, 1, tzinfo=UTC)
"""Beyond this a manual clock is not moved: far enough for anybody, and no sum of times can fall off the calendar."""

JUST_NOW = timedelta(seconds=60)
"""A time that has passed by no more than this was the present when it was said, and means at once."""

Limit = Annotated[int, QueryParameter(ge=1, le=v1.LARGEST_PAGE, description="How many at most.")]
After = Annotated[str, QueryParameter(max_length=512, description="`next` of the page before.")]
OnlyScope = Annotated[str | None, QueryParameter(name="scope", max_length=128, description="Of this scope only.")]
OnlyVm = Annotated[str | None, QueryParameter(name="vm", max_length=257, description="Only those that affect this VM.")]
Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=KEY_LENGTH,
        pattern="^[!-~]+$",
        description="The same key again makes nothing twice and gives the same answer.",
    ),
]


class Backstage(State):
    """What the handlers work on."""

    fleet: Fleet
    guest_url: GuestUrl


def _refusals(**meanings: str) -> Mapping[int, ResponseSpec]:
    described = {"_400": "The request is malformed.", "_401": "The token is missing or wrong."} | meanings
    return {
        int(status[1:]): ResponseSpec(data_container=v1.Error, description=text, generate_examples=False)
        for status, text in described.items()
    }


class VmController(Controller):
    """The inventory."""

    path = "/v1/vms"
    tags = ("inventory",)

    @get(operation_id="listVms", summary="List VMs", responses=_refusals(_404="There is no such scope."))
    async def list_vms(
        self, state: Backstage, only_scope: OnlyScope = None, after: After = "", limit: Limit = v1.PAGE
    ) -> v1.VmPage:
        """List VMs by scope and name."""
        return show_vms(state.fleet, state.guest_url, scope=only_scope, after=after, limit=limit)


class EventController(Controller):
    """Events that are open."""

    path = "/v1/events"
    tags = ("events",)

    @get(operation_id="listEvents", summary="List open events", responses=_refusals(_404="No such scope or VM."))
    async def list_events(
        self,
        state: Backstage,
        only_scope: OnlyScope = None,
        only_vm: OnlyVm = None,
        after: After = "",
        limit: Limit = v1.PAGE,
    ) -> v1.EventPage:
        """List open events by scope, in the order in which they were made."""
        return show_events(state.fleet, scope=only_scope, vm=only_vm, after=after, limit=limit)

    @post(
        operation_id="scheduleEvents",
        summary="Make events",
        responses=_refusals(
            _404="A VM does not exist.",
            _409="The rules do not allow it.",
            _422="A value breaks its own rules.",
            _503="It could not be saved; nothing has changed.",
        ),
    )
    async def schedule(self, state: Backstage, data: JSONBody[v1.ScheduleEvents], key: Key = None) -> v1.Scheduled:
        """Make events for VMs: one per scope, update domain and host. All scopes are asked before any is changed."""
        fleet = state.fleet
        ask = _ask(data, id_=fleet.new_id(), key=key)
        _check_future(fleet, ask)
        made = await fleet.schedule(ask)
        return v1.Scheduled(
            made=tuple(v1.Made(id=event, scope=scope) for scope, event in made), events=tuple(_open_events(fleet, made))
        )

    @route(http_method="OPTIONS", status_code=204, include_in_schema=False)
    async def allow(self) -> Response[None]:
        """Tell the methods: where a path has two, the framework's own answer knows but the first."""
        return Response(None, headers={"Allow": "GET, OPTIONS, POST"})


def _ask(data: JSONBody[v1.ScheduleEvents], *, id_: str, key: str | None) -> Ask:
    return Ask(
        id=id_,
        type=data.type,
        vms=tuple(data.vms),
        by=OPERATOR,
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
    if ask.key is not None and any(view.scope and view.scope.has_answered(ask.key) for view in fleet.replica.views()):
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


class ClockController(Controller):
    """The service's time."""

    path = "/v1/clock"
    tags = ("clock",)

    @get(operation_id="showClock", summary="Show the time", responses=_refusals())
    async def show(self, state: Backstage) -> v1.Clock:
        """Tell what time it is for the service."""
        return _show_clock(state.fleet)

    @post(
        "/advance",
        operation_id="advanceClock",
        summary="Move a manual clock",
        status_code=200,
        responses=_refusals(
            _409="The service runs in real time.",
            _422="Neither or both of by and to_next are given.",
            _503="It could not be saved; nothing has changed.",
        ),
    )
    async def advance(self, state: Backstage, data: JSONBody[v1.AdvanceClock]) -> v1.Clock:
        """Move a manual clock; everything that is due on the way has happened when the answer comes."""
        if (data.by is None) is not data.to_next:
            raise Invalid('say by how much ({"by": "15m"}), or to the next moment ({"to_next": true})')
        if data.by is None:
            await state.fleet.advance_to_next()
        else:
            await state.fleet.advance(_within_reach(state.fleet.clock.now(), parse_duration(data.by)))
        return _show_clock(state.fleet)


def _within_reach(now: datetime, by: timedelta) -> timedelta:
    if by > LAST_MOMENT - now:
        raise Invalid(f"the clock goes no further than {LAST_MOMENT:%Y}")
    return by


def _show_clock(fleet: Fleet) -> v1.Clock:
    clock = fleet.clock
    next_at = clock.next_moment if isinstance(clock, ManualClock) else None
    return v1.Clock(now=clock.now(), manual=isinstance(clock, ManualClock), next_at=next_at)


@get("/healthz", operation_id="health", summary="Tell that the service is there", security=[{}], tags=("service",))
async def health() -> v1.Health:
    """Tell that the service is there; the only path that needs no token."""
    return v1.Health(status="ok", version=__version__)


def operator_app(fleet: Fleet, *, token: str, guest_url: GuestUrl) -> ASGIApp:
    """Make the application that answers operators who have the token."""
    app = Litestar(
        [VmController, EventController, ClockController, health],
        before_request=_refuse_unknown_query,
        exception_handlers={
            CoreError: answer_refusal,
            FleetError: answer_refusal,
            HTTPException: answer_malformed,
            Exception: answer_failure,
        },
        logging_config=None,
        openapi_config=_described(),
        request_class=StrictRequest,
        request_max_body_size=BODY_BYTES,
        state=Backstage({"fleet": fleet, "guest_url": guest_url}, deep_copy=False),
    )
    _close_requests(app)
    return TokenGate(app, token)


def _close_requests(app: Litestar) -> None:
    """Say in the description, too, that requests take no unknown fields."""
    schemas = app.openapi_schema.components.schemas or {}
    for request in _requests(v1.Request):
        if request.__name__ in schemas:
            schemas[request.__name__].additional_properties = False


def _requests(base: type[v1.Request]) -> Iterator[type[v1.Request]]:
    for request in base.__subclasses__():
        yield request
        yield from _requests(request)


def _refuse_unknown_query(request: Request[Any, Any, Any]) -> None:
    """A misspelt filter must not list everything."""
    parameters = request.route_handler.parsed_fn_signature.parameters.items()
    fields = ((name, field.kwarg_definition) for name, field in parameters)
    known = {field.name or name for name, field in fields if isinstance(field, QueryParameter)}
    for name in request.query_params:
        if name not in known:
            raise ValidationException(f"there is no parameter {name} here")


def _described() -> OpenAPIConfig:
    """Describe the API. The description is served as JSON; no page here loads anything from elsewhere."""
    return OpenAPIConfig(
        title="Forewarn operator API",
        version="1",
        summary="What the people who run a fleet ask of Forewarn.",
        path="/openapi.json",
        render_plugins=[JsonRenderPlugin(path="/", media_type=MediaType.JSON)],
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        use_handler_docstrings=True,
    )
