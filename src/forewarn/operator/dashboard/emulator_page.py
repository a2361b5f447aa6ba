"""Emulator page, where time is virtual: time and speed, scenarios with live results, faults, reports."""

from collections.abc import Mapping
from secrets import token_hex

from litestar import Response, get, post

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.fault import DEFAULT_AMOUNTS, FaultKind
from forewarn.core.text import count_text
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.clock_view import show_clock
from forewarn.operator.dashboard.pages import (
    EMULATOR,
    AnyRequest,
    ReasonForm,
    changed,
    convert_form,
    read_form,
    render_page,
)
from forewarn.operator.emulator import check_emulator, check_time_virtual
from forewarn.operator.parameters import FaultId, IdempotencyKeyDep, RunId
from forewarn.operator.routes.faults import clear_fault, set_fault, show_fault, visible_faults
from forewarn.operator.routes.journal import read_page
from forewarn.operator.routes.system import advance_clock
from forewarn.operator.state import AppState

MAX_ENTRIES = 10
"""How many of the newest changes are shown."""

STEPS = ("1m", "5m", "15m", "1h", "1d")
"""The distances of the buttons that advance the clock."""

SPEEDS = (1, 10, 60, 600)
"""The speeds of the buttons."""


@get(EMULATOR, opt=requires(Role.VIEWER))
async def show_emulator(request: AnyRequest, state: AppState, caller: CallerDep) -> Response[str]:
    """Show the emulator; a caller that is limited to scopes sees the time and the faults of its VMs."""
    check_time_virtual(state)
    is_unlimited = not caller.scopes
    runs = state.scenario_runs.all() if is_unlimited else []
    position = await state.fleet.journal.end()
    page = await read_page(state.fleet, caller, newest_first=True, limit=MAX_ENTRIES)
    return render_page(
        request,
        "emulator.html",
        title="Emulator",
        live="all",
        position=position,
        clock=show_clock(state.fleet),
        can_control=is_unlimited and caller.role.includes(Role.OPERATOR),
        is_unlimited=is_unlimited,
        steps=STEPS,
        speeds=SPEEDS,
        scenarios=await _scenarios(state, caller),
        run=runs[0].show() if runs else None,
        earlier_runs=[run.summary() for run in runs[1:]],
        faults=[show_fault(fault) for fault in visible_faults(state, caller)],
        fault_kinds=tuple(FaultKind),
        amounts=", ".join(DEFAULT_AMOUNTS),
        reports=await state.reports.all() if is_unlimited else [],
        entries=page.entries,
        request_key=token_hex(16),
    )


async def _scenarios(state: AppState, caller: Caller) -> list[v1.Scenario]:
    """Return the scenarios for the caller, those first that this service can play."""
    if caller.scopes or not state.scenario_runs.has_player:
        return []
    return sorted(await state.scenario_runs.scenarios(), key=lambda scenario: scenario.problem is not None)


@get(f"{EMULATOR}/runs/{{run_id:str}}", opt=requires(Role.VIEWER, all_scopes=True))
async def show_run(request: AnyRequest, state: AppState, caller: CallerDep, run_id: RunId) -> Response[str]:
    """Show one run of a scenario."""
    check_emulator(state)
    return render_page(
        request,
        "run.html",
        title=f"Run {run_id}",
        live="all",
        position=await state.fleet.journal.end(),
        run=state.scenario_runs.find(run_id).show(),
        can_control=caller.role.includes(Role.OPERATOR),
        request_key=token_hex(16),
    )


@post(f"{EMULATOR}/advance", opt=requires(Role.OPERATOR, all_scopes=True))
async def advance(request: AnyRequest, state: AppState, caller: CallerDep) -> Response[str]:
    """Advance a manual clock, and say how many changes that has caused."""
    result = await advance_clock(state.fleet, convert_form(await read_form(request), v1.AdvanceClock), by=caller.name)
    return _told(_advanced_text(result))


def _advanced_text(result: v1.AdvanceResult) -> str:
    if not result.changes:
        return "No event has changed."
    more = "at least " if len(result.changes) >= v1.PAGE else ""
    return f"{more}{count_text(len(result.changes), 'change')} of events and campaigns: see the newest changes below."


@post(f"{EMULATOR}/speed", opt=requires(Role.OPERATOR, all_scopes=True))
async def set_speed(request: AnyRequest, state: AppState, caller: CallerDep) -> Response[str]:
    """Set the speed."""
    check_emulator(state)
    data = convert_form(await read_form(request), v1.SetSpeed)
    await state.fleet.emulator.speed.change(data.speed, by=caller.name)
    return _told(f"Notices and durations of new events are divided by {data.speed:g}.")


def _told(text: str) -> Response[str]:
    """Return the response to a change that has something to say."""
    response = changed()
    return Response(text, media_type="text/html", status_code=200, headers=dict(response.headers))


@post(f"{EMULATOR}/play", opt=requires(Role.OPERATOR, all_scopes=True))
async def play(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep
) -> Response[str]:
    """Start a scenario; the page shows its steps."""
    check_time_virtual(state)
    data = convert_form(await read_form(request), v1.PlayScenario)
    await state.scenario_runs.play(data, by=caller, idempotency_key=idempotency_key)
    return changed()


@post(f"{EMULATOR}/runs/{{run_id:str}}/cancel", opt=requires(Role.OPERATOR, all_scopes=True))
async def cancel_run(state: AppState, caller: CallerDep, run_id: RunId) -> Response[str]:
    """Cancel a run."""
    check_emulator(state)
    await state.scenario_runs.cancel(run_id, by=caller.name)
    return changed()


@post(f"{EMULATOR}/faults", opt=requires(Role.OPERATOR))
async def set_fault_form(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep
) -> Response[str]:
    """Set a fault."""
    form: Mapping[str, object] = await read_form(request)
    await set_fault(state, convert_form(form, v1.SetFault), caller=caller, idempotency_key=idempotency_key)
    return changed()


@post(f"{EMULATOR}/faults/{{fault_id:str}}/clear", opt=requires(Role.OPERATOR))
async def clear_fault_form(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, fault_id: FaultId
) -> Response[str]:
    """Clear a fault."""
    form = convert_form(await read_form(request), ReasonForm)
    await clear_fault(state, fault_id, caller=caller, reason=form.reason, idempotency_key=idempotency_key)
    return changed()
