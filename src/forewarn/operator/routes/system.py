"""System routes: health, readiness, metrics, clock, and the caller's own identity."""

from datetime import UTC, datetime, timedelta

import msgspec
from litestar import Controller, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from forewarn import __version__
from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.duration import parse_duration
from forewarn.core.errors import Invalid
from forewarn.fleet.errors import ManualTimeUnavailable
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.clock_view import show_clock
from forewarn.operator.emulator import check_emulator
from forewarn.operator.error_responses import NOT_READY
from forewarn.operator.errors import EmulatorNotRunning
from forewarn.operator.metrics import CONTENT_TYPE, metrics_text
from forewarn.operator.parameters import change_error_specs, error_specs
from forewarn.operator.state import AppState
from forewarn.operator.views.journal import show_row

MAX_TIME = datetime(9000, 1, 1, tzinfo=UTC)
"""The limit of a manual clock, so that sums of times never exceed the calendar."""


class ClockController(Controller):
    """The service's time."""

    path = "/v1/clock"
    tags = ("clock",)

    @get(operation_id="showClock", summary="Show the time", opt=requires(Role.VIEWER), responses=error_specs())
    async def show(self, state: AppState) -> v1.Clock:
        """Show the service's time."""
        return show_clock(state.fleet)

    @post(
        "/advance",
        operation_id="advanceClock",
        summary="Advance a manual clock",
        status_code=200,
        opt=requires(Role.OPERATOR, all_scopes=True),
        responses=change_error_specs(ManualTimeUnavailable),
    )
    async def advance(self, state: AppState, caller: CallerDep, data: JSONBody[v1.AdvanceClock]) -> v1.AdvanceResult:
        """Advance a manual clock by a duration, or to the next change of an event.

        The body has exactly one of `duration` and `to_next_change`; neither or both is `invalid-value`.
        Everything that becomes due in this time has happened, in order, when the response is sent. If no event changes
        with time alone, `to_next_change` does not move the clock.
        """
        return await advance_clock(state.fleet, data, by=caller.name)

    @post(
        "/speed",
        operation_id="setSpeed",
        summary="Set the speed",
        status_code=200,
        opt=requires(Role.OPERATOR, all_scopes=True),
        responses=change_error_specs(EmulatorNotRunning),
    )
    async def set_speed(self, state: AppState, caller: CallerDep, data: JSONBody[v1.SetSpeed]) -> v1.Clock:
        """Divide the notices and durations of new events, and the simulated work, by this number.

        Events that exist keep their times. The speed outlives a restart, unless the service then starts with another
        `--speed`. The same speed again changes nothing.
        """
        check_emulator(state)
        await state.fleet.emulator.speed.change(data.speed, by=caller.name)
        return show_clock(state.fleet)


async def advance_clock(fleet: Fleet, request: v1.AdvanceClock, *, by: str) -> v1.AdvanceResult:
    """Advance a manual clock, and return what has changed."""
    if (request.duration is None) is not request.to_next_change:
        raise Invalid('specify either a duration ({"duration": "15m"}) or {"to_next_change": true}')
    before = await fleet.journal.end()
    if request.duration is None:
        await fleet.time.advance_to_next(who=by)
    else:
        distance = _check_range(fleet.clock.now(), parse_duration(request.duration))
        await fleet.time.advance(distance, who=by)
    changes = await fleet.journal.changes(before, v1.PAGE)
    return v1.AdvanceResult(**msgspec.structs.asdict(show_clock(fleet)), changes=tuple(map(show_row, changes)))


def _check_range(now: datetime, by: timedelta) -> timedelta:
    if by > MAX_TIME - now:
        raise Invalid(f"the clock cannot go beyond the year {MAX_TIME:%Y}")
    return by


@get(
    "/healthz",
    operation_id="health",
    summary="Check that the service is alive",
    security=[{}],
    tags=("service",),
    opt=requires(None),
)
async def health() -> v1.Health:
    """Return that the service is alive. Needs no token."""
    return v1.Health(status="ok", version=__version__)


@get(
    "/readyz",
    operation_id="readiness",
    summary="Check that the service is ready",
    security=[{}],
    tags=("service",),
    opt=requires(None),
    responses={
        NOT_READY: ResponseSpec(
            data_container=v1.Readiness, description="The service is not ready.", generate_examples=False
        )
    },
)
async def readiness(state: AppState) -> Response[v1.Readiness]:
    """Return whether the service is ready, and its problems. Needs no token."""
    problems = await state.fleet.health.problems()
    offset = state.fleet.cluster.clock_offset
    found = v1.Readiness(
        ready=not problems,
        problems=(*problems, *state.fleet.health.limitations()),
        clock_offset_seconds=None if offset is None else offset.seconds,
    )
    return Response(found, status_code=NOT_READY if problems else 200)


@get(
    "/metrics",
    operation_id="metrics",
    summary="Get the metrics",
    media_type=CONTENT_TYPE,
    tags=("service",),
    opt=requires(Role.VIEWER, all_scopes=True),
    responses=error_specs(),
)
async def metrics(state: AppState) -> bytes:
    """Return the service's metrics in Prometheus text format."""
    return await metrics_text(state.fleet, state.guests.counters, state.counters)


@get(
    "/v1/me",
    operation_id="showMe",
    summary="Show the caller",
    tags=("service",),
    opt=requires(Role.VIEWER),
    responses=error_specs(),
)
async def me(caller: CallerDep) -> v1.Principal:
    """Show the name, role and scopes of the token."""
    return v1.Principal(name=caller.name, role=caller.role, scopes=caller.scopes)
