"""The operator API as an ASGI application: routes, dependencies, error handlers and middleware."""

from functools import cache

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, ControllerRouterHandler

from forewarn.core.errors import CoreError
from forewarn.fleet.errors import FleetError
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import (
    TokenCheck,
    TokenMiddleware,
    check_permission,
    check_permissions_declared,
    provide_caller,
)
from forewarn.operator.campaign_planner import CampaignPlanner
from forewarn.operator.counters import Counters
from forewarn.operator.dashboard.routes import dashboard_router
from forewarn.operator.dashboard.session_middleware import SessionMiddleware
from forewarn.operator.error_responses import (
    domain_error_response,
    http_error_response,
    internal_error_response,
    store_error_response,
)
from forewarn.operator.errors import OperatorError
from forewarn.operator.event_creation import provide_event_creation
from forewarn.operator.hosts import AllowedHosts, HostMiddleware
from forewarn.operator.import_job import ImportJobs, ImportLimits
from forewarn.operator.metrics import StatusCounterMiddleware
from forewarn.operator.openapi import openapi_config
from forewarn.operator.pagination import SortedScopeIds
from forewarn.operator.parameters import before_request, provide_idempotency_key
from forewarn.operator.position import PositionMiddleware
from forewarn.operator.report_store import ReportStore
from forewarn.operator.routes.calendar import CalendarController, show_feed
from forewarn.operator.routes.campaigns import CampaignController
from forewarn.operator.routes.diagnosis import diagnose
from forewarn.operator.routes.docs_page import docs
from forewarn.operator.routes.event_stream import watch
from forewarn.operator.routes.events import EventController
from forewarn.operator.routes.faults import FaultController
from forewarn.operator.routes.fleet_file import FleetFileController
from forewarn.operator.routes.holds import HoldController
from forewarn.operator.routes.inventory import HostController, ScopeController, VmController
from forewarn.operator.routes.journal import JournalController
from forewarn.operator.routes.operations import OperationController
from forewarn.operator.routes.reports import ReportController
from forewarn.operator.routes.scenarios import ScenarioController
from forewarn.operator.routes.sockets import open_socket
from forewarn.operator.routes.system import ClockController, health, me, metrics, readiness
from forewarn.operator.routes.tokens import TokenController
from forewarn.operator.scenario_runs import ScenarioRuns
from forewarn.operator.sessions import Sessions
from forewarn.operator.state import AppState, GuestEndpoints, ServiceState, StreamSlots, with_parts
from forewarn.operator.strict_request import StrictRequest
from forewarn.operator.views.journal import RowEncoder
from forewarn.store.port import StoreError

BODY_BYTES = 1024 * 1024

PATHS: list[ControllerRouterHandler] = [
    ScopeController,
    VmController,
    HostController,
    open_socket,
    FleetFileController,
    diagnose,
    EventController,
    OperationController,
    CampaignController,
    HoldController,
    FaultController,
    ScenarioController,
    ReportController,
    JournalController,
    TokenController,
    CalendarController,
    ClockController,
    health,
    readiness,
    metrics,
    me,
    watch,
    docs,
    show_feed,
    dashboard_router(),
]


def operator_app(
    fleet: Fleet,
    *,
    guests: GuestEndpoints,
    counters: Counters | None = None,
    hosts: AllowedHosts | None = None,
    import_limits: ImportLimits | None = None,
    sessions: Sessions | None = None,
    scenario_runs: ScenarioRuns | None = None,
    reports: ReportStore | None = None,
) -> ASGIApp:
    """Return the ASGI application of one service, with authentication and metrics."""
    scope_ids = SortedScopeIds(fleet)
    counters = counters or Counters()
    scenario_runs = scenario_runs or ScenarioRuns(fleet)
    parts = ServiceState(
        fleet=fleet,
        guests=guests,
        counters=counters,
        scope_ids=scope_ids,
        stream_slots=StreamSlots(),
        encode_row=RowEncoder().encode,
        import_jobs=ImportJobs(fleet, import_limits or ImportLimits()),
        planner=CampaignPlanner(fleet, scope_ids.ids),
        token_check=TokenCheck(lambda secret: scenario_runs.find_token(secret) or fleet.tokens.find(secret), counters),
        sessions=sessions or create_sessions(fleet),
        scenario_runs=scenario_runs,
        reports=reports or ReportStore(fleet),
    )
    app = PositionMiddleware(with_parts(litestar_app(), parts), fleet.cluster.positions)
    api = TokenMiddleware(app, parts.token_check)
    authenticated = SessionMiddleware(app, api, parts.sessions, fleet.tokens.find_by_id)
    return StatusCounterMiddleware(HostMiddleware(authenticated, hosts or AllowedHosts()), counters)


def create_sessions(fleet: Fleet) -> Sessions:
    """Return the sessions of a service; they end with their tokens, by the same clock."""
    return Sessions(fleet.tokens.wall_clock, lambda token: fleet.tokens.find_by_id(token) is not None)


def preload() -> None:
    """Build the shared Litestar application in advance, in any thread."""
    litestar_app()


@cache
def litestar_app() -> Litestar:
    """Build the Litestar application, once for all services of a process.

    Building takes a tenth of a second, too long for test suites that start a service per test. Middleware around it
    must set the caller and the service state of each request.
    """
    app = Litestar(
        PATHS,
        before_request=before_request,
        dependencies={
            "caller": Provide(provide_caller),
            "idempotency_key": Provide(provide_idempotency_key),
            "event_creation": Provide(provide_event_creation),
        },
        exception_handlers={
            CoreError: domain_error_response,
            FleetError: domain_error_response,
            OperatorError: domain_error_response,
            StoreError: store_error_response,
            HTTPException: http_error_response,
            Exception: internal_error_response,
        },
        guards=[check_permission],
        logging_config=None,
        openapi_config=openapi_config(),
        request_class=StrictRequest,
        request_max_body_size=BODY_BYTES,
        state=AppState(),
    )
    check_permissions_declared(app.routes)
    return app
