"""All paths of the dashboard, as one router without entries in the OpenAPI description."""

from typing import Annotated, Any

from litestar import Response, Router, get
from litestar.exceptions import HTTPException, NotFoundException
from litestar.params import PathParameter

from forewarn.core.access import Role
from forewarn.core.errors import CoreError
from forewarn.fleet.errors import FleetError
from forewarn.operator.auth import requires
from forewarn.operator.dashboard.access_page import (
    create_calendar,
    create_token,
    end_session,
    revoke_calendar,
    revoke_token,
    show_access,
)
from forewarn.operator.dashboard.assets import static_file
from forewarn.operator.dashboard.campaign_editor import plan_input, show_editor, start_planned
from forewarn.operator.dashboard.campaign_page import change_campaign, show_campaign_page, show_campaigns
from forewarn.operator.dashboard.emulator_page import (
    advance,
    cancel_run,
    clear_fault_form,
    play,
    set_fault_form,
    set_speed,
    show_emulator,
    show_run,
)
from forewarn.operator.dashboard.event_page import (
    approve_event,
    cancel_event,
    resolve_impact,
    retry_impact,
    show_document,
    show_event_page,
)
from forewarn.operator.dashboard.fleet_page import show_fleet, show_host_block, show_part, show_scope_block, show_states
from forewarn.operator.dashboard.guest_page import show_exchanges, show_guest_page
from forewarn.operator.dashboard.history_page import export_history, show_history
from forewarn.operator.dashboard.hold_page import create_hold, release_hold, show_holds
from forewarn.operator.dashboard.overview import show_overview
from forewarn.operator.dashboard.pages import error_page
from forewarn.operator.dashboard.report_page import show_report
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.dashboard.sign_in import root, show_sign_in, sign_in, sign_out
from forewarn.operator.dashboard.stream import stream
from forewarn.operator.dashboard.timeline_page import show_timeline
from forewarn.operator.dashboard.vm_page import operate_vm, schedule_vm, search_all, show_vm_page
from forewarn.operator.errors import OperatorError
from forewarn.store.port import StoreError

HANDLED_ERRORS = (CoreError, FleetError, OperatorError, StoreError, HTTPException, Exception)
"""The classes for which the API has its own responses; the most specific handler of a class is used."""

AnyPath = Annotated[str, PathParameter(max_length=4096)]


@get(f"{ROOT}/{{rest:path}}", opt=requires(Role.VIEWER))
async def unknown_page(rest: AnyPath) -> Response[Any]:
    """Answer every other path below the dashboard's with an error page."""
    raise NotFoundException(rest)


def dashboard_router() -> Router:
    """Return the router of the dashboard."""
    return Router(
        "/",
        route_handlers=[
            root,
            show_sign_in,
            sign_in,
            sign_out,
            static_file,
            stream,
            show_overview,
            show_fleet,
            show_part,
            show_states,
            show_scope_block,
            show_host_block,
            show_vm_page,
            show_guest_page,
            show_exchanges,
            operate_vm,
            schedule_vm,
            search_all,
            show_timeline,
            show_campaigns,
            show_editor,
            plan_input,
            start_planned,
            show_campaign_page,
            change_campaign,
            show_emulator,
            advance,
            set_speed,
            play,
            cancel_run,
            show_run,
            set_fault_form,
            clear_fault_form,
            show_report,
            show_history,
            export_history,
            show_holds,
            create_hold,
            release_hold,
            show_access,
            end_session,
            create_calendar,
            revoke_calendar,
            create_token,
            revoke_token,
            show_event_page,
            show_document,
            approve_event,
            cancel_event,
            retry_impact,
            resolve_impact,
            unknown_page,
        ],
        exception_handlers=dict.fromkeys(HANDLED_ERRORS, error_page),
        include_in_schema=False,
    )
