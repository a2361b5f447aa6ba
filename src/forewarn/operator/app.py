"""The operator API as an application: its parts put together, and its description."""

from copy import copy
from functools import cache

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import ASGIApp, ControllerRouterHandler

from forewarn.core.errors import CoreError
from forewarn.fleet.errors import FleetError
from forewarn.fleet.service import Fleet
from forewarn.operator.access import TokenGate, check_declared, check_role, provide_caller
from forewarn.operator.backstage import Backstage, GuestSide
from forewarn.operator.campaigns import CampaignController
from forewarn.operator.counting import Answers, Counted, none_yet
from forewarn.operator.description import description_config
from forewarn.operator.diagnosis import diagnose
from forewarn.operator.errors import OperatorError
from forewarn.operator.events import EventController
from forewarn.operator.faults import FaultController
from forewarn.operator.fleet_file import FleetController
from forewarn.operator.history import HistoryController
from forewarn.operator.holds import HoldController
from forewarn.operator.importing import Imports
from forewarn.operator.inventory import HostController, ScopeController, VmController
from forewarn.operator.making import provide_making
from forewarn.operator.operations import OperationController
from forewarn.operator.page import docs
from forewarn.operator.paging import Roll
from forewarn.operator.parameters import before_handling, provide_once
from forewarn.operator.planning import Planner
from forewarn.operator.reading import StrictRequest
from forewarn.operator.refusals import answer_failure, answer_malformed, answer_refusal, answer_unreadable
from forewarn.operator.seats import Seats
from forewarn.operator.service import ClockController, health, me, metrics, readiness
from forewarn.operator.sockets import open_socket
from forewarn.operator.tokens import TokenController
from forewarn.operator.watching import watch
from forewarn.store.port import StoreError

BODY_BYTES = 1024 * 1024

PATHS: list[ControllerRouterHandler] = [
    ScopeController,
    VmController,
    HostController,
    open_socket,
    FleetController,
    diagnose,
    EventController,
    OperationController,
    CampaignController,
    HoldController,
    FaultController,
    HistoryController,
    TokenController,
    ClockController,
    health,
    readiness,
    metrics,
    me,
    watch,
    docs,
]


def operator_app(fleet: Fleet, *, guests: GuestSide) -> ASGIApp:
    """Make the application that answers operators who have a token."""
    answers = none_yet()
    return Counted(TokenGate(open_app(fleet, guests=guests, answers=answers), fleet.tokens.find), answers)


def open_app(fleet: Fleet, *, guests: GuestSide, answers: Answers) -> Litestar:
    """Make the application without its gate: something before it must say who calls."""
    app = copy(_without_fleet())
    roll = Roll(fleet)
    app.state = Backstage(
        {
            "fleet": fleet,
            "guests": guests,
            "answers": answers,
            "roll": roll,
            "seats": Seats(),
            "imports": Imports(fleet),
            "planner": Planner(fleet, roll.ids),
        },
        deep_copy=False,
    )
    return app


class _Plain(Litestar):
    """The framework without what it takes up by itself where other libraries are installed: to load them takes longer
    than everything else, and nothing here is theirs."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def prepare() -> None:
    """Do beforehand, in any thread, what making the first application would take time for."""
    _without_fleet()


@cache
def _without_fleet() -> Litestar:
    """Put the handlers together, once for all services of a process: what they work on is all that differs.

    It takes a tenth of a second, which whoever starts a service for each of many tests would wait for every time.
    """
    app = _Plain(
        PATHS,
        before_request=before_handling,
        dependencies={
            "caller": Provide(provide_caller),
            "once": Provide(provide_once),
            "making": Provide(provide_making),
        },
        exception_handlers={
            CoreError: answer_refusal,
            FleetError: answer_refusal,
            OperatorError: answer_refusal,
            StoreError: answer_unreadable,
            HTTPException: answer_malformed,
            Exception: answer_failure,
        },
        guards=[check_role],
        logging_config=None,
        openapi_config=description_config(),
        request_class=StrictRequest,
        request_max_body_size=BODY_BYTES,
    )
    check_declared(app.routes)
    return app
